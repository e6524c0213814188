"""Erasing bodies inside the recorder's transaction: hashes and the chain stay, the texts go.

What is left of a body, `upkeep.remainder` decides; which events, whoever asks. Only rollouts that
have ended: a worker would go on from what is erased. Derived rows are made anew from what is left.
"""

import logging
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from houston_daemon.recorder.derived.rules import TABLES, Event
from houston_daemon.recorder.people.identity import Author
from houston_daemon.recorder.refusal import denial
from houston_daemon.recorder.steps import states
from houston_daemon.recorder.steps.journal import Key
from houston_daemon.recorder.store import Store
from houston_daemon.recorder.upkeep import remainder
from houston_daemon.recorder.upkeep.verify_findings import Findings
from houston_daemon.recorder.upkeep.verify_replay import Replay
from houston_shared.errors import ExitCode
from houston_shared.secret_values import redact
from houston_shared.store import blobs, bodies, chain, schema
from houston_shared.store.bodies_training import TYPES as TRAINING
from houston_shared.store.in_order import OF_ROLLOUT
from houston_shared.wire import Done
from houston_shared.wire_operators import EraseBodies

LOGGER = logging.getLogger("houston.recorder")
LIMIT = 2_000
"""Events of one message."""
SHORTEST = 4
"""Characters of the shortest text that can be erased everywhere."""
NAMED = "SELECT 1 FROM events WHERE blob = ? LIMIT 1"
"""Whether an event names a blob."""
_RECENT = 1_000
"""Events: an erasure whose daemon died before it removed the files is among so many newest."""
_TRAINING = ("policies", "training_runs", "activations")
_OF_NONE = ("meta", "tasks", *_TRAINING)
_OWN = [table for table in TABLES if table not in _OF_NONE]
"""Tables whose rows belong to one rollout."""


def erase(store: Store, message: EraseBodies, author: Author) -> Done:
    """Erase bodies of one rollout, or (with no `seqs`) let what was erased leave the files too."""
    if not message.seqs:
        store.later.append(lambda: sweep(store))
        return Done(seq=store.journal.seq)
    if len(message.seqs) > LIMIT or 0 < len(message.text) < SHORTEST:
        raise denial(
            f"At most {LIMIT} events at once, and texts of {SHORTEST} characters at least.",
            code=ExitCode.USAGE,
        )
    if message.text and remainder.holds(message.reason.encode(), message.text):
        raise denial(
            "The reason holds the text that is to go: it would stay in the journal.",
            "the same command with another --reason",
            "Nothing was erased.",
            ExitCode.USAGE,
        )
    _may(store, message.rollout)
    with _overwriting(store.connection):
        left = [one for seq in message.seqs if (one := _one(store, message, seq))]
    ends = bool(message.archive) and not message.more
    if not left and not ends:
        return Done(seq=store.journal.seq)
    if left and message.rollout:
        derive_again(store, message.rollout)
    elif left:
        derive_training_again(store)
    files = tuple(dict.fromkeys(one.blob for one in left if one.blob))
    body = bodies.Erased(
        by=author.by,
        seqs=tuple(one.seq for one in left),
        remainders=tuple(one.remainder for one in left),
        reason=redact(message.reason),
        archive=message.archive,
        more=message.more,
        blobs=files,
        **author.fields,
    )
    store.later.append(lambda: _unlink(store, files))
    return Done(seq=store.journal.append(Key(message.rollout), "erased", body))


def _may(store: Store, rollout: str) -> None:
    row = store.rollout(rollout)
    if rollout and row is None:
        raise denial(f"There is no rollout {rollout[:80]!r}.", "houston rollout list")
    if row is not None and not states.ended(row):
        raise denial(
            f"{row.id} has not ended ({row.state}): it would go on from what is erased.",
            f"houston rollout cancel {row.id}",
            "Nothing was erased.",
        )
    if branch := live_branch(store, rollout):
        raise denial(
            f"{branch} is a branch that shares steps with {rollout} and has not ended: it would"
            " go on from what is erased.",
            f"houston rollout cancel {branch}",
            "Nothing was erased.",
        )


def live_branch(store: Store, rollout: str) -> str:
    """A branch of a rollout, or of a branch of it, that has not ended; empty when there is none."""
    found = store.connection.execute(
        "WITH RECURSIVE below (id, state) AS (SELECT id, state FROM rollouts WHERE parent = ?1"
        " AND ?1 <> '' UNION ALL SELECT r.id, r.state FROM below JOIN rollouts r"
        " ON r.parent = below.id) SELECT id FROM below"
        " WHERE state IN ('queued', 'running', 'paused') LIMIT 1",
        (rollout,),
    ).fetchone()
    return str(found[0]) if found else ""


class _Gone(NamedTuple):
    """One event whose body was erased."""

    seq: int
    remainder: bytes
    """SHA-256 of what is left."""
    blob: str | None
    """The file that held the body."""


