"""Derived tables against a replay of the events: every row and every column, compared by SQLite.

`python -m houston_daemon.maintenance.projection_replay HOME` prints the findings as JSON: in a
separate process for a large home, while the journal is read on another core. Checks also use it to
open a home read only, together with empty tables. The rules themselves are in
`recorder.event_projections`.
"""

import contextlib
import errno
import gc
import sqlite3
import subprocess
import sys
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.maintenance.damage_report import IntegrityFinding, IntegrityFindings
from houston_daemon.recorder.event_projections import (
    PROJECTED_TABLES,
    PROJECTIONS,
    UNPROJECTED_COLUMNS,
)
from houston_daemon.recorder.hash_chain import EVENT_COLUMNS, INSERT_EVENT, EventRow
from houston_shared.errors import Damaged, HoustonError
from houston_shared.home import Home
from houston_shared.store import event_bodies, schema, store_reader


def open_home(home: Home) -> sqlite3.Connection:
    """The home's database, read only; raises HoustonError when it cannot be opened."""
    return sqlite3.connect(_checked_home_uri(home), uri=True, isolation_level=None)


def open_replay_database(home: Home) -> sqlite3.Connection:
    """Empty tables (`main`, a temporary file), and the home, read only (`home`)."""
    uri = _checked_home_uri(home)
    connection = sqlite3.connect("", isolation_level=None, uri=True)
    schema.migrate_schema(connection)
    for pragma in ("synchronous = OFF", "journal_mode = OFF", "cache_size = -131072"):
        connection.execute(f"PRAGMA main.{pragma}").fetchall()
    connection.execute("ATTACH ? AS home", (uri,))
    return connection


def _checked_home_uri(home: Home) -> str:
    """The database file, checked to be a database of ours that opens; raises HoustonError."""
    try:
        opened = store_reader.open_journal(home)
    except UnicodeDecodeError as problem:  # SQLite's own words about damage quote the damage
        raise Damaged(
            f"{home.database} is damaged: its schema cannot be read ({problem.reason}).",
            "Nothing was checked.",
            "houston repair",
        ) from None
    opened.connection.close()
    return store_reader.read_only_uri(home.database) + ("&immutable=1" if opened.immutable else "")


def fetch_rows(connection: sqlite3.Connection, sql: str, *parameters: Any) -> list[Any]:
    """All rows; damaged text is named like any other damage, and does not end the reading of it.

    A decoder of our own for every text would cost a tenth of the whole check.
    """
    try:
        return connection.execute(sql, parameters).fetchall()
    except (sqlite3.OperationalError, UnicodeDecodeError):
        connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        return connection.execute(sql, parameters).fetchall()


def fetch_events(
    connection: sqlite3.Connection,
    after: int,
    limit: int,
    last: int = 2**63 - 1,
    schema: str = "main",
) -> list[EventRow]:
    """The next events behind the sequence `after`, up to `last`, in order."""
    sql = (
        f"SELECT {EVENT_COLUMNS} FROM {schema}.events WHERE seq > ? AND seq <= ?"
        " ORDER BY seq LIMIT ?"
    )
    return [EventRow(*row) for row in fetch_rows(connection, sql, after, last, limit)]


_CHANGED_COLUMNS = {("steps", "last_seq"): 2}
"""Columns that a migration gave another meaning: homes of a schema before hold the other values."""
MAX_NAMED_ROWS = 20
"""Differing rows of one table that are named; the others are counted."""


def compare_tables(
    connection: sqlite3.Connection, unreplayed: Collection[str], findings: IntegrityFindings
) -> None:
    """Compare `main` (the replay) with `home`; rows of rollouts in `unreplayed` are left out.

    A home of an older schema, which the next start migrates, is compared with its own schema.
    Raises sqlite3.DatabaseError where a table cannot be read.
    """
    (version,) = connection.execute("PRAGMA home.user_version").fetchone()
    _compare_schema(connection, version, findings)
    existing = {name for (name,) in connection.execute("SELECT name FROM home.sqlite_master")}
    for table, key in PROJECTED_TABLES.items():
        if table not in existing:
            continue  # its schema had none; one that is missing was said above
        left_out = {
            column
            for (changed, column), since in _CHANGED_COLUMNS.items()
            if changed == table and version < since
        }
        left_out |= UNPROJECTED_COLUMNS.get(table, frozenset())
        _compare_table(connection, table, key.split(", "), left_out, unreplayed, findings)


def _compare_schema(
    connection: sqlite3.Connection, version: int, findings: IntegrityFindings
) -> None:
    """Tables and indexes themselves."""
    query = "SELECT name, sql FROM {}.sqlite_master WHERE sql IS NOT NULL"
    found_rows = set(fetch_rows(connection, query.format("home")))
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        schema.migrate_schema(empty, version)
        expected = set(empty.execute(query.format("main")))
    for name, _ in sorted(expected ^ found_rows, key=repr):
        findings.add("table", f"The definition of {name} has been changed.", table=name)


