"""An environment without a world: what a step costs when tools cost nothing (benchmarks, tests)."""

from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments import observation_boundary
from houston_daemon.environments.call_handling import ToolEnvironment
from houston_daemon.environments.environment_protocol import BudgetStatus, Stop, Undo
from houston_daemon.environments.environment_registry import EnvironmentKind
from houston_daemon.environments.tool_arguments import Arguments, Catalog
from houston_shared.records import CallIntent, ToolCall, ToolResult
from houston_shared.task import Task

_CHARACTERS = 30_000


class Noop(Arguments, frozen=True, kw_only=True):
    """Give the text back and do nothing."""

    name: ClassVar[str] = "noop"
    family: ClassVar[str] = "null"
    text: Annotated[str, Meta(max_length=8_000, description="Any text")] = ""


class Finish(Arguments, frozen=True, kw_only=True):
    """End the task."""

    name: ClassVar[str] = "finish"
    family: ClassVar[str] = "null"


class NullEnvironment(ToolEnvironment):
    """Answers at once and keeps nothing. See `environment_protocol.Environment`."""

    undo: Undo = "stateless"

    def __init__(self, task: Task) -> None:
        super().__init__(_CHARACTERS, scores=False)
        self._minimum_steps = task.budget.minimum_steps
        self._catalog = Catalog({"noop": Noop, "finish": Finish})
        self.tools = self._catalog.tools

    async def open(self, begun: bool = False) -> None:
        """Nothing to make."""

    def _check(self, call: ToolCall) -> ToolCall:
        return self._catalog.check(call)

    async def act(self, call: ToolCall, budget_status: BudgetStatus, stop: Stop) -> ToolResult:
        """Give the text back, or finish."""
        call = self.check(call)
        if call.error:
            return _plain_result(call, "error", False, f"Error: {call.error}")
        if call.name == "noop":
            return _plain_result(call, "noop", True, call.arguments["text"])
        if budget_status.step < self._minimum_steps:
            error = f"Error: finish is refused before step {self._minimum_steps}."
            return _plain_result(call, "finish", False, error, finished=False)
        return _plain_result(call, "finish", True, "Finished.", finished=True)

    async def recover(
        self, intent: CallIntent, budget_status: BudgetStatus, stop: Stop
    ) -> ToolResult:
        """The call had no effect that could be unknown, but it is still not run again."""
        text = f"Interrupted: the daemon went down while {intent.call.name} ran."
        return _plain_result(intent.call, "interrupted", False, text)


def _plain_result(
    call: ToolCall, kind: str, success: bool, text: str, **fields: bool
) -> ToolResult:
    bounded = observation_boundary.bound_text(text, _CHARACTERS)
    return ToolResult(
        call=call,
        kind=kind,
        success=success,
        text=bounded.text,
        fields=dict(fields),
        forged_tags=bounded.forged_tags,
        cut=bool(bounded.cut),
    )


KIND = EnvironmentKind(make=lambda setup: NullEnvironment(setup.task), shares_worker=True)
