"""Actions on a rollout from any screen: pause, resume, cancel, branch, claim and release.

What cannot be undone asks first; the rest acts at once and offers an undo. A claim can be taken
over from somebody and handed on with a note. Requests go through `app.daemon_link`, questions are
`widgets.dialogs`, undo is `app.undo_offers`.
"""

import shlex
import uuid
from functools import partial
from typing import cast

from houston_console.app import daemon_link
from houston_console.app.console_state import ConsoleState
from houston_console.app.daemon_link import DaemonLink, SteeringAction
from houston_console.app.undo_offers import UndoableAction, UndoOffers
from houston_console.screens.base_screen import HoustonScreen
from houston_console.screens.rollout_lists import claim_text, rollout_state_text
from houston_console.widgets.dialogs import ConfirmDialog, QuestionDialog
from houston_shared.control_messages import BranchRollout, ClaimRollout, new_guidance_id
from houston_shared.errors import HoustonError
from houston_shared.store.presence_queries import ClaimStatus
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.times_and_counts import now_us
from houston_shared.wire import RequestStored

MAX_BRANCHES = 16
"""Branches that are started at once at most."""
BRANCH_COUNT_PROMPT = f"how many (1 to {MAX_BRANCHES})"
BRANCH_GUIDANCE_PROMPT = "guidance for their first observation (may stay empty)"


class SteeringActions:
    """What a screen asks of the daemon; questions stand before that screen."""

    def __init__(self, link: DaemonLink, undoing: UndoOffers, screen: HoustonScreen) -> None:
        self._link, self._undo_offers, self._screen = link, undoing, screen

    def steer(self, rollout: str, action: str) -> None:
        """Pause, resume or cancel; what cannot be undone asks first."""
        row = self._screen.state.rollouts.get(rollout)
        if row is None:
            if rollout:
                self._screen.show_message(f"{rollout} is not read yet: press it again.", "warning")
            return
        question = ""
        of_another = row.state == "paused" and row.paused_by != self._person
        if action == "cancel":
            question = f"End rollout {rollout} for good? It cannot be resumed."
        elif action == "resume" and (row.state == "failed" or of_another):
            question = f"{rollout} is {rollout_state_text(row)}. Resume it?"
        if question:
            self._screen.app.push_screen(
                ConfirmDialog(question),
                lambda yes: self._run(row, cast(SteeringAction, action), yes),
            )
        else:
            self._run(row, cast(SteeringAction, action))

    @property
    def _person(self) -> str:
        return f"person:{self._screen.state.person}"

    def _run(self, row: RolloutRow, action: SteeringAction, is_meant: bool | None = True) -> None:
        if is_meant:
            doing = f"{action.capitalize()} {row.id} …"
            self._undo_offers.do(doing, self._steer(row, action), f"steer {row.id}")

    async def _steer(self, row: RolloutRow, action: SteeringAction) -> UndoableAction:
        """row: as it was when the key was pressed. Raises HoustonError."""
        seq = await daemon_link.steer_rollout(self._link, row.id, action)
        by_person = row.state == "paused" and row.paused_by.startswith("person:")
        if action == "pause" and by_person:
            return UndoableAction(f"{row.id} is already {rollout_state_text(row)}.")
        if action == "resume" and row.state not in ("paused", "failed"):
            return UndoableAction(f"{row.id} is not paused.")
        words = f"{row.id}: {daemon_link.STEERING_NOTICES[action]}"
        if action == "pause":
            back = f"houston rollout resume {row.id}"
            return UndoableAction(words, partial(self._undo, row, "resume", seq), back)
        if action == "resume" and row.paused_by == self._person:
            return UndoableAction(
                words, partial(self._undo, row, "pause", 0), f"houston rollout pause {row.id}"
            )
        return UndoableAction(words)

    async def _undo(self, row: RolloutRow, action: SteeringAction, undoes: int) -> str:
        """A pause ends where it still is this person's; one that had ended is as it was."""
        reason = row.reason if action == "pause" else ""
        await daemon_link.steer_rollout(self._link, row.id, action, undoes, reason)
        return f"{row.id}: taken back. {daemon_link.STEERING_NOTICES[action]}"

    def branch(self, rollout: str, step: int) -> None:
        """Start siblings that go on from after `step`: how many, and what they are told."""
        if not rollout:
            return
        if step < 1:
            self._screen.show_message(
                "Go to the step after which the branch should begin.", "warning"
            )
            return
        text = f"Start branches of {rollout} after step {step}? It goes on as it does."
        self._screen.app.push_screen(
            QuestionDialog(
                "Branch here", text, {BRANCH_COUNT_PROMPT: "1", BRANCH_GUIDANCE_PROMPT: ""}
            ),
            lambda typed: None if typed is None else self._start_branches(rollout, step, *typed),
        )

    def _start_branches(self, rollout: str, step: int, many: str, words: str) -> None:
        if not many.strip().isdecimal() or not 1 <= int(many) <= MAX_BRANCHES:
            self._screen.show_message(f"{many!r} is no number from 1 to {MAX_BRANCHES}.", "error")
            return
        work = self._branch(rollout, step, int(many), words.strip())
        self._screen.run_worker(work, group="asking")

    async def _branch(self, rollout: str, step: int, many: int, words: str) -> None:
        branches: list[str] = []
        try:
            for _ in range(many):
                branches.append(await self._start_branch(rollout, step, words))
        except HoustonError as problem:
            self._screen.show_error(problem)
        if branches:
            self._screen.show_message(f"Queued: {', '.join(branches)}.", "success")

    async def _start_branch(self, rollout: str, step: int, words: str) -> str:
        message = BranchRollout(
            request=uuid.uuid4().hex,
            rollout=rollout,
            step=step,
            id=new_guidance_id() if words else "",
            text=words,
            claimed=self._link.claimed,
        )
        ack = await self._link.ask(message)
        return ack.rollouts[0] if isinstance(ack, RequestStored) and ack.rollouts else rollout


