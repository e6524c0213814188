"""The WAL stays small while workers write, and a reader that holds it back is named."""

import sqlite3

from houston_daemon.recorder import maintenance
from houston_shared import wire
from tests.support.recorder_client import Station, sample


def write(station: Station, megabytes: int) -> None:
    """Store about as much, in bodies that lie in their rows."""
    worker = station.working()
    rounds = megabytes * 1_000_000 // 50_000
    for attempt in range(1, rounds + 1):
        ack = worker.sample(1, attempt=attempt, thought=sample(1).thought + "x" * 50_000)
        assert isinstance(ack, wire.Ack)


def wal(station: Station) -> int:
    return station.home.database.with_name("houston.db-wal").stat().st_size


def test_the_wal_is_copied_again_and_again(station: Station) -> None:
    write(station, 60)
    assert wal(station) < 32_000_000, "half of what was written"
    assert station.home.database.stat().st_size > 40_000_000


def test_a_reader_that_never_ends_is_named(station: Station) -> None:
    reader = sqlite3.connect(f"file:{station.home.database}?mode=ro", uri=True)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchone()
    write(station, maintenance.WAL_LIMIT // 1_000_000 + 12)
    status = station.person().ask(wire.AskStatus())
    assert "a reader holds the WAL" in status.last_error
    reader.close()
    write(station, 12)
    assert wal(station) < 40_000_000
    assert "reader" not in station.person().ask(wire.AskStatus()).last_error
