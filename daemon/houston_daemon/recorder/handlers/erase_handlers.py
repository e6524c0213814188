"""Erases event bodies inside the recorder's transaction: hashes and the chain stay, texts go.

Works only on rollouts that have ended and have no live branch. Derived rows are written anew from
the remaining data; blobs that no event names any more are removed after the commit.
`maintenance.erased_body` decides what remains of a body, `maintenance.event_erasure` which events
are erased.
"""

import logging
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from houston_daemon.maintenance import erased_body
from houston_daemon.maintenance.damage_report import IntegrityFindings
from houston_daemon.maintenance.projection_replay import ProjectionReplay
from houston_daemon.recorder import hash_chain
from houston_daemon.recorder.event_projections import PROJECTED_TABLES
from houston_daemon.recorder.hash_chain import EVENT_COLUMNS, EventRow
from houston_daemon.recorder.identity_and_roles import Author
from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.recorder.recorder_store import Store
from houston_daemon.recorder.request_checks import UNCHANGED, denial, require_rollout
from houston_shared.control_messages import EraseBodies
from houston_shared.errors import UsageError
from houston_shared.secret_redaction import redact
from houston_shared.store import event_bodies, schema, store_reader
from houston_shared.store.journal_events import EVENTS_OF_ROLLOUT, placeholders
from houston_shared.store.training_event_bodies import TRAINING_BODY_TYPES as TRAINING
from houston_shared.wire import RequestStored

LOGGER = logging.getLogger("houston.recorder")
ERASE_LIMIT = 2_000
"""Events of one message."""
MIN_ERASED_CHARACTERS = 4
"""Characters of the shortest text that can be erased everywhere."""
SELECT_BLOB_USER = "SELECT 1 FROM events WHERE blob = ? LIMIT 1"
"""Whether an event names a blob."""
_RECENT_EVENTS = 1_000
"""Events: an erasure whose daemon died before it removed the files is among so many newest."""
_TRAINING_TABLES = ("policies", "training_runs", "activations")
_TABLES_OF_NO_ROLLOUT = ("meta", "tasks", *_TRAINING_TABLES)
_ROLLOUT_TABLES = [table for table in PROJECTED_TABLES if table not in _TABLES_OF_NO_ROLLOUT]
"""Tables whose rows belong to one rollout."""


def erase_bodies(store: Store, message: EraseBodies, author: Author) -> RequestStored:
    """Erase bodies of one rollout, or (without `seqs`) remove erased bytes from the files too."""
    if not message.seqs:
        store.after_commit.append(lambda: empty_wal(store))
        return RequestStored(seq=store.journal.seq)
    _check_erase_request(message)
    _check_erasable(store, message.rollout)
    with _secure_delete(store.connection):
        erased = [event for seq in message.seqs if (event := _erase_one_body(store, message, seq))]
    is_last = bool(message.archive) and not message.more
    if not erased and not is_last:
        return RequestStored(seq=store.journal.seq)
    if erased and message.rollout:
        reproject_rollout(store, message.rollout)
    elif erased:
        reproject_training(store)
    files = tuple(dict.fromkeys(event.blob for event in erased if event.blob))
    body = event_bodies.BodiesErased(
        by=author.person_label,
        seqs=tuple(event.seq for event in erased),
        remainders=tuple(event.remainder for event in erased),
        reason=redact(message.reason),
        archive=message.archive,
        more=message.more,
        blobs=files,
        **author.event_fields,
    )
    store.after_commit.append(lambda: _unlink_unused_blobs(store, files))
    return RequestStored(seq=store.journal.append(EventKey(message.rollout), "erased", body))


def _check_erase_request(message: EraseBodies) -> None:
    """Refuse too much at once, texts that are too short, and a reason that holds the text."""
    if len(message.seqs) > ERASE_LIMIT or 0 < len(message.text) < MIN_ERASED_CHARACTERS:
        raise UsageError(
            f"At most {ERASE_LIMIT} events at once, and texts of {MIN_ERASED_CHARACTERS} characters"
            " at least.",
            UNCHANGED,
        )
    if message.text and erased_body.has_text(message.reason.encode(), message.text):
        raise UsageError(
            "The reason contains the text to erase: it would stay in the journal.",
            "Nothing was erased.",
            "the same command with another --reason",
        )


def _check_erasable(store: Store, rollout: str) -> None:
    row = require_rollout(store, rollout) if rollout else None
    if row is not None and not row.has_ended:
        raise denial(
            f"{row.id} has not ended ({row.state}): it would continue from the erased texts.",
            f"houston rollout cancel {row.id}",
            "Nothing was erased.",
        )
    if branch := find_live_branch(store, rollout):
        raise denial(
            f"{branch} is a branch that shares steps with {rollout} and has not ended: it "
            "would continue from the erased texts.",
            f"houston rollout cancel {branch}",
            "Nothing was erased.",
        )


def find_live_branch(store: Store, rollout: str) -> str:
    """A branch of a rollout, or of a branch of it, that has not ended; empty when there is none."""
    branch = store.connection.execute(
        "WITH RECURSIVE below (id, state) AS (SELECT id, state FROM rollouts WHERE parent = ?1"
        " AND ?1 <> '' UNION ALL SELECT r.id, r.state FROM below JOIN rollouts r"
        " ON r.parent = below.id) SELECT id FROM below"
        " WHERE state IN ('queued', 'running', 'paused') LIMIT 1",
        (rollout,),
    ).fetchone()
    return str(branch[0]) if branch else ""


