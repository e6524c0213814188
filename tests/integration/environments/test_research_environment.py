"""The research environment: search, code, thought and answer, and what a restart finds."""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from houston_daemon.environments.environment_protocol import BudgetStatus, Environment, Stop
from houston_daemon.environments.environment_registry import kind, make_environment
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.records import CallIntent, RolloutSpec, ToolCall, ToolResult
from houston_shared.task import load_task, packaged_tasks_folder

pytestmark = pytest.mark.timeout(300)
PACKAGED = packaged_tasks_folder() / "search-qa"


class World:
    """A rollout of a packaged task; `again` is what a restart finds."""

    def __init__(self, folder: Path, file: str = "flow.toml", **tables: Any) -> None:
        if not (folder / "task").exists():
            shutil.copytree(PACKAGED, folder / "task")
        loaded = load_task(folder / "task" / file)
        self.task = loaded.task
        for name, values in tables.items():
            changed = msgspec.structs.replace(getattr(self.task, name), **values)
            self.task = msgspec.structs.replace(self.task, **{name: changed})
        self.spec = RolloutSpec(
            rollout="r1", task=loaded.record(), engine="script:x", engine_settings={},
            host_root=str(folder / "host"), seed=3,
        )  # fmt: skip
        self.environment: Environment = make_environment(self.spec, self.task)
        self.budget_status = BudgetStatus(3, 10, 900.0, 0)

    async def again(self) -> None:
        await self.environment.close(ended=False)
        self.environment = make_environment(self.spec, self.task)
        await self.environment.open(begun=True)

    async def __call__(self, name: str, call_id: str = "3.0", **arguments: Any) -> ToolResult:
        call = self.environment.check(ToolCall(id=call_id, name=name, arguments=arguments))
        return await self.environment.act(call, self.budget_status, Stop())


async def test_a_question_is_searched_computed_and_answered_once(tmp_path: Path) -> None:
    world = World(tmp_path, questions={"split": "all", "id": "q-01"})
    await world.environment.open()
    assert "Question: In which year was the town founded" in world.environment.brief
    ship = await world("search", query="Morning Heron captain")
    assert ship.success and "Freya Lund" in ship.text
    assert {"title": "Morning Heron (ship)", "url": "corpus:doc-23"} in ship.fields[
        "search_results"
    ]
    thought = await world("think", text="She was born at Ivers Quay.")
    assert (thought.kind, thought.text) == ("think", "(noted)")
    code = await world("code", code="    x = 1600\n    x + 76")
    assert code.text == "1676", "indentation is mended and a bare last expression shown"
    await world.again()
    answer = await world("answer", text="1676.")
    assert answer.kind == "eval" and answer.fields["overall_score"] == 100.0
    assert answer.fields["finished"] is True
    again = await world("answer", text="1676.")
    assert again.fields == answer.fields, "the same call gives what it gave before"
    late = await world("answer", call_id="4.0", text="1700")
    assert "stands" in late.text
    await world.environment.close(ended=True)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("search", {"query": "zzzzqqq"}, "No results for 'zzzzqqq'"),
        ("search", {}, "needs"),
        ("code", {"code": "1/0"}, "ZeroDivisionError"),
        ("code", {"code": "import socket; socket.create_connection(('1.1.1.1', 53), 1)"}, "Error"),
        ("answer", {"text": ""}, "text"),
        ("open_document", {"id": "doc-1"}, "There is no tool 'open_document'"),
    ],
)
async def test_what_goes_wrong_is_an_observation(
    tmp_path: Path, name: str, arguments: dict[str, str], words: str
) -> None:
    world = World(tmp_path)
    await world.environment.open()
    result = await world(name, **arguments)
    assert words in result.text
    await world.environment.close(ended=True)


async def test_without_a_set_the_answer_ends_the_rollout_unscored(tmp_path: Path) -> None:
    world = World(tmp_path, "ask.toml", budget={"minimum_steps": 4})
    assert not kind("research").scores(world.task)
    await world.environment.open()
    early = await world("answer", text="x")
    assert not early.success and "before step 4" in early.text
    world.budget_status = BudgetStatus(4, 9, 900.0, 0)
    answer = await world("answer", text="an island")
    assert answer.kind == "answer" and answer.fields["finished"] is True
    assert answer.fields["answer"] == "an island"
    await world.environment.close(ended=True)


async def test_a_call_that_was_lost_is_made_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.environment.open()
    call = world.environment.check(ToolCall(id="3.0", name="code", arguments={"code": "6*7"}))
    result = await world.environment.recover(CallIntent(call=call), world.budget_status, Stop())
    assert result.text == "42", "it leaves nothing behind, so it may run again"
    await world.environment.close(ended=True)


async def test_a_rollout_that_lost_its_question_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(HoustonError, match="its question is no longer on the host"):
        await world.environment.open(begun=True)
    await world.environment.close(ended=True)


def test_a_task_that_could_not_run_is_refused(tmp_path: Path) -> None:
    shutil.copytree(PACKAGED, tmp_path / "task")
    file = tmp_path / "task" / "flow.toml"
    text = file.read_text()
    for line, cause in (
        ('tools = ["search"]', "`tools` leaves out 'answer'"),
        ('evaluate.command = "true"', "research runs no evaluator"),
    ):
        file.write_text(f"{line}\n{text}")
        with pytest.raises(ConfigurationError, match=cause):
            kind("research").check(load_task(file))
