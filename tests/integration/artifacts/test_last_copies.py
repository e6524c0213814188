"""A daemon that is stopped has its store brought up to the last event, in bounded time."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.artifacts.test_node_loss import copied, newest, node
from tests.support.s3_server import Line
from tests.support.station import Station

STOP_SECONDS = 20.0
"""A stop is over by then, whatever the store does."""


@pytest.fixture
def station(tmp_path: Path, url: str, line: Line) -> Iterator[Station]:
    """Its copier sleeps for an hour after each round."""
    made = node(tmp_path / "node", url, line)
    made.environment["HOUSTON__ARTIFACTS__EVERY_SECONDS"] = "3600"
    yield made
    made.clear()


def played(station: Station) -> None:
    """A copier that has made a round, then events that it has not."""
    station.start()
    station.until(lambda: copied(station) > 0, why="the first round")
    steps = [{"thought": "", "calls": [{"name": "run_command", "arguments": {"command": "true"}}]}]
    (rollout,) = station.rollout(station.task(sandbox="none"), station.script(steps * 3))
    station.ended(rollout)
    assert copied(station) < newest(station)


def test_a_stop_copies_what_is_left(station: Station) -> None:
    played(station)
    station.run("daemon", "stop")
    assert copied(station) == newest(station)


def test_a_store_that_is_away_holds_no_stop_up(station: Station, line: Line) -> None:
    played(station)
    line.fault = "gone"
    began = time.monotonic()
    station.run("daemon", "stop")
    assert time.monotonic() - began < STOP_SECONDS
    assert copied(station) < newest(station)
    log = (station.home / "logs" / "daemon.log").read_text()
    assert "had not ended after" in log or "artifacts: " in log, "it is said"
    line.fault = ""
    station.start()
    station.until(lambda: copied(station) == newest(station), why="the next start goes on")