HANDOVER_NOTE_PROMPT = "a note for who comes next (may stay empty)"


class ClaimActions:
    """What a screen asks of the daemon about claims; questions stand before that screen."""

    def __init__(self, link: DaemonLink, undoing: UndoOffers, screen: HoustonScreen) -> None:
        self._link, self._undo_offers, self._screen = link, undoing, screen
        self._claimed_here = ""
        """The rollout that was claimed here last: it may not have been read yet."""

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
            dialog = QuestionDialog(
                "Hand over", f"You look after {rollout} no longer?", {HANDOVER_NOTE_PROMPT: ""}
            )
            self._screen.app.push_screen(
                dialog,
                lambda typed: (
                    self._run_claim(rollout, typed[0].strip(), release=True) if typed else None
                ),
            )
        else:
            holder_text = claim_text(holding, state.person, now_us())
            self._screen.app.push_screen(
                ConfirmDialog(f"{rollout} is looked after by {holder_text}. Take it over?"),
                lambda yes: self._run_claim(rollout, "", release=False) if yes else None,
            )

    def take_back(self, rollout: str, holding: ClaimStatus | None, state: ConsoleState) -> None:
        """Release what is one's own, unasked: also what a key claimed that was meant as a letter.

        holding: as this console has read it last.
        """
        if rollout == self._claimed_here or (
            holding is not None and holding.holder == state.person
        ):
            self._undo_offers.do(
                f"Release {rollout} …", self._release_with_undo(rollout), _claim_undo_key(rollout)
            )
        else:
            self._screen.show_message(f"You do not look after {rollout}: c claims it.", "warning")

    def _run_claim(self, rollout: str, note: str, release: bool) -> None:
        self._screen.run_worker(self._claim(rollout, note, release), group="claim")

    async def _claim(self, rollout: str, note: str, release: bool) -> None:
        try:
            await self._send_claim(rollout, note, release, 0)
        except HoustonError as problem:
            self._screen.show_error(problem)
            return
        if not release:
            words = f"You look after {rollout}: everybody sees it. C takes it back."
            self._screen.show_message(words, "success")
        else:
            words = " Your note waits for who comes next." if note else ""
            self._screen.show_message(f"You look after {rollout} no longer.{words}", "success")

    async def _send_claim(self, rollout: str, note: str, release: bool, known_seq: int) -> int:
        """Send the claim; returns its event. Raises HoustonError."""
        message = ClaimRollout(
            request=uuid.uuid4().hex,
            rollout=rollout,
            note=note,
            release=release,
            seen=known_seq,
            claimed=self._link.claimed,
        )
        answer = await self._link.ask(message)
        self._claimed_here = "" if release else rollout
        return getattr(answer, "seq", 0)

    async def _claim_with_undo(self, rollout: str, known_seq: int) -> UndoableAction:
        """Claim what is free, as it was known at the event `known_seq`. Raises HoustonError."""
        seq = await self._send_claim(rollout, "", False, known_seq)

        async def back() -> str:
            await self._send_claim(rollout, "", True, seq)
            return f"Nobody looks after {rollout}, as before."

        words = f"You look after {rollout}: everybody sees it. C lets it go."
        return UndoableAction(
            words, back, f"houston claim {rollout} --release{self._speaker_option}"
        )

    async def _release_with_undo(self, rollout: str) -> UndoableAction:
        """Release what is one's own. Raises HoustonError."""
        seq = await self._send_claim(rollout, "", True, 0)

        async def back() -> str:
            await self._send_claim(rollout, "", False, seq)
            return f"You look after {rollout} again."

        return UndoableAction(
            f"You look after {rollout} no longer.",
            back,
            f"houston claim {rollout}{self._speaker_option}",
        )


def _claim_undo_key(rollout: str) -> str:
    return f"claim {rollout}"