def _compare_table(
    connection: sqlite3.Connection,
    table: str,
    key: list[str],
    left_out: Collection[str],
    unreplayed: Collection[str],
    findings: IntegrityFindings,
) -> None:
    existing = {row[1] for row in connection.execute(f"PRAGMA home.table_info({table})")}
    names = [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")]
    existing |= set(key)
    columns = [name for name in names if name in existing and name not in left_out]
    expected = _select_differing_rows(connection, table, columns, key, "main", "home")
    found_rows = _select_differing_rows(connection, table, columns, key, "home", "main")
    owner = "id" if table == "rollouts" else "rollout"
    named = 0
    for values in dict.fromkeys([*expected, *found_rows]):
        row = expected.get(values) or found_rows[values]
        rollout = str(row[columns.index(owner)]) if owner in columns else ""
        if rollout in unreplayed:
            continue
        named += 1
        if named <= MAX_NAMED_ROWS:
            text = _describe_difference(
                table, key, columns, values, expected.get(values), found_rows.get(values)
            )
            findings.add("table", text, rollout=rollout, table=table)
    if named > MAX_NAMED_ROWS:
        findings.add("table", f"{table}: {named - MAX_NAMED_ROWS} more rows differ.", table=table)


def _select_differing_rows(
    connection: sqlite3.Connection,
    table: str,
    columns: list[str],
    key: list[str],
    schema: str,
    other_schema: str,
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Rows that `schema` has and `other_schema` has not, by key."""
    column_list = ", ".join(columns)
    rows = fetch_rows(
        connection,
        f"SELECT {column_list} FROM {schema}.{table}"
        f" EXCEPT SELECT {column_list} FROM {other_schema}.{table}",
    )
    places = [columns.index(name) for name in key]
    return {tuple(row[place] for place in places): row for row in rows}


def _describe_difference(
    table: str,
    key: list[str],
    columns: list[str],
    values: tuple[Any, ...],
    expected: tuple[Any, ...] | None,
    found_row: tuple[Any, ...] | None,
) -> str:
    where = ", ".join(f"{name} {value!r}" for name, value in zip(key, values, strict=True))
    if expected is None or found_row is None:
        return (
            f"{table}: the row with {where} "
            f"{'is missing' if found_row is None else 'should not exist'}."
        )
    parts = [
        f"{name} is {actual!r}, the events say {expected_value!r}"
        for name, expected_value, actual in zip(columns, expected, found_row, strict=True)
        if (type(expected_value), expected_value) != (type(actual), actual)
    ]
    return f"{table}: in the row with {where}, {'; '.join(parts)}."


REPLAY_PAGE_EVENTS = 1_000
"""Events of one read transaction."""
REPLAY_TRIES = 3
"""Replays of a live home in which bodies are being erased meanwhile."""
REPLAY_ERRORS = (
    msgspec.MsgspecError,
    sqlite3.Error,
    TypeError,
    ValueError,
    KeyError,
    OverflowError,
    RecursionError,
)
"""What a projection may raise over a changed header or body; nothing else is expected here."""
_BODY_DECODERS = {
    kind: msgspec.msgpack.Decoder(type) for kind, type in event_bodies.BODY_TYPES.items()
}


class ProjectionReplay:
    """Writes the derived rows as they should be, into empty tables."""

    def __init__(
        self, home: Home, connection: sqlite3.Connection, findings: IntegrityFindings
    ) -> None:
        """connection: the tables to write as `main`; `replay_page` reads the journal in `home`."""
        self._home = home
        self._connection = connection
        self._findings = findings
        self._touched: dict[str, tuple[int, int, int]] = {}
        """By rollout: time, sequence, and the most active time of its events."""
        self.seq = 0
        self.unreplayed: set[str] = set()
        """Rollouts of which nothing is left of some event: their rows cannot be known."""
        self.last_erasure = 0
        """The last event that erased others."""

    def replay_page(self, size: int) -> bool:
        """Replay the next events; whether there may be more. Raises sqlite3.DatabaseError, also
        where there is no room for the tables."""
        before = self.seq
        rows = fetch_events(self._connection, before, size, schema="home")
        for row in rows:
            self.seq = max(self.seq, row.seq)  # a damaged tree may lead back
            self.replay_event(row)
        return len(rows) == size and self.seq > before

    def insert_event(self, row: EventRow) -> None:
        """Write an event and what is derived from it. Raises sqlite3.Error."""
        self._connection.execute(INSERT_EVENT, row)
        self.replay_event(row)

    def replay_event(self, row: EventRow) -> None:
        """Write what is derived from one event."""
        event = row.header
        if event.kind == event_bodies.QUARANTINED_KIND:
            return
        if event.kind == "erased":
            self.last_erasure = event.seq
        try:
            data = row.body if row.blob is None else store_reader.read_blob(self._home, row.blob)
        except (HoustonError, TypeError, ValueError, OSError):
            data = None  # said by whoever checks the blobs
        if data is None:
            self.unreplayed.add(event.rollout)
            return
        try:
            record = _BODY_DECODERS[event.kind].decode(data)
            PROJECTIONS[event.kind](self._connection, event, record)
            if event.rollout:
                before = self._touched.get(event.rollout)
                active = max(before[2] if before else 0, getattr(record, "active_us", 0))
                self._touched[event.rollout] = event.at, event.seq, active
        except REPLAY_ERRORS as problem:
            if _is_disk_full(problem):
                raise
            self._findings.add(
                "body",
                f"Event {event.seq} cannot be replayed ({problem}).",
                event.seq,
                str(event.rollout),
            )

    def finish(self) -> None:
        """Write what `project_event` writes with each event, once for each rollout."""
        for rollout, touched in self._touched.items():
            with contextlib.suppress(UnicodeEncodeError):  # damaged: no row has that id
                self._connection.execute(
                    "UPDATE rollouts SET updated_at = ?, last_seq = ?,"
                    " active_us = max(active_us, ?) WHERE id = ?",
                    (*touched, rollout),
                )


def check_projections(home: Home) -> list[IntegrityFinding]:
    """What is wrong with the derived tables; raises sqlite3.DatabaseError, HoustonError."""
    for _ in range(REPLAY_TRIES):
        findings = IntegrityFindings()
        connection = open_replay_database(home)
        try:
            if _replay_and_compare(home, connection, findings):
                break
        finally:
            connection.close()
    return findings.findings


def _replay_and_compare(
    home: Home, connection: sqlite3.Connection, findings: IntegrityFindings
) -> bool:
    """Replay and compare; False when bodies were erased behind our back."""
    (first_seq,) = connection.execute("SELECT coalesce(max(seq), 0) FROM home.events").fetchone()
    replay = ProjectionReplay(home, connection, findings)
    more = True
    while more:  # one short read transaction a page
        connection.execute("BEGIN")
        more = replay.replay_page(REPLAY_PAGE_EVENTS)
        connection.execute("COMMIT")
    connection.execute("BEGIN")
    while replay.replay_page(REPLAY_PAGE_EVENTS):
        pass
    replay.finish()
    if replay.last_erasure > first_seq:
        return False
    compare_tables(connection, replay.unreplayed, findings)
    return True


class NoRoomToCheck(HoustonError):
    """SQLite has no room for its temporary files, so that nothing can be said of the tables."""

    def __init__(self) -> None:
        super().__init__(
            "There is no room for SQLite's temporary files: the derived tables cannot be checked.",
            "It is not known whether the home is sound.",
            "Make room there, or name another folder in the variable SQLITE_TMPDIR, and try again.",
        )


class ReplayProcess:
    """A replay in a process of its own."""

    def __init__(self, home: Home) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(home.path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def findings(self) -> list[IntegrityFinding]:
        """Wait for what it found; raises HoustonError when it could not do its work."""
        output, errors = self._process.communicate()
        if self._process.returncode == errno.ENOSPC:
            raise NoRoomToCheck
        if self._process.returncode:
            last_line = errors.decode(errors="replace").strip().rpartition("\n")[2]
            raise HoustonError(f"The derived tables could not be replayed: {last_line}.")
        return msgspec.json.decode(output, type=list[IntegrityFinding])

    def end(self) -> None:
        """Let it go, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


def check_projections_guarded(home: Home) -> list[IntegrityFinding]:
    """As `check_projections`; a damage that stops SQLite itself is one finding.

    Raises NoRoomToCheck, and HoustonError where the home cannot be opened.
    """
    try:
        return check_projections(home)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as problem:
        if _is_disk_full(problem):
            raise NoRoomToCheck from None
        findings = IntegrityFindings()
        findings.add("structure", f"SQLite cannot replay the events: {problem}.")
        return findings.findings


def _is_disk_full(problem: Exception) -> bool:
    return getattr(problem, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL


if __name__ == "__main__":
    gc.disable()  # nothing here makes cycles, and rows are many
    try:
        found = check_projections_guarded(Home(Path(sys.argv[1])))
    except NoRoomToCheck:
        sys.exit(errno.ENOSPC)
    sys.stdout.buffer.write(msgspec.json.encode(found))
