"""Reading what can still be read of a damaged database: event by event around what cannot.

Works on a copy. Where SQLite stops at a damaged page, each event behind it is asked for by its own
number. What a row is worth, `judge` decides.
"""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from houston_daemon.recorder.upkeep import copying
from houston_daemon.recorder.upkeep.verify_events import COLUMNS, Row
from houston_daemon.recorder.upkeep.verify_open import fetch
from houston_shared.store import schema
from houston_shared.store.in_order import ASIDE
from houston_shared.store.looks import COLUMNS as LOOKS

T = TypeVar("T")
PAGE = 200
"""Events that are asked for at once; after a damage, one by one."""
_HEADER = bytes.fromhex("53514c69746520666f726d6174203300 2000 02 02 00 40 20 20")
"""How every database of ours begins (sqlite.org/fileformat2.html §1.3): 8 KB pages, WAL."""
_HEADER_BYTES = 100
_INDEXES = {
    "step": "events INDEXED BY events_key WHERE part IS NOT NULL",
    "0": f"events INDEXED BY events_aside WHERE {ASIDE}",
}
"""What together names the rollout of every event without a look at the table, and the step (0
where the index does not tell)."""
_UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError, OverflowError)


class Place(NamedTuple):
    """Whose an event is, as an index of the table says."""

    rollout: str = ""
    step: int = 0


class Source:
    """The rows of one database that may be damaged."""

    def __init__(self, database: Path, last: int = 0) -> None:
        """last: an event that is known to have been stored. Raises sqlite3.DatabaseError."""
        self._connection = _open(database)
        self.last = max(last, self._newest())
        """No event with a higher number can be in it."""
        self._places: dict[int, Place] | None = None

    def close(self) -> None:
        """Let it go."""
        self._connection.close()

    def rows(self) -> Iterator[Row]:
        """Every event that can be read, in order."""
        seq = 0
        while seq < self.last:
            try:
                page = self._page(seq)
            except _UNREADABLE:
                page = self._singly(seq + 1, min(seq + PAGE, self.last))
                yield from page
                seq = min(seq + PAGE, self.last)
                continue
            if not page:
                return
            for row in page:
                if row[0] > seq:  # a damaged tree may lead back
                    seq = row[0]
                    yield row
            seq = max(seq, page[-1][0])

    def row(self, seq: int) -> Row | None:
        """One event, None when it is not there or cannot be read."""
        found = self._singly(seq, seq)
        return found[0] if found else None

    def looks(self) -> list[tuple[str | int, ...]]:
        """Rows of `looks`, which no event could give back, as far as they can be read."""
        sql = f"SELECT {LOOKS} FROM looks"
        nothing: list[tuple[str | int, ...]] = []
        rows = self._read(lambda: fetch(self._connection, sql), nothing)
        kinds = (str, str, *(int,) * (LOOKS.count(",") - 1))
        return [tuple(row) for row in rows if tuple(map(type, row)) == kinds]

    def place(self, seq: int) -> Place:
        """Where an event that cannot be read belongs; empty where no index tells."""
        if self._places is None:
            self._places = self._indexed()
        return self._places.get(seq, Place())

    def _indexed(self) -> dict[int, Place]:
        places: dict[int, Place] = {}
        for step, part in _INDEXES.items():
            nothing: list[Row] = []
            sql = f"SELECT seq, rollout, {step} FROM {part}"
            for seq, *place in self._read(lambda sql=sql: fetch(self._connection, sql), nothing):  # type: ignore[misc]
                if isinstance(place[0], str) and isinstance(place[1], int):
                    places.setdefault(seq, Place(*place))
        return places

    def _page(self, after: int) -> list[Row]:
        sql = f"SELECT {COLUMNS} FROM events WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT {PAGE}"
        return fetch(self._connection, sql, after, self.last)

    def _singly(self, first: int, last: int) -> list[Row]:
        sql = f"SELECT {COLUMNS} FROM events WHERE seq = ?"
        found: list[Row] = []
        for seq in range(first, last + 1):
            found += self._read(lambda seq=seq: fetch(self._connection, sql, seq), [])  # type: ignore[misc]
        return found

    def _newest(self) -> int:
        asked = [f"SELECT max(seq) FROM {part}" for part in ("events", *_INDEXES.values())]
        return max(self._read(lambda sql=sql: self._number(sql), 0) for sql in asked)  # type: ignore[misc]

    def _number(self, sql: str) -> int:
        ((found,),) = self._connection.execute(sql)
        return found if isinstance(found, int) and 0 < found < 2**48 else 0

    def _read(self, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except _UNREADABLE:
            return otherwise


def _open(database: Path) -> sqlite3.Connection:
    """A connection that can read the schema; raises sqlite3.DatabaseError."""
    try:
        return _try(database)
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        mended = database.with_name("salvaged.db")
        copying.file(database, mended)
        _mend(mended)
        wal = database.with_name(database.name + "-wal")
        if wal.exists():
            copying.file(wal, mended.with_name(mended.name + "-wal"))
        return _try(mended)


def _mend(database: Path) -> None:
    """Write into a file's header what it must hold (§1.3 again); the rest stays as it is."""
    with database.open("r+b") as file:
        fixed = bytearray(file.read(_HEADER_BYTES).ljust(_HEADER_BYTES, b"\0"))
        fixed[: len(_HEADER)] = _HEADER
        fixed[44:48], fixed[56:60] = b"\0\0\0\4", b"\0\0\0\1"
        fixed[60:64] = schema.VERSION.to_bytes(4, "big")
        fixed[72:92] = bytes(20)
        file.seek(0)
        file.write(fixed)


def _try(database: Path) -> sqlite3.Connection:
    uri = f"file:{quote(str(database))}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    try:
        connection.execute(f"SELECT {COLUMNS} FROM events LIMIT 0")
    except BaseException:
        connection.close()
        raise
    return connection
