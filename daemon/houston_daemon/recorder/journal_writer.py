"""Appends events: sequence, hash chain, body, and derived rows in the same transaction.

`JournalWriter` must be the only writer. A body over 64 KB is compressed and synced as a blob before
a transaction names it. Also caches each rollout's newest step, which saves SELECTs on the hot path.
It neither opens nor commits a transaction: `group_commit` does.
"""

import hashlib
import sqlite3
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import zstandard

from houston_daemon.recorder import hash_chain
from houston_daemon.recorder.event_projections import project_event
from houston_daemon.recorder.hash_chain import EventHeader
from houston_shared import atomic_file
from houston_shared.faults import point
from houston_shared.home import Home
from houston_shared.records import Record
from houston_shared.store import store_reader
from houston_shared.times_and_counts import now_us
from houston_shared.wire import (
    FromWorker,
    StoreIntent,
    StoreObservation,
    StoreResult,
    StoreSample,
    encode_message,
)

STEP_NUMBER_LIMIT = 2**31
"""No step, attempt or index is as large."""


@dataclass(slots=True)
class NewestStep:
    """The newest step of a rollout that is alive and nobody cancels."""

    lease: int
    step: int
    attempt: int
    has_guidance_waiting: bool
    """Whether guidance is queued."""
    closed: bool = False
    intents: set[int] = field(default_factory=set)
    """Indexes of calls that were begun."""
    results: set[int] = field(default_factory=set)


class NewestStepCache:
    """The newest steps, by rollout."""

    def __init__(self) -> None:
        self._newest: dict[str, NewestStep] = {}

    def forget(self, rollout: str) -> None:
        """Something happened to it."""
        self._newest.pop(rollout, None)

    def forget_all(self) -> None:
        """What was noted may have been undone."""
        self._newest.clear()

    def note(self, rollout: str, newest: NewestStep) -> None:
        """Its newest step, as the event that was just appended left it."""
        self._newest[rollout] = newest

    def find_followed_step(self, message: FromWorker) -> NewestStep | None:
        """The newest step if the message surely follows it: right lease, next in order, new key.

        None only means that the database must be asked.
        """
        newest = self._newest.get(message.rollout)
        if newest is None or message.lease != newest.lease:
            return None
        kind = type(message)
        if kind is StoreSample:
            fits = _is_next_step(newest, message)
        else:
            fits = not newest.closed and _is_within_open_step(newest, message)
        return newest if fits else None


def advance_newest_step(newest: NewestStep, message: FromWorker) -> NewestStep:
    """The newest step after storing a message that follows it; do not use `newest` afterwards."""
    match message:
        case StoreSample(step=step):
            return NewestStep(newest.lease, step, 1, newest.has_guidance_waiting)
        case StoreIntent(index=index):
            newest.intents.add(index)
        case StoreResult(index=index):
            newest.results.add(index)
        case StoreObservation():
            newest.closed = True
    return newest


def _is_next_step(newest: NewestStep, message: FromWorker) -> bool:
    match message:
        case StoreSample(part="sample", attempt=1, step=step):
            return newest.closed and step == newest.step + 1
    return False


def _is_within_open_step(newest: NewestStep, message: FromWorker) -> bool:
    """Whether it belongs to the open step, is new there, and what it needs is there."""
    match message:
        case StoreIntent(step=newest.step, attempt=newest.attempt, index=index):
            return index not in newest.intents and 0 <= index < STEP_NUMBER_LIMIT
        case StoreResult(step=newest.step, attempt=newest.attempt, index=index):
            return index in newest.intents and index not in newest.results
        case StoreObservation(step=newest.step, attempt=newest.attempt):
            return newest.intents == newest.results and not newest.has_guidance_waiting
    return False


INLINE_BODY_LIMIT = 64 * 1024
"""Bytes of the largest body that stays in its row; larger ones lie in `blobs/`."""


class EventKey(NamedTuple):
    """What an event belongs to; `part` is None for everything that is not a worker's."""

    rollout: str = ""
    step: int = 0
    attempt: int = 1
    part: str | None = None


class EventBody(NamedTuple):
    """A body ready to be stored."""

    record: Record
    data: bytes
    """`record` in msgpack."""
    digest: bytes
    """SHA-256 of `data`."""
    blob: str | None = None
    """Name of the blob that holds `data`, synced before this exists; None to store it inline."""


