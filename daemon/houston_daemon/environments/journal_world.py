"""Worlds whose state follows from their calls alone: rebuilt from the journal, and undone.

Such a world writes no file in general. After a restart, and in a branch, the loop gives it the
results of the journal (`environment_protocol.ReplayedEnvironment`). Only a rollout with purified
steps keeps a file, from its first saved state on: calls of a look-ahead are then ahead of the
journal. Each world defines what a call does.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

import msgspec

from houston_daemon.environments import call_handling
from houston_daemon.environments.call_handling import ToolEnvironment
from houston_daemon.environments.environment_protocol import BudgetStatus, Stop
from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.rollout_state import load_state, save_state, state_file
from houston_daemon.environments.tool_arguments import Arguments, Catalog
from houston_daemon.environments.typed_observation import Failed, Observation
from houston_shared.errors import HoustonError
from houston_shared.records import EVALUATION_CALL, ToolCall, ToolResult


class CallJournal(msgspec.Struct):
    """What the file of a purified rollout holds."""

    calls: list[ToolCall]
    """Calls that succeeded, in order: the world as it is."""
    saved: dict[str, list[ToolCall]]
    """The same for each saved state, by name."""


class WorldScored(Observation, frozen=True, kw_only=True):
    """The rollout's one score, 0 to 100; how it is said is the world's own."""

    kind: ClassVar[str] = "eval"
    overall_score: float
    state: str = "scored"
    finished: bool
    """Whether the world is over; else its budget is spent."""
    counted: bool = True


WorldT = TypeVar("WorldT")


class JournalWorld(ToolEnvironment, ABC, Generic[WorldT]):
    """One such world for one rollout, made as its task says. See
    `environment_protocol.Environment`."""

    undo = "restore"
    """Its calls can be taken back."""

    def __init__(self, setup: EnvironmentSetup, tools: Catalog) -> None:
        super().__init__(setup.characters, scores=True)
        self._task = setup.task
        self._catalog = tools
        self.tools = tools.tools
        self._file = state_file(setup.spec, f"{setup.task.environment}.json")
        self._made = CallJournal([], {})
        self._keeps_file = False
        self._was_restored = False
        """Whether the file was found and nothing was done since."""
        self._replay_calls([])

    @abstractmethod
    def _new_world(self) -> WorldT:
        """The world at its beginning."""

    @abstractmethod
    def _do_action(self, action: Arguments, budget_status: BudgetStatus) -> Observation:
        """What an action does in `world`. One that fails changes nothing."""

    @abstractmethod
    def _score_spent(self) -> WorldScored:
        """The score of a rollout whose budget is spent."""

    async def open(self, begun: bool = False) -> None:
        """Find the file of a purified rollout; any other is restored by `replay`."""
        if (state := load_state(self._file, CallJournal)) is not None:
            self._keeps_file = self._was_restored = True
            self._made = state
            self._replay_calls(state.calls)

    def replay(self, results: Sequence[ToolResult]) -> None:
        """See `environment_protocol.ReplayedEnvironment`."""
        if not self._keeps_file:
            run = (result for result in results if result.success and result.kind != "interrupted")
            self._replay_calls(
                [result.call for result in run if result.call.name != EVALUATION_CALL]
            )

    async def save_state(self, name: str) -> None:
        """Keep the world as it is now under `name`, through any kill."""
        self._keeps_file = True
        self._made.saved[name] = list(self._made.calls)
        save_state(self._file, self._made)

    async def restore_state(self, name: str) -> None:
        """Bring the world back to what `name` kept."""
        if name not in self._made.saved:
            raise HoustonError(f"No state {name!r} of this world was saved.")
        self._replay_calls(self._made.saved[name])
        save_state(self._file, self._made)

    async def act(self, call: ToolCall, budget_status: BudgetStatus, stop: Stop) -> ToolResult:
        """Run one call, at once."""
        return self.answer(call, budget_status)

    def answer(self, call: ToolCall, budget_status: BudgetStatus) -> ToolResult:
        """The result of a call. A call that a restart interrupted counts once, whether or not it
        was done before."""
        call = self.check(call)
        if self._was_restored and self._made.calls and self._made.calls[-1].id == call.id:
            self._replay_calls(self._made.calls[:-1])
        self._was_restored = False
        observation = self._observe_call(call, budget_status)
        if observation.success and call.name != EVALUATION_CALL:
            self._made.calls.append(call)
            if self._keeps_file:
                save_state(self._file, self._made)
        return call_handling.result(call, observation, self._characters, 0.0)

    def _observe_call(self, call: ToolCall, budget_status: BudgetStatus) -> Observation:
        if call.error:
            return Failed(error=self._say_error(call.error))
        if call.name != EVALUATION_CALL:
            return self._do_action(self._catalog.arguments(call), budget_status)
        if not budget_status.budget_spent:
            return Failed(error=self._say_error(f"There is no tool {EVALUATION_CALL!r}."))
        return self._score_spent()

    def _say_error(self, error: str) -> str:
        """What is said of a call that is none of the world's."""
        return error

    def _replay_calls(self, calls: Sequence[ToolCall]) -> None:
        """The world from its beginning through these calls."""
        self.world = self._new_world()
        self._made.calls = list(calls)
        for call in calls:
            self._do_action(self._catalog.arguments(call), _REPLAYED)

    def _check(self, call: ToolCall) -> ToolCall:
        return self._catalog.check(call)


_REPLAYED = BudgetStatus(1 << 30, 1, 1.0, 0)
"""Late enough for every call that succeeded once."""
