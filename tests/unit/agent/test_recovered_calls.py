"""A call that was under way when its worker died: what a person may still do about it."""

from typing import Any, cast

import pytest

from houston_daemon.agent.call_execution import CallExecutor
from houston_daemon.agent.rollout_budgets import ActiveClock, EvaluationScores, RolloutBudgets
from houston_daemon.agent.worker_control import ControlState
from houston_daemon.environments.environment_protocol import BudgetStatus, Stop
from houston_daemon.prompts.prompt_tokenizer import TokenEstimator
from houston_shared import wire
from houston_shared.records import EVALUATION_CALL, CallIntent, ToolCall, ToolResult
from houston_shared.task import BudgetSettings, Task

FINISH = ToolCall(id="3.0", name="finish", arguments={})
EVALUATION = ToolCall(id="3.1", name=EVALUATION_CALL, arguments={})


class Line:
    """A recorder that takes everything, and tells of an interrupt that waits."""

    activity = ""

    def __init__(self) -> None:
        waiting = wire.QueuedGuidance(count=1, urgency="interrupt")
        self.control = ControlState(wire.WorkerControl(waiting=waiting))

    async def store(self, kind: type[Any], **fields: Any) -> wire.Ack:
        return wire.Ack(seq=1, control=self.control.current)

    async def ensure_lease_valid(self) -> None:
        pass


class World:
    """One whose calls are broken off where a person may, else run to their end."""

    async def recover(
        self, intent: CallIntent, budget_status: BudgetStatus, stop: Stop
    ) -> ToolResult:
        text = f"broken off: {stop.reason}" if stop.event.is_set() else "ran to its end"
        return ToolResult(call=intent.call, kind="own", success=True, text=text)


@pytest.mark.parametrize(
    ("name", "steps", "calls", "text"),
    [
        ("the loop's evaluation behind `finish`", 9, [FINISH], "broken off: interrupt"),
        ("that of a spent budget", 3, [FINISH], "ran to its end"),
        ("a call of the agent", 3, [FINISH, EVALUATION], "broken off: interrupt"),
    ],
)
async def test_a_person_ends_a_recovered_call_unless_nobody_hears_them_any_more(
    name: str, steps: int, calls: list[ToolCall], text: str
) -> None:
    task = Task(name="count", instructions="Count.", budget=BudgetSettings(steps=steps))
    budgets = RolloutBudgets(task, ActiveClock(0), EvaluationScores())
    line, world = cast(Any, Line()), cast(Any, World())
    executor = CallExecutor(line, world, budgets, TokenEstimator(), 4_000)
    results = [ToolResult(call=FINISH, kind="finish", success=True, text="")]
    intents = [CallIntent(call=call) for call in (FINISH, EVALUATION)]
    await executor.run_calls(3, calls, intents, results)
    assert results[-1].text == text, name