def _one(store: Store, message: EraseBodies, seq: int) -> _Gone | None:
    """Erase one body; None where nothing is to do."""
    found = store.connection.execute(
        "SELECT rollout, kind, body, blob FROM events WHERE seq = ?", (seq,)
    ).fetchone()
    if found is None or found[0] != message.rollout:
        raise denial(f"Event {seq} is none of {message.rollout or 'the daemon'}.")
    _, kind, body, blob = found
    if kind in remainder.SPARED or (body is None and blob is None):
        return None
    data = blobs.read(store.home, blob) if blob else body
    left = _left(message, kind, data)
    if left is None or left == data:
        return None
    store.connection.execute(
        "UPDATE events SET body = ?, blob = NULL, erased = 1 WHERE seq = ?", (left, seq)
    )
    return _Gone(seq, chain.body_hash(left), blob)


def _left(message: EraseBodies, kind: str, data: bytes) -> bytes | None:
    if message.text:
        return remainder.redact(kind, data, message.text)
    return remainder.without_ids(kind, data) if message.ids else remainder.blank(kind, data)


@contextmanager
def _overwriting(connection: sqlite3.Connection) -> Iterator[None]:
    """What is deleted meanwhile leaves no bytes in its pages."""
    connection.execute("PRAGMA secure_delete = ON")
    try:
        yield
    finally:
        connection.execute("PRAGMA secure_delete = OFF")


def finish(store: Store) -> None:
    """Remove files that an erasure named shortly before its daemon died.

    Only between two transactions, and while no body is on its way to disk. A damaged word of one
    keeps nobody from starting; `verify` finds it.
    """
    rows = store.connection.execute(
        "SELECT seq, CAST(body AS BLOB), body_hash FROM events WHERE seq > ? AND kind = 'erased'",
        (store.journal.seq - _RECENT,),
    ).fetchall()
    for seq, body, digest in rows:
        if isinstance(body, bytes) and chain.body_hash(body) == digest:
            _unlink(store, msgspec.msgpack.decode(body, type=bodies.Erased).blobs)
        else:
            LOGGER.error("event %s, which erased texts, is damaged; next: houston verify", seq)


def _unlink(store: Store, files: Iterable[str]) -> None:
    """Remove blobs that no event names any more."""
    for blob in files:
        if store.connection.execute(NAMED, (blob,)).fetchone() is None:
            blobs.place(store.home, blob).unlink(missing_ok=True)


def derive_again(store: Store, rollout: str) -> None:
    """Write the derived rows of one rollout anew, from its events as they are now."""
    scratch = sqlite3.connect(":memory:", isolation_level=None)
    try:
        schema.migrate(scratch)
        replay = Replay(store.home, scratch, Findings())
        rows = store.connection.execute(
            "SELECT seq, rollout, step, attempt, part, kind, at, body, blob, erased FROM events"
            f" WHERE {OF_ROLLOUT} ORDER BY seq",
            (rollout,),
        )
        for row in rows:
            replay.one(Event(*row[:7]), *row[7:])
        replay.finish()
        with _overwriting(store.connection):
            for table in _OWN:
                _copy(scratch, store.connection, table, rollout)
    finally:
        scratch.close()


def derive_training_again(store: Store) -> None:
    """Write the derived rows of what is trained anew: their reasons may hold somebody's words."""
    scratch = sqlite3.connect(":memory:", isolation_level=None)
    try:
        schema.migrate(scratch)
        replay = Replay(store.home, scratch, Findings())
        marks = ", ".join("?" * len(TRAINING))
        rows = store.connection.execute(
            "SELECT seq, rollout, step, attempt, part, kind, at, body, blob, erased FROM events"
            f" WHERE {OF_ROLLOUT} AND kind IN ({marks}) ORDER BY seq",
            ("", *TRAINING),
        )
        for row in rows:
            replay.one(Event(*row[:7]), *row[7:])
        with _overwriting(store.connection):
            for table in _TRAINING:
                found = scratch.execute(f"SELECT * FROM {table}").fetchall()
                store.connection.execute(f"DELETE FROM {table}")
                if found:
                    places = ", ".join("?" * len(found[0]))
                    store.connection.executemany(f"INSERT INTO {table} VALUES ({places})", found)
    finally:
        scratch.close()


def _copy(scratch: sqlite3.Connection, home: sqlite3.Connection, table: str, rollout: str) -> None:
    owner = "id" if table == "rollouts" else "rollout"
    rows = scratch.execute(f"SELECT * FROM {table} WHERE {owner} = ?", (rollout,)).fetchall()
    own = OF_ROLLOUT if TABLES[table] == "seq" else f"{owner} = ?1"  # no index by rollout there
    home.execute(f"DELETE FROM {table} WHERE {own}", (rollout,))
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        home.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


def sweep(store: Store) -> None:
    """Move the WAL into the database and empty it: it still holds pages as they were.

    A reader in a transaction keeps it from being emptied; who asks looks, and asks again.
    """
    store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
