"""No statement reads a table that grows with every step from one end to the other.

Every statement that SQLite is given while a home is filled, opened again by a worker and read by
commands is planned once more on that home. One that has a condition must find its rows by an index:
without one, a home of 400,000 events kept its recorder busy for three seconds with each new worker.
"""

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.maintenance import archive_file, event_erasure
from houston_shared.command import main
from houston_shared.home import Home
from tests.support import full_home
from tests.support.recorder_client import Station
from tests.support.written_home import WrittenHome

GROWING_TABLES = ("events", "samples", "steps", "file_changes", "terminal_spans", "searches")
READING = (
    "rollout list", "rollout show {0}", "steps {0}", "guidance {0}", "since {0} --peek",
    "log", "files {0}", "search output", "rollout people",
    "policy list", "task list", "verify",
)  # fmt: skip

WHOLE = ("SELECT policy, coalesce(sum(sampled_ids), 0) FROM samples",)
"""What is read whole all the same: how much each policy sampled, in `houston policy list`."""


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What connections that are opened from now on are asked."""
    asked: list[str] = []
    connect = sqlite3.connect

    def traced(*places: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*places, **options)
        connection.set_trace_callback(asked.append)
        return connection

    monkeypatch.setattr(sqlite3, "connect", traced)
    return asked


def _scanned(connection: sqlite3.Connection, statement: str) -> list[str]:
    """Growing tables that a statement with a condition reads whole."""
    if not re.match(r"\s*(SELECT|WITH|UPDATE|DELETE)\b", statement) or "WHERE" not in statement:
        return []
    try:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
    except sqlite3.OperationalError:  # of another database, or of a table made for a moment
        return []
    called = dict.fromkeys(GROWING_TABLES)
    for table, alias in re.findall(rf"\b({'|'.join(GROWING_TABLES)}) (?:AS )?(\w+)", statement):
        called[alias] = table
    scans = re.findall(r"^SCAN (\w+)(?! USING VIRTUAL)", "\n".join(plan), re.MULTILINE)
    return [name for name in scans if name in called]


def test_what_grows_with_every_step_is_read_by_an_index(
    tmp_path: Path,
    statements: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    station = Station(tmp_path / "home").start()
    full_home.fill(station, 12)
    (rollout,) = station.person().start(1)
    station.worker(rollout).hello()
    monkeypatch.setenv("HOUSTON_HOME", str(tmp_path / "home"))
    codes = {words: main(words.format(rollout).split()) for words in READING}
    station.stop()
    capsys.readouterr()
    assert set(codes.values()) == {0}, codes
    home = Home(tmp_path / "home")
    connection = sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)
    found = {statement: _scanned(connection, statement) for statement in set(statements)}
    connection.close()
    assert len(found) > 100, "statements are seen"
    wrong = {text: scans for text, scans in found.items() if scans and not text.startswith(WHOLE)}
    assert wrong == {}


ROLLOUT_READS: dict[str, Callable[[Home, str], object]] = {
    "its texts": lambda home, rollout: event_erasure.select_events_with_text(home, "x", rollout),
    "its archive": archive_file.write_archive,
}


@pytest.mark.parametrize("read", ROLLOUT_READS)
def test_events_of_a_rollout_are_looked_up_as_often_however_many_they_are(
    tmp_path: Path, statements: list[str], read: str
) -> None:
    written = WrittenHome(tmp_path / "home")
    for rollout, steps in (("short", 1), ("long", 400)):
        written.rollout(rollout)
        for step in range(1, steps + 1):
            written.step(rollout, step)
    written.close()
    lookups = {}
    for rollout in ("short", "long"):
        statements.clear()
        ROLLOUT_READS[read](written.home, rollout)
        lookups[rollout] = sum("UNION ALL" in statement for statement in statements)
    assert 0 < lookups["long"] == lookups["short"], lookups
