"""To look after a rollout, to take it over, and to hand it on with a word to who comes next.

What is not asked first is offered to be undone: a claim of what was free, a release without a note.
"""

import shlex
import uuid

from houston_console.app.asking import Question
from houston_console.app.dialogs import Confirm
from houston_console.app.link import Link
from houston_console.app.people.lines import held
from houston_console.app.screen import HoustonScreen
from houston_console.app.state import ConsoleState
from houston_console.app.undoing import Act, Undoing
from houston_shared.clock import now_us
from houston_shared.errors import HoustonError
from houston_shared.store.queries.claims import Holding
from houston_shared.wire_people import Claim

NOTE = "a note for who comes next (may stay empty)"


class Claiming:
    """What a screen asks of the daemon about claims; questions stand before that screen."""

    def __init__(self, link: Link, undoing: Undoing, screen: HoustonScreen) -> None:
        self._link, self._undoing, self._screen = link, undoing, screen
        self._taken = ""
        """The rollout that was claimed here last: it may not have been read yet."""

    @property
    def _as(self) -> str:
        """How a command says who speaks."""
        return f" --as {shlex.quote(self._link.claimed)}" if self._link.claimed else ""

    def toggle(self, rollout: str, holding: Holding | None, state: ConsoleState) -> None:
        """Claim what is free, release what is one's own, and ask before taking over.

        holding: as this console has read it last.
        """
        holder = holding.holder if holding else ""
        if not holder:
            self._undoing.do(f"Claim {rollout} …", self._take(rollout, state.seq), _about(rollout))
        elif holder == state.me:
            asked = Question("Hand over", f"You look after {rollout} no longer?", {NOTE: ""})
            self._screen.app.push_screen(
                asked, lambda said: None if said is None else self._release(rollout, said[0])
            )
        else:
            who = held(holding, state.me, now_us())
            self._screen.app.push_screen(
                Confirm(f"{rollout} is looked after by {who}. Take it over?"),
                lambda yes: self._later(rollout, "", False, 0) if yes else None,
            )

    def take_back(self, rollout: str, holding: Holding | None, state: ConsoleState) -> None:
        """Release what is one's own, unasked: also what a key claimed that was meant as a letter.

        holding: as this console has read it last.
        """
        if rollout == self._taken or (holding is not None and holding.holder == state.me):
            self._undoing.do(f"Release {rollout} …", self._let_go(rollout), _about(rollout))
        else:
            self._screen.tell(f"You do not look after {rollout}: c claims it.", "warning")

    def _release(self, rollout: str, note: str) -> None:
        self._later(rollout, note.strip(), True, 0)

    def _later(self, rollout: str, note: str, release: bool, seen: int) -> None:
        self._screen.run_worker(self._claim(rollout, note, release, seen), group="claim")

    async def _claim(self, rollout: str, note: str, release: bool, seen: int) -> None:
        try:
            await self._ask(rollout, note, release, seen)
        except HoustonError as problem:
            self._screen.told(problem)
            return
        if not release:
            words = f"You look after {rollout}: everybody sees it. C takes it back."
            self._screen.tell(words, "success")
        else:
            words = " Your note waits for who comes next." if note else ""
            self._screen.tell(f"You look after {rollout} no longer.{words}", "success")

    async def _ask(self, rollout: str, note: str, release: bool, seen: int) -> int:
        """The event that says it. Raises HoustonError."""
        message = Claim(
            request=uuid.uuid4().hex,
            rollout=rollout,
            note=note,
            release=release,
            seen=seen,
            claimed=self._link.claimed,
        )
        done = await self._link.ask(message)
        self._taken = "" if release else rollout
        return getattr(done, "seq", 0)

    async def _take(self, rollout: str, seen: int) -> Act:
        """Claim what is free, as it was known at the event `seen`. Raises HoustonError."""
        seq = await self._ask(rollout, "", False, seen)

        async def back() -> str:
            await self._ask(rollout, "", True, seq)
            return f"Nobody looks after {rollout}, as before."

        words = f"You look after {rollout}: everybody sees it. C lets it go."
        return Act(words, back, f"houston claim {rollout} --release{self._as}")

    async def _let_go(self, rollout: str) -> Act:
        """Release what is one's own. Raises HoustonError."""
        seq = await self._ask(rollout, "", True, 0)

        async def back() -> str:
            await self._ask(rollout, "", False, seq)
            return f"You look after {rollout} again."

        return Act(
            f"You look after {rollout} no longer.", back, f"houston claim {rollout}{self._as}"
        )


def _about(rollout: str) -> str:
    return f"claim {rollout}"
