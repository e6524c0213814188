"""`houston rollout start` in simulated worlds: winning sequences score 100, also through a kill."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.environments.simulation.scienceworld_environment import choose_variation
from houston_shared.task_tables import ScienceWorldSettings
from tests.integration.simulation.worlds import processes_of
from tests.support.gold_sequences import Gold, script
from tests.support.station import Station

PACKAGED = Path(__file__).parents[3] / "daemon" / "houston_daemon" / "demo" / "tasks"
SEEDS = {"find-non-living-thing": 12, "power-component": 7, "lifespan-longest-lived": 20}
"""Seeds of the packaged suite; a kill comes in the middle of `power-component`."""
SCORES = "SELECT best_score, last_score, evaluations FROM rollouts WHERE id = ?"


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path)
    yield made
    made.clear()


@pytest.mark.slow
def test_gold_sequences_score_100_through_a_kill(station: Station) -> None:
    station.start()
    gold, rollouts = Gold(), {}
    for task, seed in SEEDS.items():
        world = choose_variation(ScienceWorldSettings(), seed)
        assert world["task"] == task
        steps = script(gold.sequence(task, world["variation"]), delay=0.15)
        rollouts[task] = start(station, "scienceworld/task.toml", seed, station.script(steps, task))
    idle = start(station, "textworld/test.toml", 5, station.script(script(["look"] * 3), "idle"))
    killed = rollouts["power-component"]
    station.until(lambda: station.closed(killed) >= 3, why="three steps")
    station.kill_daemon()
    station.until(lambda: not processes_of(killed), 60, "simulator and Java end with the worker")
    station.start()
    for task, rollout in rollouts.items():
        record = station.ended(rollout)
        assert record["state"] == "finished", record
        assert station.query(SCORES, rollout) == [(100.0, 100.0, 1)], task
    steps_of = station.steps(killed)
    assert not any("score" in step["observation"].rpartition("[")[2] for step in steps_of)
    (head,) = station.json("context", killed, "1")
    assert "Your task is to turn on the" in head["rendered"], "the world says what it is about"
    (row,) = [one for one in station.json("rollout", "list") if one["rollout"] == killed]
    assert row["best_score"] == 100.0
    station.ended(idle)
    assert station.query(SCORES, idle) == [(0.0, 0.0, 1)], "what was not won is scored as it stands"
    branches = [branched(station, rollouts["find-non-living-thing"], 3), branched(station, idle, 2)]
    for branch, score in zip(branches, (100.0, 0.0), strict=True):
        record = station.ended(branch)
        assert record["state"] == "finished", record
        assert station.query(SCORES, branch) == [(score, score, 1)], "in the world as it was"
    assert not any(map(processes_of, [*rollouts.values(), idle, *branches]))
    station.run("verify")


def start(station: Station, task: str, seed: int, engine: str) -> str:
    words = ("rollout", "start", str(PACKAGED / task), "--seed", str(seed), "--engine", engine)
    (row,) = station.json(*words)
    return str(row["rollout"])


def branched(station: Station, rollout: str, step: int) -> str:
    """A sibling that goes on from there with what the script says next."""
    (row,) = station.json("rollout", "branch", rollout, "--at", str(step))
    return str(row["rollout"])
