"""The scripted agents of a warm-up: solutions solve, faults do not, traces fit the steps."""

import argparse
import json
import random
from pathlib import Path

import pytest

from houston_daemon.commands.warm_up_commands import (
    add_policy_warm_arguments,
    recipe_from_arguments,
)
from houston_daemon.environments.environment_protocol import BudgetStatus, Stop
from houston_daemon.environments.environment_registry import make_environment
from houston_daemon.suites.imperfect_agents import (
    AgentHabits,
    Calls,
    drawn_calls,
    file_choices,
    python_choices,
    text_choices,
)
from houston_daemon.suites.python_problems import python_problem
from houston_daemon.suites.science_games import GAMES, science_game
from houston_daemon.suites.suite_catalog import SPLITS, write_suite_task
from houston_shared.records import RolloutSpec, ToolCall
from houston_shared.task import load_task
from houston_shared.terminal_log_files import rollout_folder

GOES_ON = BudgetStatus(1, 7, 100.0, 0)


async def score(folder: Path, index: int, calls: Calls) -> tuple[float, list[bool]]:
    loaded = load_task(write_suite_task("small-workstation", "train", index, folder))
    spec = RolloutSpec(rollout="r", task=loaded.record(), engine="x", engine_settings={})
    world = make_environment(spec, loaded.task)
    results = [
        await world.act(ToolCall(id=f"{step}.0", **call), GOES_ON, Stop())
        for step, call in enumerate(calls, 1)
    ]
    last = results[-1].fields.get("overall_score", 0.0)
    return float(last), [result.success for result in results]


async def test_faults_on_files_end_unsolved_without_an_error(tmp_path: Path) -> None:
    for index in range(24):
        choices = file_choices("train", index)
        assert await score(tmp_path, index, choices.solution) == (
            100.0,
            [True] * len(choices.solution),
        )
        for fault in choices.faults:
            assert await score(tmp_path, index, fault) == (0.0, [True] * len(fault)), fault
        for mistake in choices.mistakes:
            assert not (await score(tmp_path, index, [mistake]))[1][0], mistake


def test_faults_on_problems_answer_something_else() -> None:
    for index in range(40):
        right = python_problem("train", index).answer
        choices = python_choices("train", index)
        assert choices.solution[-1]["arguments"]["answer"] == right
        assert len(choices.faults) >= 3
        assert all(fault[-1]["arguments"]["answer"] != right for fault in choices.faults)
        for broken in choices.mistakes:
            with pytest.raises((SyntaxError, NameError)):
                exec(broken["arguments"]["code"], {})  # noqa: S102 it is ours


def test_faults_in_games_stop_before_the_coin(tmp_path: Path) -> None:
    task = load_task(write_suite_task("text-games", "train", 1, tmp_path)).record()
    spec = RolloutSpec(
        rollout="r", task=task, engine="x", engine_settings={}, host_root=str(tmp_path)
    )
    folder = rollout_folder(tmp_path, "r") / "textworld"
    folder.mkdir(parents=True)
    way = ["go east", "take coin"]
    (folder / "game.json").write_text(json.dumps({"metadata": {"walkthrough": way}}))
    choices = text_choices("train", 1, spec)
    assert [call["arguments"]["action"] for call in choices.solution] == way
    assert [len(fault) for fault in choices.faults] == [1, 2]
    assert all(fault[-1]["name"] == "finish" for fault in choices.faults)


def test_traces_keep_to_their_steps_and_habits() -> None:
    choices = file_choices("train", 2)
    source = random.Random(1)
    perfect = drawn_calls(choices, source, AgentHabits(wrong=0, errors=0), 8)
    assert perfect == choices.solution
    drawn = [drawn_calls(choices, source, AgentHabits(0.8, 0.5), 8) for _ in range(200)]
    assert max(map(len, drawn)) <= 8
    solved = [trace for trace in drawn if trace[-2:] == choices.solution[-2:]]
    assert 20 <= len(solved) <= 60
    assert any(call in choices.mistakes for trace in drawn for call in trace)


def test_no_game_of_science_is_in_two_splits() -> None:
    games = [{science_game(split, index) for index in range(274)} for split in SPLITS]
    assert [len(each) for each in games] == [274, 137, 139]
    assert {game.task for each in games for game in each} == set(GAMES)
    for some, others in ((0, 1), (0, 2), (1, 2)):
        assert not games[some] & games[others]
    again = science_game("test", 139)
    assert again == science_game("test", 0), "behind the last one the first comes again"


@pytest.mark.parametrize(
    ("words", "wrong", "at_once"),
    [
        ("--suite small-workstation", 0.5, 16),
        ("--suite python-problems", 0.8, 16),
        ("--suite python-problems --wrong 0 --concurrency 2", 0.0, 2),
        ("--suite science-games", 0.5, 4),
        ("--suite text-games", 0.8, 4),
    ],
)
def test_a_warm_up_is_as_its_suite_needs_it(words: str, wrong: float, at_once: int) -> None:
    parser = argparse.ArgumentParser()
    add_policy_warm_arguments(parser)
    recipe = recipe_from_arguments(
        parser.parse_args([*words.split(), "--out", "warm"]), Path("model")
    )
    assert (recipe.habits.wrong, recipe.at_once) == (wrong, at_once)
