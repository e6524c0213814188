"""A new database from judged events: the journal as it is kept, and what follows from it.

Knows how a row that was set aside looks, and which events a repair adds at the end.
"""

import sqlite3
from collections.abc import Iterable
from typing import Any

import msgspec

from houston_daemon.recorder.derived.rules import Event, apply
from houston_daemon.recorder.disk import head_file
from houston_daemon.recorder.people.identity import Author
from houston_daemon.recorder.steps.journal import Journal, Key
from houston_daemon.recorder.steps.states import REPAIR
from houston_daemon.recorder.upkeep.judge import BLOB, BODY, Judged
from houston_daemon.recorder.upkeep.salvage import Place
from houston_daemon.recorder.upkeep.verify_events import COLUMNS, Row
from houston_daemon.recorder.upkeep.verify_replay import UNREPLAYABLE
from houston_shared.home import Home
from houston_shared.store import blobs, bodies, chain, schema
from houston_shared.store.looks import COLUMNS as LOOKS

CHUNK = 500
"""Rows that one `repaired` event vouches for."""
_INSERT = f"INSERT INTO events ({COLUMNS}) VALUES ({', '.join('?' * 12)})"


class Rewriting:
    """One new database, under way; it is made afresh in `beside`."""

    def __init__(self, home: Home, beside: Home) -> None:
        """home: where the blobs are."""
        self._home = home
        self._beside = beside
        beside.database.unlink(missing_ok=True)
        self._connection = sqlite3.connect(beside.database, isolation_level=None)
        for pragma in ("page_size = 8192", "synchronous = OFF", "journal_mode = MEMORY"):
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        schema.migrate(self._connection)
        self._connection.execute("BEGIN")
        self._vouched: list[tuple[int, bytes]] = []
        self._before: dict[int, bytes] = {}
        """Rows for which an earlier repair has vouched."""

    def put(self, judged: Judged, why: str, place: Place) -> None:
        """Write one event: as it is, or, where there is a `why`, only its place."""
        row = _kept(judged, place) if judged.row is None or why else judged.row
        self._connection.execute(_INSERT, row)
        if row[5] == bodies.ASIDE or judged.taken:
            self._vouched.append((judged.seq, chain.row_hash(row)))
        if row[5] == "repaired":
            told = msgspec.msgpack.decode(row[BODY], type=bodies.Repaired)
            self._before.update(zip(told.seqs, told.rows, strict=True))
        if row[5] != bodies.ASIDE:
            self._derive(row)

    def look(self, rows: Iterable[tuple[str | int, ...]]) -> None:
        """Keep who looked at what, and for how long: no event says it."""
        marks = ", ".join("?" * (LOOKS.count(",") + 1))
        self._connection.executemany(
            f"INSERT OR IGNORE INTO looks ({LOOKS}) VALUES ({marks})", rows
        )

    def close(self, copies: str, paused: dict[str, str], author: Author) -> int:
        """Say in the journal what was done, pause rollouts, write the head; the newest event.

        copies: folder of the home with what was found; paused: reasons by rollout; author: who
        repairs.
        """
        journal = Journal(self._connection)
        new = [(seq, digest) for seq, digest in self._vouched if self._before.get(seq) != digest]
        for first in range(0, len(new), CHUNK):
            part = new[first : first + CHUNK]
            said = bodies.Repaired(
                by=REPAIR,
                seqs=tuple(seq for seq, _ in part),
                rows=tuple(digest for _, digest in part),
                copies=copies,
                **author.fields,
            )
            journal.append(Key(), "repaired", said)
        for rollout, reason in paused.items():
            state = bodies.StoredState(state="paused", by=REPAIR, reason=reason)
            journal.append(Key(rollout), "state", state)
        self._connection.execute("COMMIT")
        self._connection.close()
        head_file.write(self._beside, journal.seq, journal.chain)
        return journal.seq

    def _derive(self, row: Row) -> None:
        data = blobs.read(self._home, row[BLOB]) if row[BLOB] is not None else row[BODY]
        try:
            record = msgspec.msgpack.decode(data, type=bodies.TYPES[row[5]])
            apply(self._connection, Event(*row[:7]), record)
        except UNREPLAYABLE:
            return  # `verify` of what is written finds it, and the next round sets it aside


def _kept(judged: Judged, place: Place) -> tuple[Any, ...]:
    """A row that keeps an event's number and, where they are known, its link, rollout and step."""
    row = judged.row
    digest = row[10] if row is not None and isinstance(row[10], bytes) else b""
    return (
        judged.seq, place.rollout, place.step, 1, None, bodies.ASIDE, 0, None, None, 1,
        digest, judged.link,
    )  # fmt: skip
