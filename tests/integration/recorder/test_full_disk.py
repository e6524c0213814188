"""A full disk: workers wait, reads go on, nothing acked is lost, and it goes on by itself."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.recorder.disk import ballast
from houston_daemon.recorder.protocol import RecorderFailed
from houston_daemon.recorder.upkeep.verify import verify
from houston_shared import wire
from houston_shared.errors import HoustonError
from tests.support.recorder_client import Person, Station, until
from tests.support.small_disk import fill, mounted

MEGABYTES = 64


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with mounted(folder, MEGABYTES):
        yield folder


@pytest.fixture
def small(disk: Path) -> Iterator[Station]:
    made = Station(disk / "home").start()
    yield made
    made.stop()


def whole(reserve: Path) -> bool:
    return reserve.exists() and reserve.stat().st_size == ballast.BYTES


def paused(person: Person) -> bool:
    """Whether the status says that rollouts wait."""
    return bool(person.ask(wire.AskStatus()).last_error.startswith("DISK FULL: rollouts paused"))


def test_workers_wait_and_go_on_when_there_is_room(disk: Path, small: Station) -> None:
    worker, person = small.working(), small.person()
    worker.step(1)
    filler = fill(disk)
    assert until(lambda: paused(person))
    small_one = worker.sample(2)
    assert isinstance(small_one, wire.Refused)
    assert small_one.code == "DISK_FULL"
    page = worker.say(wire.ReadSteps, step=1)  # reads go on
    assert page.steps[0].step == 1
    # The WAL's own blocks still take some.
    said = (person.guide(worker.rollout, "hello " * 3_000) for _ in range(100))
    denied = next(one for one in said if isinstance(one, wire.Denied))
    assert "full" in denied.cause
    large = worker.sample(2, thought="large " * 100_000 + os.urandom(80_000).hex())
    assert isinstance(large, wire.Refused)
    assert large.code == "DISK_FULL"
    filler.unlink()
    assert until(lambda: isinstance(worker.sample(2), wire.Ack))
    assert isinstance(worker.observation(2), wire.Ack)
    assert isinstance(person.guide(worker.rollout, "hello"), wire.Done)
    assert until(lambda: not person.ask(wire.AskStatus()).last_error), "nor is anything left of it"
    assert not [event for event in small.heard if isinstance(event, RecorderFailed)]
    assert small.query("SELECT steps FROM rollouts") == [(2,)]
    assert verify(small.home).findings == ()


def test_a_home_opens_on_a_full_disk_by_its_ballast(disk: Path, small: Station) -> None:
    worker = small.working()
    worker.step(1)
    reserve = small.home.path / "ballast"
    assert until(lambda: whole(reserve))
    filler = fill(disk)
    small.stop()
    small.home.database.with_name("houston.db-shm").unlink(missing_ok=True)
    fill(disk)
    small.restart()
    assert not reserve.exists()
    again = small.worker(worker.rollout)
    assert isinstance(small.person().guide(worker.rollout, "wait"), wire.Done)  # people first
    assert until(lambda: paused(small.person()))
    assert isinstance(again.sample(2), wire.Refused)
    filler.unlink()
    assert until(lambda: whole(reserve))
    assert until(lambda: isinstance(again.sample(2), wire.Ack))
    assert isinstance(again.observation(2), wire.Ack)
    small.stop()
    assert verify(small.home).findings == ()


def test_without_ballast_it_is_a_sentence(disk: Path) -> None:
    station = Station(disk / "home").start()
    station.stop()
    (station.home.path / "ballast").unlink(missing_ok=True)
    fill(disk)
    with pytest.raises(HoustonError) as problem:
        Station(station.home.path).start()
    assert "full" in problem.value.cause
    assert problem.value.next
