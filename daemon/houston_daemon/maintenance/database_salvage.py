"""Stage 2 of a repair: what can still be read of a damaged database, event by event.

Works on a copy. Where SQLite stops at a damaged page, each event after it is read by its own
number; a damaged header is written anew. `repair_decisions` decides what a row is worth.
"""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from houston_daemon.maintenance import durable_copy
from houston_daemon.maintenance.projection_replay import fetch_events, fetch_rows
from houston_daemon.recorder.hash_chain import EVENT_COLUMNS, EventRow
from houston_shared.store import schema
from houston_shared.store.journal_events import OUT_OF_STEP_EVENTS
from houston_shared.store.presence_queries import LOOK_COLUMNS

SALVAGE_PAGE_EVENTS = 200
"""Events that are asked for at once; after a damage, one by one."""
_DATABASE_HEADER = bytes.fromhex("53514c69746520666f726d6174203300 2000 02 02 00 40 20 20")
"""How every database of ours begins (sqlite.org/fileformat2.html §1.3): 8 KB pages, WAL."""
_HEADER_BYTES = 100
_OWNER_INDEXES = {
    "step": "events INDEXED BY events_key WHERE part IS NOT NULL",
    "0": f"events INDEXED BY events_aside WHERE {OUT_OF_STEP_EVENTS}",
}
"""What together names the rollout of every event without a look at the table, and the step (0
where the index does not tell)."""
_TABLE = "SELECT seq FROM events WHERE {0}"
_INDEXES = " UNION ALL ".join(
    f"SELECT seq FROM {index} AND {{0}}" for index in _OWNER_INDEXES.values()
)
"""Numbers of events that meet a condition, as the table and as its indexes have them."""
_READ_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError, OverflowError)
OPEN_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError, OSError)
"""What opening a damaged database may raise."""


class EventOwner(NamedTuple):
    """Whose an event is, as an index of the table says."""

    rollout: str = ""
    step: int = 0


class SalvagedDatabase:
    """The rows of one database that may be damaged."""

    def __init__(self, database: Path, last: int = 0) -> None:
        """last: an event that is known to have been stored. Raises one of OPEN_ERRORS."""
        self._connection = _open_readable(database)
        self.last = max(last, self._find_newest())
        """No event with a higher number can be in it."""
        self._owners: dict[int, EventOwner] | None = None

    def close(self) -> None:
        """Let it go."""
        self._connection.close()

    def rows(self) -> Iterator[EventRow]:
        """Every event that can be read, in order."""
        seq = 0
        while seq < self.last:
            before = seq
            try:
                page = fetch_events(self._connection, seq, SALVAGE_PAGE_EVENTS, self.last)
                if not page:
                    return
            except _READ_ERRORS:
                page = []
            for row in page:
                if row.seq > seq:  # a damaged tree may lead back
                    seq = row.seq
                    yield row
            if seq == before:
                seq = min(before + SALVAGE_PAGE_EVENTS, self.last)
                yield from filter(None, map(self.row, range(before + 1, seq + 1)))

    def row(self, seq: int) -> EventRow | None:
        """One event, None when it is not there or cannot be read."""
        rows = self._read(f"SELECT {EVENT_COLUMNS} FROM events WHERE seq = ?", seq)
        return EventRow(*rows[0]) if rows else None

    def looks(self) -> list[tuple[str | int, ...]]:
        """Rows of `looks`, which no event could give back, as far as they can be read."""
        types = (str, str, *(int,) * (LOOK_COLUMNS.count(",") - 1))
        rows = self._read(f"SELECT {LOOK_COLUMNS} FROM looks")
        return [tuple(row) for row in rows if tuple(map(type, row)) == types]

    def owner_of(self, seq: int) -> EventOwner:
        """The owner of an event that cannot be read; empty where no index tells."""
        if self._owners is None:
            self._owners = self._read_owners()
        return self._owners.get(seq, EventOwner())

    def _read_owners(self) -> dict[int, EventOwner]:
        owners: dict[int, EventOwner] = {}
        for step_column, index in _OWNER_INDEXES.items():
            for seq, rollout, step in self._read(
                f"SELECT seq, rollout, {step_column} FROM {index}"
            ):
                if isinstance(rollout, str) and isinstance(step, int):
                    owners.setdefault(seq, EventOwner(rollout, step))
        return owners

    def _find_newest(self) -> int:
        """The newest event that the table or the indexes know, 0 where neither can be read.

        What only one of them knows is believed where no number before it is missing: one changed
        bit would make millions of events that never were.
        """
        candidates = [(self._find_highest(source), source) for source in (_TABLE, _INDEXES)]
        (low, _), (high, source) = sorted(candidates)
        behind = f"SELECT count(DISTINCT seq) FROM ({source.format(f'seq > {low}')})"
        is_whole = self._read(behind) == [(high - low,)]
        return high if is_whole or not low else low

    def _find_highest(self, source: str) -> int:
        rows = self._read(f"SELECT max(seq) FROM ({source.format('seq < 1 << 48')})")
        return next((seq for (seq,) in rows if isinstance(seq, int)), 0)

    def _read(self, sql: str, *parameters: int) -> list[Any]:
        """All rows of a query; none where it cannot be answered."""
        try:
            return fetch_rows(self._connection, sql, *parameters)
        except _READ_ERRORS:
            return []


def _open_readable(database: Path) -> sqlite3.Connection:
    """A connection that can read the schema; raises one of OPEN_ERRORS."""
    try:
        return _open_checked(database)
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        mended = database.with_name("salvaged.db")
        durable_copy.copy_file(database, mended)
        _rewrite_header(mended)
        wal = database.with_name(database.name + "-wal")
        if wal.exists():
            durable_copy.copy_file(wal, mended.with_name(mended.name + "-wal"))
        return _open_checked(mended)


def _rewrite_header(database: Path) -> None:
    """Write into a file's header what it must hold (§1.3 again); the rest stays as it is."""
    with database.open("r+b") as file:
        fixed = bytearray(file.read(_HEADER_BYTES).ljust(_HEADER_BYTES, b"\0"))
        fixed[: len(_DATABASE_HEADER)] = _DATABASE_HEADER
        fixed[44:48], fixed[56:60] = b"\0\0\0\4", b"\0\0\0\1"
        fixed[60:64] = schema.SCHEMA_VERSION.to_bytes(4, "big")
        fixed[72:92] = bytes(20)
        file.seek(0)
        file.write(fixed)


def _open_checked(database: Path) -> sqlite3.Connection:
    connection = durable_copy.open_read_only(database)
    try:
        connection.execute(f"SELECT {EVENT_COLUMNS} FROM events LIMIT 0")
    except BaseException:
        connection.close()
        raise
    return connection
