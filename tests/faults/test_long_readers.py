"""A read transaction that never ends: the WAL stays under 64 MiB, whoever holds it is named."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.recorder.disk import wal_checkpoints
from houston_shared import wire
from houston_shared.store import store_reader
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.journal_events import RunSql
from houston_shared.store.store_reader import Reader, ReadFailed
from tests.support.recorder_client import Person, Station, Worker, until
from tests.support.tiers import sampled

LIMIT = 64 * 1024 * 1024
READER = """
import sqlite3, sys, time
reader = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True, isolation_level=None)
reader.execute("BEGIN")
reader.execute("SELECT count(*) FROM events").fetchone()
print("reads", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path / "home").start()
    yield made
    made.stop()


class Holder:
    """A process of its own in a read transaction; `words` stand in its command line."""

    def __init__(self, database: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", READER, str(database), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout
        assert self.process.stdout.readline() == b"reads\n"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Writer:
    """Writes bodies of 50 KB until it is held back, and watches the file."""

    def __init__(self, station: Station) -> None:
        self._wal = station.home.database.with_name("houston.db-wal")
        self._worker: Worker = station.working()
        self.stored = 0
        self.largest = 0

    def write(self, most: int = 4_000) -> bool:
        """Whether it was held back."""
        for _ in range(most):
            said = self._worker.sample(1, attempt=self.stored + 1, thought="x" * 50_000)
            self.largest = max(self.largest, self._wal.stat().st_size)
            if isinstance(said, wire.Refused):
                assert said.code == "DISK_FULL", "workers know that it is worth trying again"
                assert "WAL FULL" in said.reason
                return True
            self.stored += 1
        return False


def trouble(person: Person) -> str:
    return str(person.ask(wire.AskStatus()).last_error)


def test_a_foreign_reader_is_named_and_writers_wait_for_it(station: Station) -> None:
    person, writer = station.person(), Writer(station)
    holder = Holder(station.home.database, "a-tool-of-somebody")
    try:
        assert writer.write()
        said = trouble(person)
        assert "WAL FULL: rollouts paused" in said
        assert f"pid {holder.process.pid} (" in said
        assert writer.write(1), "it stays so"
        assert isinstance(person.start(1)[0], str), "people are not held back"
    finally:
        holder.end()
    assert until(lambda: not trouble(person))
    assert not writer.write(400), "it goes on by itself"
    assert writer.largest < LIMIT
    assert len(station.query("SELECT seq FROM events WHERE kind = 'sample'")) == writer.stored
    station.stop()
    assert verify_home(station.home).findings == ()


ENDED = {
    ("running", "houston_shared.command"): "END_OWN_READER_SECONDS",
    ("stopped", "houston_shared.command"): "END_OWN_READER_SECONDS",
    ("running", "a-tool-of-somebody"): "END_FOREIGN_READER_SECONDS",
}


@pytest.mark.parametrize("case", sampled(ENDED, 1))
def test_what_is_in_the_way_and_may_be_ended_is_ended(
    station: Station, case: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, program = case
    monkeypatch.setattr(wal_checkpoints, ENDED[case], 0.5)
    writer = Writer(station)
    holder = Holder(station.home.database, program)
    try:
        if state == "stopped":
            os.kill(holder.process.pid, signal.SIGSTOP)
        assert writer.write()
        assert until(lambda: not writer.write(1))
        ended = -signal.SIGTERM if state == "running" else -signal.SIGKILL
        assert holder.process.wait(20) == ended
    finally:
        holder.end()
    assert writer.largest < LIMIT


def long_plan(database: Path) -> Generator[RunSql, Any, None]:
    """Reads on and on, a little at a time."""
    while True:
        yield RunSql("SELECT count(*) FROM events")
        time.sleep(0.05)


HEAVY = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def heavy_plan(database: Path) -> Generator[RunSql, Any, None]:
    """One statement that never ends."""
    yield RunSql(HEAVY)


@pytest.fixture
def swollen(station: Station) -> Iterator[Station]:
    """A home whose WAL a reader has made longer than it is by itself."""
    writer = Writer(station)
    reader = sqlite3.connect(f"file:{station.home.database}?mode=ro", uri=True)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchone()
    assert writer.write()
    assert writer.largest > store_reader.WAL_KEPT_BYTES
    yield station
    reader.close()


@pytest.mark.parametrize("plan", sampled([long_plan, heavy_plan], 1))
async def test_our_readers_cut_themselves_where_they_do_harm(swollen: Station, plan: Any) -> None:
    with Reader(swollen.home) as reader, pytest.raises(ReadFailed) as problem:
        reader.run(plan(swollen.home.database))
    assert "timed out" in problem.value.cause
    async with AsyncReader(swollen.home) as following:
        with pytest.raises(ReadFailed):
            await following.run(plan(swollen.home.database))


@pytest.mark.slow
def test_a_long_read_of_a_quiet_home_goes_on(station: Station) -> None:
    def patient() -> Generator[RunSql, Any, int]:
        rows = yield RunSql("SELECT count(*) FROM events")
        time.sleep(store_reader.EXPIRY_SECONDS * 1.2)
        again = yield RunSql("SELECT count(*) FROM events")
        assert rows == again
        return int(again[0][0])

    with Reader(station.home) as reader:
        assert reader.run(patient()) > 0
