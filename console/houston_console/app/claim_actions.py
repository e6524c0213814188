"""Claims from any screen: look after a rollout, let it go, take it over, hand it over, read a note.

Claiming and letting go act at once and offer an undo; a hand-over asks for whom and for a note, and
asks again where the name may be a slip. Requests go through `app.daemon_link`, questions are
`widgets.dialogs`.
"""

import shlex
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from houston_console.app.console_state import ConsoleState
from houston_console.app.daemon_link import DaemonLink
from houston_console.app.undo_offers import UndoableAction, UndoOffers
from houston_console.screens.base_screen import HoustonScreen
from houston_console.screens.rollout_lists import claim_text
from houston_console.widgets.dialogs import ConfirmDialog, QuestionDialog
from houston_shared.control_messages import ClaimRollout, ReadNote
from houston_shared.errors import HoustonError
from houston_shared.store import presence_queries
from houston_shared.store.presence_queries import ClaimStatus
from houston_shared.times_and_counts import now_us

MAX_NAMES_SHOWN = 8
"""Names of people that a question lists."""


class HandOver(NamedTuple):
    """What was typed."""

    to: str = ""
    """Empty for anybody."""
    note: str = ""


NOTHING_TYPED = HandOver()
HANDOVER_NOTE_PROMPT = "a note for them (without one it is only released)"


