"""A full disk: workers wait, reads go on, nothing acked is lost, and it goes on by itself."""

import getpass
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.recorder.disk import disk_space_watch
from houston_daemon.recorder.recorder_handle import RecorderFailed
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
    return reserve.exists() and reserve.stat().st_size == disk_space_watch.BALLAST_BYTES


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
    assert isinstance(person.guide(worker.rollout, "hello"), wire.RequestStored)
    assert until(lambda: not person.ask(wire.AskStatus()).last_error), "nor is anything left of it"
    assert not [event for event in small.heard if isinstance(event, RecorderFailed)]
    assert small.query("SELECT steps FROM rollouts") == [(2,)]
    assert verify_home(small.home).findings == ()


def state(station: Station, rollout: str) -> tuple[str, str]:
    """State and owner of the pause."""
    ((now, by),) = station.query("SELECT state, paused_by FROM rollouts WHERE id = ?", rollout)
    return (now, by)


PERSON = f"person:{getpass.getuser()}"
BEFORE: dict[str, tuple[str, str]] = {
    "worked on": ("running", ""),
    "waits for a worker": ("queued", ""),
    "paused by a person": ("paused", PERSON),
    "paused by its engine": ("paused", "engine"),
}
"""What a rollout is before the disk is full, and again when there is room."""


@pytest.mark.parametrize("name", BEFORE)
def test_a_full_disk_pauses_what_could_go_on_and_lets_it_go_on(
    disk: Path, small: Station, name: str
) -> None:
    before, person = BEFORE[name], small.person()
    (rollout,) = person.start(engine="a")
    if name == "worked on":
        small.worker(rollout)
    elif name == "paused by a person":
        person.ask(wire.Steer(rollout=rollout, action="pause"))
    elif name == "paused by its engine":
        small.recorder.pause_for_engine("a", True, "it does not answer")
    assert state(small, rollout) == before
    filler = fill(disk, leave=4_000_000)
    during = before if before[0] == "paused" else ("paused", "disk")
    assert until(lambda: paused(person) and state(small, rollout) == during)
    if during[1] == "disk":
        ((reason,),) = small.query("SELECT reason FROM rollouts WHERE id = ?", rollout)
        assert "MB free on the disk of the home, 16 MB needed" in reason
        denied = person.ask(wire.Steer(rollout=rollout, action="resume"))
        assert isinstance(denied, wire.Denied)
        assert "resumes when that is over" in denied.cause
    (late,) = person.start(engine="b")
    assert until(lambda: state(small, late) == ("paused", "disk")), "what is started meanwhile"
    filler.unlink()
    assert until(lambda: not paused(person) and state(small, late) == ("queued", ""))
    assert until(lambda: state(small, rollout) == before)
    small.stop()
    assert verify_home(small.home).findings == ()


def test_a_person_s_pause_outlasts_a_full_disk_and_a_dead_worker_keeps_it(
    disk: Path, small: Station
) -> None:
    person, worker = small.person(), small.working()
    mine = small.working()
    filler = fill(disk, leave=4_000_000)
    held = [("paused", "disk")] * 2
    assert until(lambda: [state(small, one.rollout) for one in (worker, mine)] == held)
    small.recorder.worker_ended(worker.rollout, worker.lease, "")
    assert state(small, worker.rollout) == ("paused", "disk"), "no successor before there is room"
    pause = wire.Steer(rollout=mine.rollout, action="pause")
    assert isinstance(person.ask(pause), wire.RequestStored)
    small.restart()
    assert state(small, worker.rollout) == ("paused", "disk")
    filler.unlink()
    assert until(lambda: state(small, worker.rollout) == ("queued", ""))
    assert state(small, mine.rollout)[1].startswith("person:")


@pytest.mark.slow
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
    assert isinstance(
        small.person().guide(worker.rollout, "wait"), wire.RequestStored
    )  # people first
    assert until(lambda: paused(small.person()))
    assert isinstance(again.sample(2), wire.Refused)
    filler.unlink()
    assert until(lambda: whole(reserve))
    assert until(lambda: isinstance(again.sample(2), wire.Ack))
    assert isinstance(again.observation(2), wire.Ack)
    small.stop()
    assert verify_home(small.home).findings == ()


def test_without_ballast_it_is_a_sentence(disk: Path) -> None:
    station = Station(disk / "home").start()
    station.stop()
    (station.home.path / "ballast").unlink(missing_ok=True)
    fill(disk)
    with pytest.raises(HoustonError) as problem:
        Station(station.home.path).start()
    assert "full" in problem.value.cause
    assert problem.value.next
