"""One session with a simulator, and its record on disk.

After a restart the session continues; if the simulator lost it, the recorded actions are sent
again. The client handles the protocol: HTTP, or one for a world of another kind
(`connected_world`).
"""

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from houston_daemon.environments.http.http_simulator_client import (
    Reset,
    Score,
    SimulatorFailed,
    Step,
)
from houston_daemon.environments.rollout_state import load_state, save_state, state_file
from houston_daemon.hosts.host_protocol import NeedsPerson
from houston_shared.errors import HoustonError
from houston_shared.records import RolloutSpec

AnswerT = TypeVar("AnswerT", bound=msgspec.Struct)


class Simulator(Protocol):
    """Who answers `reset`, `step`, `score` and `close`."""

    async def ask(
        self,
        path: str,
        body: Mapping[str, Any],
        kind: type[AnswerT],
        *,
        idempotent: bool,
        retry: bool = True,
    ) -> AnswerT:
        """See `http_simulator_client.SimulatorClient.ask`."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class RecordedAction(msgspec.Struct, frozen=True):
    """An action that the simulator did."""

    call: str
    """Id of the call; `STEP.INDEX`."""
    tool: str
    arguments: dict[str, Any]
    seen: str = ""
    """A hash of the answer, where it must be the same when the action is done again."""


class SessionState(msgspec.Struct):
    """Everything in the file."""

    session: str
    start: Reset
    taken: list[RecordedAction] = []
    done: bool = False
    """The simulator said that the episode is over."""
    finished: bool = False
    """The agent ended it."""


class SessionLost(NeedsPerson):
    """The simulator lacks what the rollout needs; a person can bring it back."""

    def __init__(self, rollout: str, reason: str) -> None:
        super().__init__(
            reason,
            "The rollout waits.",
            f"Bring the simulator back, then: houston rollout resume {rollout}; or give it up:"
            f" houston rollout cancel {rollout}",
        )


class SimulatorSession:
    """A rollout's session."""

    def __init__(
        self,
        spec: RolloutSpec,
        client: Simulator,
        settings: Mapping[str, Any],
        file_name: str = "http.json",
        checked: bool = False,
    ) -> None:
        """file_name: of its record on the host. checked: whether actions that are done again must
        be answered as before."""
        self._spec = spec
        self._client = client
        self._settings = dict(settings)
        self._file = state_file(spec, file_name)
        self._checked = checked
        self._state: SessionState | None = None
        self._unconfirmed_action: RecordedAction | None = None

    @property
    def state(self) -> SessionState:
        """The session's start and actions."""
        assert self._state is not None, "open() comes first"
        return self._state

    async def open(self, begun: bool) -> None:
        """Begin, or go on. Raises NeedsPerson where the simulator is away or has lost it."""
        kept_state = await asyncio.to_thread(load_state, self._file, SessionState)
        if kept_state is None and begun:
            raise HoustonError(
                "The rollout cannot go on: its record of the session is no longer on the host.",
                "Nothing was changed.",
                "Start a new one.",
            )
        try:
            if kept_state is None:
                await self._begin()
            else:
                self._state = kept_state
                await self._find_again()
        except SimulatorFailed as problem:
            raise SessionLost(self._spec.rollout, str(problem)) from None

    async def step(self, action: RecordedAction) -> Step:
        """Do one action, once for each call. Raises SimulatorFailed saying whether it was done.

        If a call was noted but its result was not stored, a `repeatable` simulator is asked for its
        answer again.
        """
        if number := self._number(action.call):
            return await self._send(action, number)
        if self._unconfirmed_action is not None:
            await self._settle(self._unconfirmed_action)
        try:
            answer = await self._send_new(action)
        except SimulatorFailed as problem:
            if not problem.lost:
                raise
            await self._find_again()
            answer = await self._send_new(action)
        await self._record_action(action, answer)
        return answer

    async def was_applied(self, action: RecordedAction) -> bool | None:
        """Whether the simulator did an action whose answer was lost; None if that cannot be known.

        Raises SimulatorFailed.
        """
        return True if self._number(action.call) else await self._settle(action)

    def is_over(self, call: str) -> bool:
        """Whether the episode was over before a call."""
        return self.state.done and not self._number(call)

    async def finish(self) -> None:
        """Note that the agent ended the episode. Raises OSError."""
        self.state.finished = True
        await asyncio.to_thread(save_state, self._file, self.state)

    async def score(self) -> Score:
        """How well the agent did. Raises SimulatorFailed."""
        try:
            return await self._client.ask("score", self._body(), Score, idempotent=True)
        except SimulatorFailed as problem:
            if not problem.lost:
                raise
        await self._find_again()
        return await self._client.ask("score", self._body(), Score, idempotent=True)

    async def end(self) -> None:
        """Tell the simulator that the session is over; errors are ignored."""
        if self._state is None:
            return
        try:
            await self._client.ask(
                "close", self._body(), IgnoredAnswer, idempotent=False, retry=False
            )
        except SimulatorFailed:
            return

    async def _begin(self) -> None:
        start = await self._reset(0)
        self._state = SessionState(
            self._spec.rollout, start, await asyncio.to_thread(self._of_parent)
        )
        await self._do_again(start)
        await asyncio.to_thread(save_state, self._file, self._state)

    async def _find_again(self) -> None:
        """The session where it stands; from its actions where the simulator has lost it."""
        await self._do_again(await self._reset(len(self.state.taken)))

    async def _do_again(self, reset: Reset) -> None:
        """Those actions of the session that the simulator has not done (any more)."""
        actions = self.state.taken
        if reset.steps < len(actions) and not reset.replayable:
            raise SimulatorFailed(
                f"The simulator knows {reset.steps} of the {len(actions)} actions of this session,"
                " and cannot do them again."
            )
        for number, action in enumerate(actions[reset.steps :], reset.steps + 1):
            answer = await self._send(action, number)
            if action.seen and action.seen != _digest(answer):
                raise SimulatorFailed(
                    f"Action {number}, {action.tool}, was answered otherwise than before when it"
                    " was done again."
                )

    async def _settle(self, action: RecordedAction) -> bool | None:
        reset = await self._reset(len(self.state.taken))
        ahead = reset.steps - len(self.state.taken)
        if ahead < 0:  # the session was lost, and the action with it
            await self._do_again(reset)
            ahead = 0
        if ahead == 1:
            await self._record_action(action)
        self._unconfirmed_action = None
        return {0: False, 1: True}.get(ahead)

    async def _reset(self, steps: int) -> Reset:
        body = {**self._body(), "seed": self._spec.seed, "steps": steps}
        return await self._client.ask(
            "reset", {**body, "settings": self._settings}, Reset, idempotent=True
        )

    async def _send_new(self, action: RecordedAction) -> Step:
        """The answer to a new action. One of which nobody knows whether it was done, as its answer
        failed to come, somebody broke it off or the session was lost, is settled before the next.
        """
        self._unconfirmed_action = action
        try:
            return await self._send(action)
        except SimulatorFailed as problem:
            if problem.done:
                await self._record_action(action)
            elif problem.done is False and not problem.lost:
                self._unconfirmed_action = None
            raise

    async def _send(self, action: RecordedAction, number: int = 0) -> Step:
        body = {
            **self._body(),
            "key": f"{self._spec.rollout}/{action.call}",
            "number": number or len(self.state.taken) + 1,
            "tool": action.tool,
            "arguments": action.arguments,
        }
        return await self._client.ask("step", body, Step, idempotent=self.state.start.repeatable)

    async def _record_action(self, action: RecordedAction, answer: Step | None = None) -> None:
        if answer is not None and self._checked:
            action = msgspec.structs.replace(action, seen=_digest(answer))
        self.state.taken.append(action)
        self.state.done = self.state.done or (answer is not None and answer.done)
        self._unconfirmed_action = None
        await asyncio.to_thread(save_state, self._file, self.state)

    def _number(self, call: str) -> int:
        """Which action of the session a call was, from 1; 0 for one that was not noted."""
        calls = [action.call for action in self.state.taken]
        return calls.index(call) + 1 if call in calls else 0

    def _body(self) -> dict[str, Any]:
        return {"session": self._spec.rollout}

    def _of_parent(self) -> list[RecordedAction]:
        """What a branch's parent did up to the step that it starts from."""
        spec = self._spec
        if not spec.parent:
            return []
        parent = load_state(state_file(spec, self._file.name, spec.parent), SessionState)
        if parent is None:
            raise HoustonError(
                f"The record of what {spec.parent} did is no longer on the host.",
                "The branch cannot start.",
            )
        last = spec.parent_step or 0
        return [action for action in parent.taken if int(action.call.partition(".")[0]) <= last]


def _digest(answer: Step) -> str:
    return hashlib.blake2b(msgspec.json.encode(answer), digest_size=12).hexdigest()


class IgnoredAnswer(msgspec.Struct, frozen=True):
    """An answer of which nothing is needed."""
