"""Pause, resume, cancel and branch, from any screen: what costs something is asked first."""

import uuid
from typing import cast

from houston_console.app.asking import Question
from houston_console.app.dialogs import Confirm
from houston_console.app.link import Link
from houston_console.app.screen import HoustonScreen
from houston_console.app.speaking import guiding
from houston_console.app.speaking.guiding import Action
from houston_shared.errors import HoustonError
from houston_shared.guidance_id import new_id
from houston_shared.wire import Branch, Done

MOST = 16
"""Branches that are started at once at most."""
MANY = f"how many (1 to {MOST})"
WORDS = "guidance for their first observation (may stay empty)"


class Steering:
    """What a screen asks of the daemon; questions stand before that screen."""

    def __init__(self, link: Link, screen: HoustonScreen) -> None:
        self._link, self._screen = link, screen

    def ask(self, rollout: str, action: str) -> None:
        """Pause, resume or cancel; cancelling asks first."""
        if not rollout:
            return
        if action != "cancel":
            self._later(rollout, cast(Action, action))
            return
        self._screen.app.push_screen(
            Confirm(f"End rollout {rollout} for good? It cannot be resumed."),
            lambda yes: self._later(rollout, "cancel") if yes else None,
        )

    def _later(self, rollout: str, action: Action) -> None:
        self._screen.run_worker(self._steer(rollout, action), group="asking")

    async def _steer(self, rollout: str, action: Action) -> None:
        try:
            self._screen.tell(await guiding.steer(self._link, rollout, action), "success")
        except HoustonError as problem:
            self._screen.told(problem)

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
