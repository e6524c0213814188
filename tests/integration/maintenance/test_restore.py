"""A backup restored where nothing but the home is: rollouts wait for a person, and none fails."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.station import Station

STEP = {"thought": "Look.", "calls": [{"name": "run_command", "arguments": {"command": "true"}}]}


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path)
    yield made
    made.clear()


@pytest.mark.slow
def test_a_home_restored_on_another_machine_waits_for_its_workspaces(
    station: Station, tmp_path: Path
) -> None:
    engine = station.script([{**STEP, "delay": 0.05}] * 600)
    station.start()
    task = station.task(sandbox="none")
    (begun,) = station.rollout(task, engine)
    station.until(lambda: station.show(begun)["steps"] >= 2)
    station.run("rollout", "pause", begun, "--wait")
    (waiting,) = station.rollout(task, engine)
    station.run("rollout", "resume", begun)
    (made,) = station.json("backup")
    station.run("rollout", "cancel", begun, "--wait")
    station.run("rollout", "cancel", waiting, "--wait")
    station.stop()
    away = tmp_path / "the machine before"
    for place in (station.home, station.host_root):
        place.rename(away.with_name(f"{away.name} {place.name}"))

    other = Station(tmp_path / "other")
    other.folder.mkdir()
    other.environment["HOUSTON__HOSTS__ROOT"] = str(other.host_root)
    backups = tmp_path / f"{away.name} home" / "backups"
    other.run("backup", "--restore", str(backups / made["name"]))
    own = station.host_root / "rollouts" / begun
    said = other.show(begun)
    assert (said["state"], said["paused_by"]) == ("paused", "restore")
    assert f"copy {own} from the old machine, then houston rollout resume {begun}" in said["reason"]
    try:
        other.start()
        other.run("rollout", "resume", begun)
        held = other.until(lambda: _by_host(other, begun), 60, "it waits")
        assert f"The workspace {own}/workspace is gone" in held["reason"]
        assert f"houston rollout resume {begun}" in held["reason"]
        assert not station.host_root.exists(), "nothing was made in its place"
        (tmp_path / f"{away.name} host").rename(station.host_root)
        other.run("rollout", "resume", begun)
        other.until(lambda: other.show(begun)["steps"] > said["steps"], why="it goes on")
        states = other.query("SELECT state FROM rollouts WHERE state = 'failed'")
        assert states == []
    finally:
        other.clear()


def _by_host(station: Station, rollout: str) -> dict[str, object] | None:
    row = station.show(rollout)
    return row if row["paused_by"] == "host" else None
