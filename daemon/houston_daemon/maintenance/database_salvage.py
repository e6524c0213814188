"""Reading what can still be read of a damaged database: event by event around what cannot.

Works on a copy. Where SQLite stops at a damaged page, each event behind it is asked for by its own
number; a damaged header is written anew. What a row is worth is decided in `repair_decisions`.
"""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from houston_daemon.maintenance import durable_copy
from houston_daemon.maintenance.home_verification import EVENT_COLUMNS, EventRow
from houston_daemon.maintenance.projection_replay import fetch_rows
from houston_shared.store import schema
from houston_shared.store.journal_events import OUT_OF_STEP_EVENTS
from houston_shared.store.presence_queries import LOOK_COLUMNS as LOOKS

T = TypeVar("T")
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
_READ_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError, OverflowError)


class EventOwner(NamedTuple):
    """Whose an event is, as an index of the table says."""

    rollout: str = ""
    step: int = 0


class SalvagedDatabase:
    """The rows of one database that may be damaged."""

    def __init__(self, database: Path, last: int = 0) -> None:
        """last: an event that is known to have been stored. Raises sqlite3.DatabaseError."""
        self._connection = _open_readable(database)
        self.last = max(last, self._newest())
        """No event with a higher number can be in it."""
        self._places: dict[int, EventOwner] | None = None

    def close(self) -> None:
        """Let it go."""
        self._connection.close()

    def rows(self) -> Iterator[EventRow]:
        """Every event that can be read, in order."""
        seq = 0
        while seq < self.last:
            try:
                page = self._page(seq)
            except _READ_ERRORS:
                page = self._singly(seq + 1, min(seq + SALVAGE_PAGE_EVENTS, self.last))
                yield from page
                seq = min(seq + SALVAGE_PAGE_EVENTS, self.last)
                continue
            if not page:
                return
            for row in page:
                if row[0] > seq:  # a damaged tree may lead back
                    seq = row[0]
                    yield row
            seq = max(seq, page[-1][0])

    def row(self, seq: int) -> EventRow | None:
        """One event, None when it is not there or cannot be read."""
        found = self._singly(seq, seq)
        return found[0] if found else None

    def looks(self) -> list[tuple[str | int, ...]]:
        """Rows of `looks`, which no event could give back, as far as they can be read."""
        sql = f"SELECT {LOOKS} FROM looks"
        nothing: list[tuple[str | int, ...]] = []
        rows = self._read(lambda: fetch_rows(self._connection, sql), nothing)
        kinds = (str, str, *(int,) * (LOOKS.count(",") - 1))
        return [tuple(row) for row in rows if tuple(map(type, row)) == kinds]

    def place(self, seq: int) -> EventOwner:
        """Where an event that cannot be read belongs; empty where no index tells."""
        if self._places is None:
            self._places = self._indexed()
        return self._places.get(seq, EventOwner())

    def _indexed(self) -> dict[int, EventOwner]:
        places: dict[int, EventOwner] = {}
        for step, part in _OWNER_INDEXES.items():
            nothing: list[EventRow] = []
            sql = f"SELECT seq, rollout, {step} FROM {part}"
            rows = self._read(lambda sql=sql: fetch_rows(self._connection, sql), nothing)  # type: ignore[misc]
            for seq, *place in rows:
                if isinstance(place[0], str) and isinstance(place[1], int):
                    places.setdefault(seq, EventOwner(*place))
        return places

    def _page(self, after: int) -> list[EventRow]:
        sql = (
            f"SELECT {EVENT_COLUMNS} FROM events WHERE seq > ? AND seq <= ?"
            f" ORDER BY seq LIMIT {SALVAGE_PAGE_EVENTS}"
        )
        return fetch_rows(self._connection, sql, after, self.last)

    def _singly(self, first: int, last: int) -> list[EventRow]:
        sql = f"SELECT {EVENT_COLUMNS} FROM events WHERE seq = ?"
        found: list[EventRow] = []
        for seq in range(first, last + 1):
            found += self._read(lambda seq=seq: fetch_rows(self._connection, sql, seq), [])  # type: ignore[misc]
        return found

    def _newest(self) -> int:
        asked = [f"SELECT max(seq) FROM {part}" for part in ("events", *_OWNER_INDEXES.values())]
        return max(self._read(lambda sql=sql: self._number(sql), 0) for sql in asked)  # type: ignore[misc]

    def _number(self, sql: str) -> int:
        ((found,),) = self._connection.execute(sql)
        return found if isinstance(found, int) and 0 < found < 2**48 else 0

    def _read(self, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except _READ_ERRORS:
            return otherwise


def _open_readable(database: Path) -> sqlite3.Connection:
    """A connection that can read the schema; raises sqlite3.DatabaseError."""
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
    uri = f"file:{quote(str(database))}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    try:
        connection.execute(f"SELECT {EVENT_COLUMNS} FROM events LIMIT 0")
    except BaseException:
        connection.close()
        raise
    return connection
