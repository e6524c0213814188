"""Pause, resume, cancel and branch, from any screen: what cannot be undone is asked first.

A pause acts at once, and is offered to be undone; so is the end of one's own pause. To end
another's, or the rollout, is asked, and so is to go on with one that failed.
"""

import uuid
from functools import partial
from typing import cast

from houston_console.app.asking import Question
from houston_console.app.dialogs import Confirm
from houston_console.app.link import Link
from houston_console.app.rollouts.listing import standing
from houston_console.app.screen import HoustonScreen
from houston_console.app.speaking import guiding
from houston_console.app.speaking.guiding import Action
from houston_console.app.undoing import Act, Undoing
from houston_shared.errors import HoustonError
from houston_shared.guidance_id import new_id
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.wire import Done
from houston_shared.wire_operators import Branch

MOST = 16
"""Branches that are started at once at most."""
MANY = f"how many (1 to {MOST})"
WORDS = "guidance for their first observation (may stay empty)"


class Steering:
    """What a screen asks of the daemon; questions stand before that screen."""

    def __init__(self, link: Link, undoing: Undoing, screen: HoustonScreen) -> None:
        self._link, self._undoing, self._screen = link, undoing, screen

    def ask(self, rollout: str, action: str) -> None:
        """Pause, resume or cancel; what cannot be undone asks first."""
        row = self._screen.state.rollouts.get(rollout)
        if row is None:
            return
        question = ""
        if action == "cancel":
            question = f"End rollout {rollout} for good? It cannot be resumed."
        elif action == "resume" and (row.state == "failed" or self._of_another(row)):
            question = f"{rollout} is {standing(row)}. Resume it?"
        if question:
            self._screen.app.push_screen(
                Confirm(question), lambda yes: self._later(row, cast(Action, action), yes)
            )
        else:
            self._later(row, cast(Action, action))

    @property
    def _me(self) -> str:
        return f"person:{self._screen.state.me}"

    def _of_another(self, row: Rollout) -> bool:
        return row.state == "paused" and row.paused_by != self._me

    def _later(self, row: Rollout, action: Action, meant: bool | None = True) -> None:
        if meant:
            doing = f"{action.capitalize()} {row.id} …"
            self._undoing.do(doing, self._steer(row, action), f"steer {row.id}")

    async def _steer(self, row: Rollout, action: Action) -> Act:
        """row: as it was when the key was pressed. Raises HoustonError."""
        seq = await guiding.steer(self._link, row.id, action)
        by_person = row.state == "paused" and row.paused_by.startswith("person:")
        if action == "pause" and by_person:
            return Act(f"{row.id} is already {standing(row)}.")
        if action == "resume" and row.state not in ("paused", "failed"):
            return Act(f"{row.id} is not paused.")
        words = f"{row.id}: {guiding.DONE[action]}"
        if action == "pause":
            back = f"houston rollout resume {row.id}"
            return Act(words, partial(self._back, row, "resume", seq), back)
        if action == "resume" and row.paused_by == self._me:
            return Act(
                words, partial(self._back, row, "pause", 0), f"houston rollout pause {row.id}"
            )
        return Act(words)

    async def _back(self, row: Rollout, action: Action, undoes: int) -> str:
        """A pause ends where it still is this person's; one that had ended is as it was."""
        reason = row.reason if action == "pause" else ""
        await guiding.steer(self._link, row.id, action, undoes, reason)
        return f"{row.id}: taken back. {guiding.DONE[action]}"

    def branch(self, rollout: str, step: int) -> None:
        """Start siblings that go on from after `step`: how many, and what they are told."""
        if not rollout:
            return
        if step < 1:
            self._screen.tell("Go to the step after which the branch should begin.", "warning")
            return
        text = f"Start branches of {rollout} after step {step}? It goes on as it does."
        self._screen.app.push_screen(
            Question("Branch here", text, {MANY: "1", WORDS: ""}),
            lambda said: None if said is None else self._answered(rollout, step, *said),
        )

    def _answered(self, rollout: str, step: int, many: str, words: str) -> None:
        if not many.strip().isdecimal() or not 1 <= int(many) <= MOST:
            self._screen.tell(f"{many!r} is no number from 1 to {MOST}.", "error")
            return
        work = self._branch(rollout, step, int(many), words.strip())
        self._screen.run_worker(work, group="asking")

    async def _branch(self, rollout: str, step: int, many: int, words: str) -> None:
        made: list[str] = []
        try:
            for _ in range(many):
                made.append(await self._start(rollout, step, words))
        except HoustonError as problem:
            self._screen.told(problem)
        if made:
            self._screen.tell(f"Queued: {', '.join(made)}.", "success")

    async def _start(self, rollout: str, step: int, words: str) -> str:
        message = Branch(
            request=uuid.uuid4().hex,
            rollout=rollout,
            step=step,
            id=new_id() if words else "",
            text=words,
            claimed=self._link.claimed,
        )
        done = await self._link.ask(message)
        return done.rollouts[0] if isinstance(done, Done) and done.rollouts else rollout
