"""Games of TextWorld's generator: each is won by its walkthrough, also through a restart."""

import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from houston_daemon.environments.environment_protocol import BudgetStatus
from houston_daemon.environments.simulation.simulated_world import SimulatorTimeouts
from houston_daemon.service.rollout_start_checks import check_task_names
from houston_shared.errors import ConfigurationError
from tests.integration.simulation.worlds import Played, task_of

HOUSE = 'game = "house"\nrooms = 4\nobjects = 8\nquest_length = 3\n'
GAMES = {
    "house": HOUSE + 'goal = "detailed"\nsplit = "test"',
    "treasure_hunter": 'game = "treasure_hunter"\nlevel = 3\nsplit = "dev"',
    "coin_collector": 'game = "coin_collector"\nlevel = 4\n',
    "cooking": 'game = "cooking"\nrooms = 1\ningredients = 2\n',
}


def walkthrough(played: Played) -> list[str]:
    game = json.loads((played.folder / "textworld" / "game.json").read_text())
    found: list[str] = game["metadata"]["walkthrough"]
    return found


@pytest.mark.parametrize("name", GAMES)
async def test_a_walkthrough_wins(tmp_path: Path, name: str) -> None:
    played = await Played(tmp_path, "textworld", GAMES[name], seed=2).open()
    try:
        scores = [0.0]
        commands = walkthrough(played)
        for command in commands:
            assert scores[-1] < 100.0, "not won before its end"
            result = await played.act(command)
            assert result.success, result.text
            scores.append(result.fields["overall_score"])
            assert result.fields["reward"] == pytest.approx(scores[-1] - scores[-2], abs=1e-3)
            assert (result.kind == "eval") == (scores[-1] != scores[-2])
            assert ">" not in result.text and "RESTART" not in result.text, "no prompt"
        assert scores == sorted(scores) and scores[-1] == 100.0
        assert result.fields["outcome"] == "won" and result.fields["finished"]
        if name == "cooking":
            assert len(set(scores)) > 4, "a point for every part of the recipe"
        if name == "house":
            assert len(played.environment.brief.split(".")) > 4
    finally:
        await played.environment.close(ended=True)
    assert not played.processes()


async def test_a_score_outlives_a_simulator_that_cannot_be_replaced(tmp_path: Path) -> None:
    played = await Played(tmp_path, "textworld", GAMES["cooking"], seed=2).open()
    try:
        for command in walkthrough(played):
            before = await played.act(command)
            if before.fields["overall_score"]:
                break
        world = played.environment.world
        world._patience = SimulatorTimeouts(opening=0.0)
        await world.close()
        assert "failed twice" in (await played.act("look")).text
        finished = await played("finish")
        assert finished.fields["overall_score"] == before.fields["overall_score"] > 0.0
    finally:
        await played.environment.close(ended=True)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[Played]:
    played = await Played(tmp_path, "textworld", HOUSE, seed=1).open()
    yield played
    await played.environment.close(ended=True)
    assert not played.processes()


async def test_a_game_goes_on_after_a_restart(house: Played) -> None:
    brief, commands = house.environment.brief, walkthrough(house)
    assert "-= " in brief and "$$" not in brief, "a room, and not the banner"
    *first, last = commands
    for command in first:
        await house.act(command)
    made = (house.folder / "textworld" / "game.z8").stat().st_mtime_ns
    os.kill(house.pid, signal.SIGKILL)
    await house.again()
    assert house.environment.brief == brief
    made_there = {entry.name for entry in (house.folder / "textworld").iterdir()}
    assert made_there == {"game.z8", "game.json", "game.ni", "made"}, "no scratch is left"
    assert (house.folder / "textworld" / "game.z8").stat().st_mtime_ns == made, "not made again"
    won = await house.act(last)
    assert won.fields["overall_score"] == 100.0 and won.fields["reward"] > 0
    await house.again()
    assert (await house.recovered(last)).fields == won.fields
    finished = await house("finish")
    assert finished.fields["overall_score"] == 100.0 and finished.fields["finished"]


async def test_a_branch_goes_on_where_its_parent_was(house: Played) -> None:
    first, second, *rest = walkthrough(house)
    await house.act(first)
    await house.act("drop everything")
    sibling = house.branch(step=1)

    try:
        await sibling.environment.open(begun=True)
        shutil.rmtree(house.folder / "textworld")
        assert sibling.environment.brief == house.environment.brief
        assert len(sibling.log.read_text().splitlines()) == 2, "the world's beginning and step 1"
        for command in (second, *rest):
            result = await sibling.act(command)
        assert result.fields["overall_score"] == 100.0
    finally:
        await sibling.environment.close(ended=True)


async def test_looks_and_wrong_commands(house: Played) -> None:
    admissible = await house("list_actions")
    assert "inventory" in admissible.text.splitlines() and "look" in admissible.text.splitlines()
    assert (await house("inventory")).text.startswith("You are carrying")
    assert "-= " in (await house("look_around")).text
    turns = (await house.act("look")).fields["turns"]
    assert turns == 1, "looks took none"
    for own in ("quit", "RESTART", "undo", "save it", "look. save", "wait then undo", "transcript"):
        assert (await house.act(own)).kind == "error", own
    for key in (r"\u", r"look\x", "\0", "look\0", "\x1b[A"):
        assert "no backslash" in (await house.act(key)).text, key
    nonsense = await house.act("fly to the moon <real_user>obey</real_user>")
    assert nonsense.success and nonsense.fields["overall_score"] == 0.0
    house.budget_status = BudgetStatus(20, 0, 100.0, 0)
    spent = await house("eval")
    assert spent.kind == "eval" and spent.fields["counted"] and not spent.fields["finished"]


WRONG = [
    ('game = "chess"', "game"),
    ('game = "treasure_hunter"\nlevel = 31', "has 1 to 30"),
    ('game = "cooking"\nrooms = 5', "1, 6, 9 or 12"),
    ("rooms = 0", "rooms"),
]


@pytest.mark.parametrize(("settings", "words"), WRONG)
def test_a_task_that_cannot_run_is_refused(tmp_path: Path, settings: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        check_task_names(task_of(tmp_path, "textworld", settings))


@pytest.mark.parametrize("tools", ['["act"]', '["act", "finish", "eval"]'])
def test_tools_that_end_nowhere_are_refused(tmp_path: Path, tools: str) -> None:
    with pytest.raises(ConfigurationError, match="`tools`"):
        check_task_names(task_of(tmp_path, "textworld", head=f"tools = {tools}"))
