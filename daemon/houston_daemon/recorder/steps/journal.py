"""Appending to the journal: sequence, hash chain, body, and the derived rows of the same event.

Knows the newest sequence and chain; must be the only writer. It opens no transaction: `mark` and
`back` keep its own two numbers in step with the transactions of `batch`.
"""

import sqlite3
from typing import NamedTuple

import msgspec

from houston_daemon.recorder.derived.rules import Event, apply
from houston_daemon.recorder.steps.recent import Recent
from houston_shared.clock import now_us
from houston_shared.faults import point
from houston_shared.records import Record
from houston_shared.store import chain
from houston_shared.wire import encode

INLINE_LIMIT = 64 * 1024
"""Bytes of the largest body that stays in its row; larger ones lie in `blobs/`."""


class Key(NamedTuple):
    """What an event belongs to; `part` is None for everything that is not a worker's."""

    rollout: str = ""
    step: int = 0
    attempt: int = 1
    part: str | None = None


class Body(NamedTuple):
    """A body ready to be stored."""

    record: Record
    data: bytes
    """`record` in msgpack."""
    digest: bytes
    """SHA-256 of `data`."""
    blob: str | None = None
    """Name of the blob that holds `data`, synced before this exists; None to store it inline."""


class Mark(NamedTuple):
    """A point to come back to when a transaction is rolled back."""

    seq: int
    chain: bytes
    appended: int


def body(record: Record) -> Body:
    """A record as a body that is stored inline."""
    data = encode(record)
    return Body(record, data, chain.body_hash(data))


class Journal:
    """The end of the journal on one open connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """connection: the writer's, migrated."""
        self.connection = connection
        newest: tuple[int, bytes] | None = connection.execute(
            "SELECT seq, chain FROM events ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        self.seq, self.chain = newest or (0, chain.GENESIS)
        self.appended: list[Event] = []
        """Events of the open transaction, for notices; cleared by the loop after its commit."""
        self.bytes = 0
        """Bytes of bodies stored inline since this was opened."""
        self.recent = Recent()

    def append(self, key: Key, kind: str, content: Record | Body) -> int:
        """Store one event with its derived rows; returns its sequence. Raises sqlite3.Error."""
        self.recent.forget(key.rollout)
        stored = content if isinstance(content, Body) else body(content)
        event = Event(self.seq + 1, *key, kind, now_us())
        link = chain.link(self.chain, *event, stored.digest)
        inline = stored.data if stored.blob is None else None
        self.connection.execute(
            "INSERT INTO events (seq, rollout, step, attempt, part, kind, at, body, blob,"
            " body_hash, chain) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*event, inline, stored.blob, stored.digest, link),
        )
        point("recorder.append.between")
        apply(self.connection, event, stored.record)
        point("recorder.append.after")
        self.seq, self.chain = event.seq, link
        self.bytes += len(inline or b"")
        self.appended.append(event)
        return event.seq

    def mark(self) -> Mark:
        """Where the journal stands now."""
        return Mark(self.seq, self.chain, len(self.appended))

    def back(self, mark: Mark) -> None:
        """Forget what was appended since `mark`; the caller has rolled it back."""
        self.seq, self.chain = mark.seq, mark.chain
        del self.appended[mark.appended :]
        self.recent.forget_all()


def decode(data: bytes, kind: type[Record]) -> Record:
    """A stored body as a record; raises msgspec.MsgspecError."""
    return msgspec.msgpack.decode(data, type=kind)