class _ErasedEvent(NamedTuple):
    """One event whose body was erased."""

    seq: int
    remainder: bytes
    """SHA-256 of what is left."""
    blob: str | None
    """The file that held the body."""


def _erase_one_body(store: Store, message: EraseBodies, seq: int) -> _ErasedEvent | None:
    """Erase one body; None where nothing is to do."""
    row = store.connection.execute(
        "SELECT rollout, kind, body, blob FROM events WHERE seq = ?", (seq,)
    ).fetchone()
    if row is None or row[0] != message.rollout:
        raise denial(f"Event {seq} does not belong to {message.rollout or 'the daemon'}.")
    _, kind, body, blob = row
    if kind in event_bodies.VOUCHING_KINDS or (body is None and blob is None):
        return None
    data = store_reader.read_blob(store.home, blob) if blob else body
    remainder = _remaining_body(message, kind, data)
    if remainder is None or remainder == data:
        return None
    store.connection.execute(
        "UPDATE events SET body = ?, blob = NULL, erased = 1 WHERE seq = ?", (remainder, seq)
    )
    return _ErasedEvent(seq, hash_chain.body_hash(remainder), blob)


def _remaining_body(message: EraseBodies, kind: str, data: bytes) -> bytes | None:
    if message.text:
        return erased_body.redact_text(kind, data, message.text)
    return (
        erased_body.remove_token_ids(kind, data)
        if message.ids
        else erased_body.blank_body(kind, data)
    )


@contextmanager
def _secure_delete(connection: sqlite3.Connection) -> Iterator[None]:
    """What is deleted meanwhile leaves no bytes in its pages."""
    connection.execute("PRAGMA secure_delete = ON")
    try:
        yield
    finally:
        connection.execute("PRAGMA secure_delete = OFF")


def finish_erasures(store: Store) -> None:
    """Remove files that an erasure named shortly before its daemon died.

    Call it only between two transactions, and while no body is being written. A damaged event does
    not prevent the start; `verify` finds it.
    """
    rows = store.connection.execute(
        "SELECT seq, CAST(body AS BLOB), body_hash FROM events WHERE seq > ? AND kind = 'erased'",
        (store.journal.seq - _RECENT_EVENTS,),
    ).fetchall()
    for seq, body, digest in rows:
        if isinstance(body, bytes) and hash_chain.body_hash(body) == digest:
            _unlink_unused_blobs(
                store, msgspec.msgpack.decode(body, type=event_bodies.BodiesErased).blobs
            )
        else:
            LOGGER.error("event %s, which erased texts, is damaged; next: houston verify", seq)


def _unlink_unused_blobs(store: Store, files: Iterable[str]) -> None:
    """Remove blobs that no event names any more."""
    for blob in files:
        if store.connection.execute(SELECT_BLOB_USER, (blob,)).fetchone() is None:
            store_reader.blob_path(store.home, blob).unlink(missing_ok=True)


def reproject_rollout(store: Store, rollout: str) -> None:
    """Write the derived rows of one rollout anew, from its events as they are now."""
    with _replay_events(store, EVENTS_OF_ROLLOUT, rollout) as replayed:
        for table in _ROLLOUT_TABLES:
            owner = "id" if table == "rollouts" else "rollout"
            rows = replayed.execute(f"SELECT * FROM {table} WHERE {owner} = ?", (rollout,))
            # Where the key is a sequence, there is no index by rollout.
            own = EVENTS_OF_ROLLOUT if PROJECTED_TABLES[table] == "seq" else f"{owner} = ?1"
            store.connection.execute(f"DELETE FROM {table} WHERE {own}", (rollout,))
            _insert_rows(store.connection, table, rows.fetchall())


def reproject_training(store: Store) -> None:
    """Write the derived rows of what is trained anew: their reasons may hold somebody's words."""
    kinds = placeholders(TRAINING)
    condition = f"{EVENTS_OF_ROLLOUT} AND kind IN ({kinds})"
    with _replay_events(store, condition, "", *TRAINING) as replayed:
        for table in _TRAINING_TABLES:
            rows = replayed.execute(f"SELECT * FROM {table}").fetchall()
            store.connection.execute(f"DELETE FROM {table}")
            _insert_rows(store.connection, table, rows)


@contextmanager
def _replay_events(store: Store, condition: str, *parameters: str) -> Iterator[sqlite3.Connection]:
    """Tables in memory with what is derived from some events; what is deleted meanwhile is gone."""
    scratch = sqlite3.connect(":memory:", isolation_level=None)
    try:
        schema.migrate_schema(scratch)
        replay = ProjectionReplay(store.home, scratch, IntegrityFindings())
        rows = store.connection.execute(
            f"SELECT {EVENT_COLUMNS} FROM events WHERE {condition} ORDER BY seq", parameters
        )
        for row in rows:
            replay.replay_event(EventRow(*row))
        replay.finish()
        with _secure_delete(store.connection):
            yield scratch
    finally:
        scratch.close()


def _insert_rows(connection: sqlite3.Connection, table: str, rows: list[Any]) -> None:
    if rows:
        marks = placeholders(rows[0])
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def empty_wal(store: Store) -> None:
    """Move the WAL into the database and empty it, because it still holds the old pages.

    A reader in a transaction prevents that; the caller checks, and calls again.
    """
    store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
