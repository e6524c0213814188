"""Actions on a rollout from any screen: pause, resume, cancel and branch.

What cannot be undone asks first; the rest acts at once and offers an undo. Requests go through
`app.daemon_link`, questions are `widgets.dialogs`, undo is `app.undo_offers`. Claims are
`app.claim_actions`.
"""

import uuid
from functools import partial
from typing import cast

from houston_console.app import daemon_link
from houston_console.app.daemon_link import DaemonLink, SteeringAction
from houston_console.app.undo_offers import UndoableAction, UndoOffers
from houston_console.screens.base_screen import HoustonScreen
from houston_console.screens.rollout_lists import rollout_state_text
from houston_console.widgets.dialogs import ConfirmDialog, QuestionDialog
from houston_shared.control_messages import BranchRollout, new_guidance_id
from houston_shared.errors import HoustonError
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.wire import RequestStored

MAX_BRANCHES = 16
"""Branches that are started at once at most."""
BRANCH_COUNT_PROMPT = f"how many (1 to {MAX_BRANCHES})"
BRANCH_GUIDANCE_PROMPT = "guidance for their first observation (may stay empty)"


class SteeringActions:
    """What a screen asks of the daemon; questions stand before that screen."""

    def __init__(self, link: DaemonLink, undo_offers: UndoOffers, screen: HoustonScreen) -> None:
        self._link, self._undo_offers, self._screen = link, undo_offers, screen

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
        text = f"Start branches of {rollout} after step {step}? The rollout itself is not changed."
        self._screen.app.push_screen(
            QuestionDialog(
                "Branch here", text, {BRANCH_COUNT_PROMPT: "1", BRANCH_GUIDANCE_PROMPT: ""}
            ),
            lambda typed: None if typed is None else self._start_branches(rollout, step, *typed),
        )

    def _start_branches(self, rollout: str, step: int, many: str, words: str) -> None:
        if not many.strip().isdecimal() or not 1 <= int(many) <= MAX_BRANCHES:
            self._screen.show_message(
                f"{many!r} is not a number from 1 to {MAX_BRANCHES}.", "error"
            )
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