class ClaimActions:
    """What a screen asks of the daemon about claims; questions stand before that screen."""

    def __init__(self, link: DaemonLink, undo_offers: UndoOffers, screen: HoustonScreen) -> None:
        self._link, self._undo_offers, self._screen = link, undo_offers, screen
        self._own_claim = ""
        """The rollout that was claimed here last: it may not have been read yet."""
        self._notes_read: set[int] = set()
        """Notes of which it was said that they were read."""

    @property
    def _speaker_option(self) -> str:
        """How a command says who speaks."""
        return f" --as {shlex.quote(self._link.claimed)}" if self._link.claimed else ""

    def toggle(self, rollout: str, holding: ClaimStatus | None, state: ConsoleState) -> None:
        """Claim what is free, release what is one's own, and ask before taking over.

        holding: as this console has read it last.
        """
        holder = holding.holder if holding else ""
        if not holder:
            self._undo_offers.do(
                f"Claim {rollout} …",
                self._claim_with_undo(rollout, state.seq),
                _claim_undo_key(rollout),
            )
        elif holder == state.person:
            self._ask_hand_over(rollout, state.board.known_names, NOTHING_TYPED)
        else:
            holder_text = claim_text(holding, state.person, now_us())
            self._screen.app.push_screen(
                ConfirmDialog(f"{rollout} is looked after by {holder_text}. Take it over?"),
                lambda yes: self._run_claim(rollout) if yes else None,
            )

    def take_back(self, rollout: str, holding: ClaimStatus | None, state: ConsoleState) -> None:
        """Release what is one's own, unasked: also what a key claimed that was meant as a letter.

        holding: as this console has read it last.
        """
        if rollout == self._own_claim or (holding is not None and holding.holder == state.person):
            self._undo_offers.do(
                f"Release {rollout} …", self._release_with_undo(rollout), _claim_undo_key(rollout)
            )
        else:
            self._screen.show_message(f"You do not look after {rollout}: c claims it.", "warning")

    def mark_read(self, note: ClaimStatus | None) -> None:
        """Tell the author of a note, once, that its recipient has it on the screen."""
        if (
            note is None
            or note.read_by
            or note.note_seq in self._notes_read
            or self._link.state != "live"
        ):
            return
        self._notes_read.add(note.note_seq)
        self._screen.run_worker(self._mark_read(note), group="note")

    async def _mark_read(self, note: ClaimStatus) -> None:
        message = ReadNote(rollout=note.rollout, note=note.note_seq, claimed=self._link.claimed)
        try:
            await self._link.ask(message)
        except HoustonError as problem:
            self._screen.show_error(problem)

    def _ask_hand_over(self, rollout: str, known: Sequence[str], typed: HandOver) -> None:
        """Ask for whom, and for a note. typed: what stands there already."""
        others = [name for name in known if name != self._screen.state.person]
        names_hint = f"; known: {', '.join(others[:MAX_NAMES_SHOWN])}" if others else ""
        fields = {
            f"to whom (shift+tab goes there; empty: anybody{names_hint})": typed.to,
            HANDOVER_NOTE_PROMPT: typed.note,
        }
        self._screen.app.push_screen(
            QuestionDialog("Hand over", f"Stop looking after {rollout}?", fields),
            lambda answer: (
                self._check_hand_over(rollout, known, HandOver(*map(str.strip, answer)))
                if answer
                else None
            ),
        )

    def _check_hand_over(self, rollout: str, known: Sequence[str], typed: HandOver) -> None:
        """Hand over, but ask where the note is missing or the name may be a slip."""
        if typed.to and not typed.note:
            self._screen.show_message("A hand-over needs a note on what comes next.", "warning")
            self._ask_hand_over(rollout, known, typed)
            return
        meant_name = presence_queries.find_meant_name(typed.to, known) if typed.to else ""
        if not meant_name:
            self._run_claim(rollout, typed, release=True)
            return
        question = (
            f"Nobody called {typed.to} was here, but {meant_name} was."
            f" Hand over to {typed.to} anyway?"
        )
        self._screen.app.push_screen(
            ConfirmDialog(question),
            lambda yes: (
                self._run_claim(rollout, typed, release=True)
                if yes
                else self._ask_hand_over(rollout, known, typed)
            ),
        )

    def _run_claim(
        self, rollout: str, handover: HandOver = NOTHING_TYPED, release: bool = False
    ) -> None:
        self._screen.run_worker(self._claim(rollout, handover, release), group="claim")

    async def _claim(self, rollout: str, handover: HandOver, release: bool) -> None:
        try:
            await self._send_claim(rollout, handover, release, 0)
        except HoustonError as problem:
            self._screen.show_error(problem)
            return
        if not release:
            words = f"You look after {rollout}: everybody sees it. C takes it back."
            self._screen.show_message(words, "success")
        elif handover.to:
            words = f"{rollout} is handed over to {handover.to}: you will see when they read it."
            self._screen.show_message(words, "success")
        else:
            words = " Your note waits for the next person." if handover.note else ""
            self._screen.show_message(f"You no longer look after {rollout}.{words}", "success")

    async def _send_claim(
        self, rollout: str, handover: HandOver, release: bool, known_seq: int
    ) -> int:
        """Send the claim; returns its event. Raises HoustonError."""
        message = ClaimRollout(
            request=uuid.uuid4().hex,
            rollout=rollout,
            note=handover.note,
            to=handover.to,
            release=release,
            seen=known_seq,
            claimed=self._link.claimed,
        )
        answer = await self._link.ask(message)
        self._own_claim = "" if release else rollout
        return getattr(answer, "seq", 0)

    async def _claim_with_undo(self, rollout: str, known_seq: int) -> UndoableAction:
        """Claim what is free, as it was known at the event `known_seq`. Raises HoustonError."""
        seq = await self._send_claim(rollout, NOTHING_TYPED, False, known_seq)

        async def back() -> str:
            await self._send_claim(rollout, NOTHING_TYPED, True, seq)
            return f"Nobody looks after {rollout}, as before."

        words = f"You look after {rollout}: everybody sees it. C lets it go."
        return UndoableAction(
            words, back, f"houston claim {rollout} --release{self._speaker_option}"
        )

    async def _release_with_undo(self, rollout: str) -> UndoableAction:
        """Release what is one's own. Raises HoustonError."""
        seq = await self._send_claim(rollout, NOTHING_TYPED, True, 0)

        async def back() -> str:
            await self._send_claim(rollout, NOTHING_TYPED, False, seq)
            return f"You look after {rollout} again."

        return UndoableAction(
            f"You no longer look after {rollout}.",
            back,
            f"houston claim {rollout}{self._speaker_option}",
        )


def _claim_undo_key(rollout: str) -> str:
    return f"claim {rollout}"