class JournalMark(NamedTuple):
    """A point to come back to when a transaction is rolled back."""

    seq: int
    chain: bytes
    appended: int


def prepare_inline_body(record: Record) -> EventBody:
    """A record as a body that is stored inline."""
    data = encode_message(record)
    return EventBody(record, data, hash_chain.body_hash(data))


class JournalWriter:
    """The end of the journal on one open connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """connection: the writer's, migrated."""
        self.connection = connection
        newest: tuple[int, bytes] | None = connection.execute(
            "SELECT seq, chain FROM events ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        self.seq, self.chain = newest or (0, hash_chain.GENESIS)
        self.appended: list[EventHeader] = []
        """Events of the open transaction, for notices; cleared by the loop after its commit."""
        self.inline_bytes = 0
        """Bytes of bodies stored inline since this was opened."""
        self.newest_steps = NewestStepCache()

    def append(self, key: EventKey, kind: str, content: Record | EventBody) -> int:
        """Store one event with its derived rows; returns its sequence. Raises sqlite3.Error."""
        self.newest_steps.forget(key.rollout)
        stored = content if isinstance(content, EventBody) else prepare_inline_body(content)
        event = EventHeader(self.seq + 1, *key, kind, now_us())
        link = hash_chain.chain_value(self.chain, event, stored.digest)
        inline = stored.data if stored.blob is None else None
        self.connection.execute(
            "INSERT INTO events (seq, rollout, step, attempt, part, kind, at, body, blob,"
            " body_hash, chain) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*event, inline, stored.blob, stored.digest, link),
        )
        point("recorder.append.between")
        project_event(self.connection, event, stored.record)
        point("recorder.append.after")
        self.seq, self.chain = event.seq, link
        self.inline_bytes += len(inline or b"")
        self.appended.append(event)
        return event.seq

    def savepoint(self) -> JournalMark:
        """Where the journal stands now."""
        return JournalMark(self.seq, self.chain, len(self.appended))

    def roll_back_to(self, mark: JournalMark) -> None:
        """Forget what was appended since `mark`; the caller has rolled it back."""
        self.seq, self.chain = mark.seq, mark.chain
        del self.appended[mark.appended :]
        self.newest_steps.forget_all()


ZSTD_LEVEL = 3
"""zstd level: 300 MB/s and more, a quarter of the size for logs."""


def prepare_body(home: Home, record: Record) -> EventBody:
    """A record as a body; a large one is on disk when this returns. Raises OSError."""
    data = encode_message(record)
    name = write_blob(home, data) if len(data) > INLINE_BODY_LIMIT else None
    return EventBody(record, data, hash_chain.body_hash(data), name)


def write_blob(home: Home, data: bytes) -> str:
    """Write one blob durably and return its name (hex); raises OSError. Any thread may call it."""
    packed = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(data)
    name = hashlib.sha256(packed).hexdigest()
    path = store_reader.blob_path(home, name)
    if path.exists() and path.read_bytes() == packed:
        # A process that was killed before it synced the folders left them so.
        atomic_file.sync_to_disk(path.parent)
    else:
        _replace_blob_file(home, path, packed)
    atomic_file.sync_to_disk(home.blobs)
    return name


def _replace_blob_file(home: Home, path: Path, packed: bytes) -> None:
    """Write the file and make its name in its folder durable."""

    def share(temporary_path: Path) -> None:
        """Give folder and file the mode of `blobs/`: the annotators' group may read, or nobody."""
        mode = home.blobs.stat().st_mode & 0o7777
        path.parent.chmod(mode)
        temporary_path.chmod(0o640 if mode & 0o050 else 0o600)
        point("recorder.blob.synced")

    path.parent.mkdir(mode=0o700, exist_ok=True)
    point("recorder.blob.before")
    with atomic_file.open_atomically(
        path,
        temporary_path=path.with_name(f"{path.stem}.{threading.get_ident()}.new"),
        before_rename=share,
        after_rename=lambda: point("recorder.blob.named"),
    ) as file:
        file.write(packed)
        file.flush()
        point("recorder.blob.written")
