"""When the recorder cannot go on it says so, acks nothing more, and leaves what was acked."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.recorder import message_dispatch
from houston_daemon.recorder.recorder_handle import RecorderFailed
from houston_shared import wire
from houston_shared.errors import HoustonError
from tests.support.recorder_client import Station, Worker, until


def test_a_database_that_fails_ends_the_recorder(station: Station) -> None:
    worker = station.working()
    worker.step(1)
    rollout, lease = worker.rollout, worker.lease
    _break_wal()
    late = Worker(station.home, rollout, lease, seconds=1)
    try:
        with pytest.raises(TimeoutError):
            late.step(2)
    finally:
        late.close()
    assert until(lambda: any(isinstance(event, RecorderFailed) for event in station.heard))
    with pytest.raises(HoustonError, match="has failed"):
        station.recorder.runnable()
    station.recorder.stop()


def _break_wal() -> None:
    """From now on every write of this process to the WAL fails, as on a disk that has gone."""
    broken = os.open("/dev/null", os.O_RDONLY)
    for entry in Path("/proc/self/fd").iterdir():
        if entry.is_symlink() and os.readlink(entry).endswith("houston.db-wal"):
            os.dup2(broken, int(entry.name))
    os.close(broken)


def test_a_fault_met_by_one_message_ends_nothing_else(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise KeyError("a fault")

    worker, person = station.working(), station.person()
    monkeypatch.setitem(message_dispatch.HANDLERS, wire.Steer, broken)
    denied = person.ask(wire.Steer(rollout=worker.rollout, action="pause"))
    assert isinstance(denied, wire.Denied)
    assert "KeyError" in denied.cause
    assert isinstance(worker.step(1), wire.Ack)
    assert "KeyError" in person.ask(wire.AskStatus()).last_error
    assert verify_home(station.home).findings == ()


def test_stop_answers_what_is_queued_and_leaves_a_sound_home(station: Station) -> None:
    worker = station.working()
    requests = [
        worker.send(worker.message(wire.Heartbeat, activity=str(number))) for number in range(200)
    ]
    assert isinstance(worker.receive(requests[0]), wire.Ack)
    station.recorder.stop()
    station.recorder.stop()
    for request in requests[1:]:
        assert isinstance(worker.receive(request), wire.Ack)
    wal = station.home.database.with_name("houston.db-wal")
    assert not wal.exists() or wal.stat().st_size == 0
    assert not list(station.home.run.iterdir())
    report = verify_home(station.home)
    assert report.findings == ()
    assert report.vouched == report.events
    with pytest.raises(HoustonError, match="has stopped"):
        station.recorder.runnable()


def test_calls_from_many_threads_are_answered(station: Station) -> None:
    rollouts = station.person().start(8)
    leases: list[int] = []

    def work() -> None:
        leases.extend(station.recorder.assign(rollout).lease for rollout in rollouts)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(leases) == sorted([1, 2, 3, 4, 5, 6] * 8)


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    import sqlite3

    station = Station(tmp_path / "home").start()
    station.stop()
    connection = sqlite3.connect(station.home.database)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = station.home.database.read_bytes()
    with pytest.raises(HoustonError, match="schema 99"):
        Station(station.home.path).start()
    assert station.home.database.read_bytes() == before


def test_a_home_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(HoustonError, match="cannot be prepared"):
        Station(tmp_path / "file" / "home").start()


def test_a_long_home_has_its_sockets_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    station = Station(tmp_path / ("long" * 30)).start()
    assert station.home.run.parent == tmp_path
    assert isinstance(station.person().ask(wire.AskStatus()), wire.Status)
    station.stop()
