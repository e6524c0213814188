"""Four actions on a few files: what each gives, what fails, the exact score, and undoing a step."""

from typing import Any

import pytest

from houston_daemon.environments.environment_protocol import (
    BudgetStatus,
    Environment,
    ReplayedEnvironment,
    Stop,
)
from houston_daemon.environments.environment_registry import make_environment
from houston_shared.records import RolloutSpec, TaskRecord, ToolCall, ToolResult
from houston_shared.task import Task
from houston_shared.task_tables import SmallWorkstationSettings

RECORD = TaskRecord(name="t", folder="/nowhere", definition="", instructions="")
SPEC = RolloutSpec(rollout="r", task=RECORD, engine="script:x", engine_settings={})
FILES = SmallWorkstationSettings(
    files={"a.txt": "rome: 12 forks", "b.txt": "oslo: 30 tents"}, wanted={"answer.txt": "12"}
)
GOES_ON = BudgetStatus(3, 5, 100.0, 0)
SPENT = BudgetStatus(8, 0, 100.0, 0)


def desk() -> Environment:
    task = Task(name="t", environment="small_workstation", small_workstation=FILES)
    return make_environment(SPEC, task)


async def act(
    desk: Environment, name: str, budget_status: BudgetStatus = GOES_ON, **arguments: Any
) -> ToolResult:
    call = ToolCall(id="1.0", name=name, arguments=arguments)
    return await desk.act(call, budget_status, Stop())


async def test_files_are_found_read_and_written() -> None:
    there = desk()
    assert (await act(there, "list")).text == "a.txt b.txt"
    assert (await act(there, "read", path="a.txt")).text == "rome: 12 forks"
    assert (await act(there, "write", path="answer.txt", text="12\n")).success
    assert (await act(there, "list")).text == "a.txt answer.txt b.txt"
    over = await act(there, "finish")
    assert (over.kind, over.fields["overall_score"]) == ("eval", 100.0)
    assert over.fields["finished"] and over.text == "Finished.", "its score is not shown"


@pytest.mark.parametrize("text", ["13", "12 forks", "", "1 2"])
async def test_anything_else_scores_nothing(text: str) -> None:
    there = desk()
    await act(there, "write", path="answer.txt", text=text)
    assert (await act(there, "finish")).fields["overall_score"] == 0.0


async def test_a_spent_budget_is_scored_as_it_stands() -> None:
    there = desk()
    assert not (await act(there, "eval")).success, "an agent cannot ask"
    await act(there, "write", path="answer.txt", text="12")
    assert (await act(there, "eval", SPENT)).fields["overall_score"] == 100.0


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("read", {"path": "c.txt"}, "no file 'c.txt'"),
        ("write", {"path": "", "text": "x"}, "needs a name"),
        ("write", {"path": "x"}, "needs the argument `text`"),
        ("run_command", {"command": "ls"}, "no tool"),
    ],
)
async def test_what_cannot_be_done_fails(name: str, arguments: dict[str, str], says: str) -> None:
    result = await act(desk(), name, **arguments)
    assert not result.success and says in result.text


async def test_told_its_results_again_it_stands_where_it_stood() -> None:
    there, again = desk(), desk()
    assert isinstance(again, ReplayedEnvironment)
    results = [
        await act(there, "write", path="answer.txt", text="12"),
        await act(there, "read", path="nothing"),
        await act(there, "write", path="answer.txt", text="13"),
    ]
    again.replay(results)
    assert (await act(again, "read", path="answer.txt")).text == "13"
    again.replay(results[:2])
    assert (await act(again, "finish")).fields["overall_score"] == 100.0, "the last is undone"
