"""Short games of ScienceWorld: the way that the warm-up's agent knows wins them, in few tokens."""

import argparse
from pathlib import Path

import pytest

from houston_daemon.commands import suite_commands
from houston_daemon.environments.simulation.scienceworld_environment import choose_variation
from houston_daemon.environments.simulation.scienceworld_simulator import ScienceWorld
from houston_daemon.suites.science_games import ScienceWays, science_game
from houston_daemon.suites.suite_catalog import write_suite_task
from houston_shared.task import load_task


def test_the_way_through_a_game_wins_it(tmp_path: Path) -> None:
    ways = ScienceWays()
    for split, index in (("train", 0), ("test", 0)):
        way = ways.way(science_game(split, index))
        task = load_task(write_suite_task("science-games", split, index, tmp_path)).task
        world = ScienceWorld(choose_variation(task.scienceworld, 7))
        assert world.opened().place == "", "the first room is left out"
        seen = [world.do(command) for command in way.solution]
        assert (seen[-1].outcome, seen[-1].score) == ("won", 100.0)
        assert len(way.solution) <= 5
        assert way.others and all("\t" not in thing for thing in way.others)


@pytest.mark.parametrize(("words", "worlds"), [([], 139), (["-n", "20"], 20)])
def test_a_run_counts_no_game_twice(words: list[str], worlds: int) -> None:
    parser = argparse.ArgumentParser()
    suite_commands.add_suite_run_arguments(parser)
    order = suite_commands._order(parser.parse_args(["science-games", *words]), "e")
    assert order.worlds == worlds
    assert len({science_game("test", index) for index in range(worlds)}) == worlds
