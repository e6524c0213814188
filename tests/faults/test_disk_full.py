"""The home's disk has no byte left: rollouts wait and say so, everything that only reads works.

A small file system of its own holds the home; commands are the real ones. What the recorder does
alone on a full disk is in `tests/integration/recorder/test_full_disk.py`.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.small_disk import fill, mounted
from tests.support.station import Station

STEPS = 60
READING = (
    ("rollout", "list"),
    ("rollout", "show", "{rollout}"),
    ("steps", "{rollout}"),
    ("context", "{rollout}", "1"),
    ("guidance", "{rollout}"),
    ("tail", "{rollout}", "-n", "3"),
    ("search", "word"),
    ("daemon", "status"),
    ("verify",),
)


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    """A station whose home, and nothing else, lies on a file system of 64 MB."""
    made = Station(tmp_path)
    made.home.mkdir()
    with mounted(made.home, 64):
        yield made
        made.clear()


def working(station: Station) -> str:
    """A rollout that closes a step every tenth of a second, with a few closed."""
    steps = [
        {"thought": f"word {n}", "calls": [{"name": "think", "arguments": {"thought": "hm"}}]}
        | {"delay": 0.1}
        for n in range(STEPS)
    ]
    task = station.task(sandbox="none", budget=f"steps = {STEPS + 10}")
    (rollout,) = station.rollout(task, station.script(steps))
    station.until(lambda: station.closed(rollout) > 3, why="it works")
    return rollout


def trouble(station: Station) -> str:
    (status,) = station.json("daemon", "status")
    return str(status["last_error"])


def listed(station: Station) -> list[tuple[str, str]]:
    """State and owner of the pause of every rollout, as a command shows them."""
    return [(one["state"], one["paused_by"]) for one in station.json("rollout", "list")]


def waits(station: Station) -> None:
    """Wait until rollouts are held back, and see that they are."""
    station.until(lambda: "DISK FULL: rollouts paused" in trouble(station), why="the disk is full")
    assert "MB free, need 16 MB" in trouble(station)
    station.until(lambda: listed(station) == [("paused", "disk")], why="it is paused")
    (before,) = station.query("SELECT max(seq) FROM events")
    time.sleep(1)
    assert station.query("SELECT max(seq) FROM events") == [before]


@pytest.mark.timeout(200)
def test_rollouts_wait_everything_reads_and_it_goes_on_by_itself(station: Station) -> None:
    station.start()
    began = time.monotonic()
    rollout = working(station)
    station.until(lambda: (station.home / "ballast").exists(), why="there is ballast")
    filler = fill(station.home)
    waits(station)
    for words in (("rollout", "list"), ("rollout", "show", rollout)):
        shown = station.run(*words).stdout
        assert re.search(r"paused by disk \(\d+ MB free on the disk of the home", shown), shown
    full = time.monotonic()
    for words in READING:
        station.run(*(word.format(rollout=rollout) for word in words))
    said = station.run("guide", rollout, "Are you there?", code=None)
    assert said.returncode == 0 or "full" in said.stderr
    kept = [one["text"] for one in station.json("guidance", rollout)]
    assert (said.returncode == 0) == ("Are you there?" in kept), "what was refused is not kept"
    waited = time.monotonic() - full
    filler.unlink()
    closed = station.steps(rollout)[-1]["step"]
    station.until(lambda: station.closed(rollout) > closed, 60, "it goes on")
    assert "DISK FULL" not in trouble(station)
    station.run("guide", rollout, "There is room again.")
    active = station.ended(rollout)["active_seconds"]
    assert active <= time.monotonic() - began - waited, "waiting for room is no active time"
    heard = [one["text"] for step in station.steps(rollout) for one in step["guidance"]]
    assert heard == [*kept, "There is room again."]
    station.run("verify")


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_the_daemon_starts_again_on_a_full_disk(station: Station, end: str) -> None:
    station.start()
    rollout = working(station)
    station.until(lambda: (station.home / "ballast").exists(), why="there is ballast")
    filler = fill(station.home)
    waits(station)
    closed = station.closed(rollout)
    if end == "stopped":
        station.stop()
    else:
        station.kill_daemon()
    fill(station.home)
    assert station.closed(rollout) >= closed, "readers need no daemon and no room"
    station.start()
    waits(station)
    station.run("rollout", "list")
    filler.unlink()
    station.until(lambda: station.closed(rollout) > closed + 2, 60, "it goes on")
    station.run("verify")
