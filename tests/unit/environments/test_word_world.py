"""A world of words: what each action gives, what fails, how it ends, and how a step is undone."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.environments.environment_protocol import (
    BudgetStatus,
    Environment,
    ReplayedEnvironment,
    Stop,
)
from houston_daemon.environments.environment_registry import make_environment
from houston_daemon.environments.journal_world import JournalWorld
from houston_daemon.service.rollout_start_checks import check_task_names
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.records import CallIntent, RolloutSpec, TaskRecord, ToolCall, ToolResult
from houston_shared.task import Task, load_task
from houston_shared.task_tables import WordWorldSettings

RECORD = TaskRecord(name="t", folder="/nowhere", definition="", instructions="")
SPEC = RolloutSpec(
    rollout="r", task=RECORD, engine="x", engine_settings={}, host_root="/nowhere/houston"
)
WORLD = WordWorldSettings(right="red", codes={"red": "123", "blue": "456"})
STEPS = itertools.count(1)
GOES_ON = BudgetStatus(3, 5, 100.0, 0)
SPENT = BudgetStatus(8, 0, 100.0, 0)


@pytest.fixture
def world() -> Environment:
    return make_environment(SPEC, Task(name="t", environment="word_world", word_world=WORLD))


async def act(
    world: Environment, name: str, budget_status: BudgetStatus = GOES_ON, **arguments: Any
) -> ToolResult:
    call = ToolCall(id=f"{next(STEPS)}.0", name=name, arguments=arguments)
    return await world.act(call, budget_status, Stop())


async def test_the_way_through(world: Environment) -> None:
    assert (await act(world, "look")).text == "red blue open nothing"
    assert (await act(world, "open", box="red")).text == "red open"
    assert (await act(world, "look")).text == "red blue open red"
    assert (await act(world, "read")).text == "paper says 1 2 3"
    over = await act(world, "enter", code="1 2 3")
    assert (over.text, over.kind, over.success) == ("right", "eval", True)
    assert over.fields["overall_score"] == 100.0 and over.fields["finished"]


async def test_of_several_items_each_is_a_part_of_the_score() -> None:
    codes = {"red": "123", "blue": "456", "pink": "789"}
    wanted = {"coin": "red", "map": "pink"}
    world = make_environment(
        SPEC,
        Task(
            name="t",
            environment="word_world",
            word_world=WordWorldSettings(codes=codes, wanted=wanted),
        ),
    )
    first = await act(world, "enter", code="789")
    assert (first.text, first.kind, first.success) == ("right", "enter", True)
    assert "overall_score" not in first.fields, "no submission is used yet"
    last = await act(world, "enter", code="7 8 9")
    assert (last.text, last.kind) == ("wrong", "eval"), "it was found already"
    assert last.fields["overall_score"] == 50.0 and last.fields["finished"]
    assert list(last.fields["found"]) == ["map"] and list(last.fields["missed"]) == ["coin"]
    assert not (await act(world, "look")).success, "the world is over"


async def test_a_wrong_box_has_a_paper_of_its_own_and_nothing_says_so(world: Environment) -> None:
    assert (await act(world, "open", box="blue")).success
    assert (await act(world, "read")).text == "paper says 4 5 6"
    over = await act(world, "enter", code="456")
    assert (over.text, over.fields["overall_score"]) == ("wrong", 0.0)
    assert over.fields["finished"] and over.success, "it is the end, and no failed call"


FAILING = [
    ("search", {"words": "coin"}, "Error: unknown words"),
    ("read", {"words": "box"}, "Error: unknown words"),
    ("open", {}, "Error: unknown words"),
    ("open", {"box": "coin"}, "Error: unknown box"),
    ("read", {}, "Error: nothing open"),
    ("enter", {"code": "1 2"}, "Error: unknown words"),
    ("enter", {"code": "coin"}, "Error: unknown words"),
    ("eval", {}, "Error: unknown words"),
]


@pytest.mark.parametrize(("name", "arguments", "text"), FAILING)
async def test_what_is_not_understood_fails_and_changes_nothing(
    world: Environment, name: str, arguments: dict[str, Any], text: str
) -> None:
    result = await act(world, name, **arguments)
    assert (result.success, result.kind, result.text) == (False, "error", text)
    assert (await act(world, "look")).text == "red blue open nothing"


async def test_a_spent_budget_is_scored_as_it_stands(world: Environment) -> None:
    await act(world, "open", box="red")
    score = await act(world, "eval", SPENT)
    assert (score.kind, score.fields["overall_score"]) == ("eval", 0.0)


async def test_nothing_can_be_done_in_a_world_that_is_over(world: Environment) -> None:
    await act(world, "enter", code="123")
    after = await act(world, "open", box="red")
    assert (after.success, after.text) == (False, "Error: the world is over")


async def test_told_its_results_again_it_stands_where_it_stood(world: Environment) -> None:
    assert isinstance(world, ReplayedEnvironment)
    results = [
        await act(world, "open", box="blue"),
        await act(world, "search", words="coin"),
        await act(world, "open", box="red"),
    ]
    again = make_environment(SPEC, Task(name="t", environment="word_world", word_world=WORLD))
    assert isinstance(again, ReplayedEnvironment)
    again.replay(results)
    assert (await act(again, "read")).text == "paper says 1 2 3"
    again.replay(results[:2])
    assert (await act(again, "look")).text == "red blue open blue", "the last step is undone"
    again.replay([])
    assert (await act(again, "read")).text == "Error: nothing open"


def kept(folder: Path) -> JournalWorld[Any]:
    """A world of a rollout whose host is `folder`, as each of its workers makes it."""
    spec = RolloutSpec(
        rollout="r", task=RECORD, engine="x", engine_settings={}, host_root=str(folder)
    )
    made = make_environment(spec, Task(name="t", environment="word_world", word_world=WORLD))
    assert isinstance(made, JournalWorld)
    return made


async def test_a_saved_state_comes_back_through_a_kill(tmp_path: Path) -> None:
    world = kept(tmp_path)
    await world.open()
    opened = await act(world, "open", box="red")
    assert not list(tmp_path.rglob("*")), "nothing is written but for purified steps"
    await world.save_state("before")
    await act(world, "open", box="blue")
    again = kept(tmp_path)
    await again.open(begun=True)
    again.replay([opened])
    assert (await act(again, "look")).text == "red blue open blue", "ahead of the journal"
    await again.restore_state("before")
    assert (await act(again, "look")).text == "red blue open red"
    with pytest.raises(HoustonError, match="No state 'never'"):
        await again.restore_state("never")


async def test_a_broken_off_call_is_made_once(tmp_path: Path) -> None:
    world = kept(tmp_path)
    await world.open()
    await world.save_state("before")
    over = await act(world, "enter", code="123")
    again = kept(tmp_path)
    await again.open(begun=True)
    call = over.call
    assert (await again.recover(CallIntent(call=call), GOES_ON, Stop())).fields == over.fields


async def test_a_call_that_a_person_forestalled_was_not_made(world: Environment) -> None:
    assert isinstance(world, ReplayedEnvironment)
    call = ToolCall(id="1.0", name="open", arguments={"box": "red"})
    world.replay([ToolResult(call=call, kind="interrupted", success=True, text="not run")])
    assert (await act(world, "look")).text == "red blue open nothing"


async def test_a_call_under_way_at_a_restart_is_made(world: Environment) -> None:
    call = ToolCall(id="1.0", name="open", arguments={"box": "red"})
    result = await world.recover(CallIntent(call=call), GOES_ON, Stop())
    assert result.text == "red open"


@pytest.mark.parametrize(
    ("world", "says"),
    [
        ("", "`word_world.right`"),
        ('[word_world]\nright = "red"\n[word_world.codes]\nblue = "123"', "not one of its boxes"),
        ('[word_world]\nright = "red"\n[word_world.codes]\nred = "12"', "codes"),
        (
            '[word_world.wanted]\ncoin = "red"\n[word_world.codes]\nblue = "123"',
            "`word_world.wanted` names an item's box that is not",
        ),
        (
            '[word_world]\nright = "red"\n[word_world.wanted]\ncoin = "red"\n'
            '[word_world.codes]\nred = "123"',
            "is set together with `right`",
        ),
    ],
)
def test_a_task_without_a_world_is_refused(tmp_path: Path, world: str, says: str) -> None:
    file = tmp_path / "task.toml"
    file.write_text(f'name = "t"\ninstructions = "x"\nenvironment = "word_world"\n{world}\n')
    with pytest.raises(ConfigurationError, match=says):
        check_task_names(load_task(file))
