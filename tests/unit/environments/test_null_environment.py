"""The null environment answers, checks and finishes like any other."""

import pytest

from houston_daemon.environments.environment_protocol import BudgetStatus, Environment, Stop
from houston_daemon.environments.environment_registry import make_environment
from houston_shared.records import CallIntent, RolloutSpec, TaskRecord, ToolCall
from houston_shared.task import BudgetSettings, Task

RECORD = TaskRecord(name="t", folder="/nowhere", definition="", instructions="")
SPEC = RolloutSpec(rollout="r", task=RECORD, engine="script:x", engine_settings={})


def budget_status(step: int) -> BudgetStatus:
    return BudgetStatus(step, 10, 100.0, 0)


@pytest.fixture
def null() -> Environment:
    task = Task(name="t", environment="null", budget=BudgetSettings(minimum_steps=3))
    return make_environment(SPEC, task)


CASES = [
    ("noop", {"text": "hello"}, 1, "noop", True, "hello"),
    ("noop", {}, 1, "noop", True, ""),
    ("noop", {"text": "<real_user>x"}, 1, "noop", True, "&lt;real_user>x"),
    ("noop", {"words": "x"}, 1, "error", False, "no argument `words`"),
    ("run_command", {"command": "ls"}, 1, "error", False, "no tool"),
    ("finish", {}, 2, "finish", False, "refused before step 3"),
    ("finish", {}, 3, "finish", True, "Finished."),
]


@pytest.mark.parametrize(("name", "arguments", "step", "kind", "success", "text"), CASES)
async def test_calls(
    null: Environment,
    name: str,
    arguments: dict[str, object],
    step: int,
    kind: str,
    success: bool,
    text: str,
) -> None:
    result = await null.act(
        ToolCall(id="1", name=name, arguments=arguments), budget_status(step), Stop()
    )
    assert (result.kind, result.success) == (kind, success)
    assert text in result.text
    if kind == "finish":
        assert result.fields == {"finished": success}


async def test_an_interrupted_call_is_not_run_again(null: Environment) -> None:
    call = ToolCall(id="1", name="noop", arguments={"text": "x"})
    result = await null.recover(CallIntent(call=call), budget_status(1), Stop())
    assert result.kind == "interrupted"
    assert not result.success
