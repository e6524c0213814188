"""The limit of SQLite under the recorder's own tables: its statements, played to a database again.

The same rows, derived rows and indexes, in groups and as durable; no sockets, no decoding, no
hashes, no order or leases to check. What lies between this and `group_commit` is the schema's
price; what lies between this and the recorder is the recorder's.
"""

import sqlite3
import time
from pathlib import Path
from typing import Any

from bench.group_commit import CHECKPOINT_ROWS
from bench.recorder_clients import Script

from houston_daemon.recorder.handlers import ingest_handlers
from houston_daemon.recorder.journal_writer import JournalWriter
from houston_shared import wire
from houston_shared.store import schema

ROLLOUT = (
    "INSERT INTO rollouts (id, task, state, engine, sandbox, spec_seq, created_at, updated_at,"
    " last_seq) VALUES (?, 'probe', 'running', 'script:x', 'none', 1, 1, 1, 1)"
)
Statement = tuple[str, tuple[Any, ...]]


class _Tape:
    """A connection that keeps what it is asked to do."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.statements: list[Statement] = []

    def execute(self, sql: str, parameters: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        self.statements.append((sql, parameters))
        return self._connection.execute(sql, parameters)


class Played:
    """What the recorder does to its database for the messages of many rollouts, in turn."""

    def __init__(self, script: Script, rollouts: int, messages: int) -> None:
        """messages: how many of each rollout."""
        self._names = [f"probe-{number:04d}" for number in range(rollouts)]
        scratch = _new(":memory:", self._names)
        tape = _Tape(scratch)
        journal = JournalWriter(tape)  # type: ignore[arg-type]
        self._statements: list[list[Statement]] = []
        bodies = [script.bodies(messages, name) for name in self._names]
        for number in range(messages):
            for body in bodies:
                place = ingest_handlers.find_event_slot(
                    wire.ingest_request_decoder.decode(body[number])
                )
                assert place
                tape.statements = []
                journal.append(place.key, place.kind, place.record)
                self._statements.append(tape.statements)
        scratch.close()

    def rate(self, folder: Path, group: int, seconds: float, page_size: int) -> float:
        """Messages a second, `group` a commit; for so long, or until there are no more."""
        path = folder / f"same-{group}-{time.monotonic_ns()}.db"
        connection = _new(str(path), self._names, page_size)
        execute = connection.execute
        done = copied = 0
        began = time.perf_counter()
        while time.perf_counter() < began + seconds and done + group <= len(self._statements):
            execute("BEGIN IMMEDIATE")
            for statements in self._statements[done : done + group]:
                for sql, parameters in statements:
                    execute(sql, parameters)
            execute("COMMIT")
            done += group
            if done - copied >= CHECKPOINT_ROWS:
                execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                copied = done
        took = time.perf_counter() - began
        connection.close()
        path.unlink()
        return done / took


def _new(path: str, names: list[str], page_size: int = 8192) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=512)
    for pragma in (
        f"page_size = {page_size}",
        "journal_mode = WAL",
        "synchronous = FULL",
        "wal_autocheckpoint = 0",
        "cache_size = -32768",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    schema.migrate_schema(connection)
    connection.executemany(ROLLOUT, [(name,) for name in names])
    return connection
