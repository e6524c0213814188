"""Copying the WAL into the database, and keeping it bounded whatever readers do.

SQLite cannot restart the WAL while a read transaction needs it. When it has grown, its readers are
named; when it has grown further, workers wait, and a `houston` command that holds them up is ended,
later any program this user may end. The WAL is never longer than 64 MiB.
"""

import logging
import sqlite3
import time

from houston_daemon.recorder.disk import wal_inspection
from houston_daemon.recorder.recorder_store import Store
from houston_daemon.recorder.request_checks import Refusal
from houston_shared.faults import point

LOGGER = logging.getLogger("houston.recorder")

CHECKPOINT_EVENTS = 500
"""Events after which the WAL is copied into the database (about 7 MB of WAL): acks wait for it."""
CHECKPOINT_BYTES = 4 * 1024 * 1024
"""Bytes of bodies after which it is copied even with fewer events."""
CROWDED_WAL_BYTES = 24 * 1024 * 1024
"""Bytes of WAL from which on readers are waited for: many short ones, too, can keep it growing."""
HOLD_WORKERS_BYTES = 40 * 1024 * 1024
"""Bytes at which workers wait: what is due next and the largest batch, 32 bodies of 64 KB, fit."""
FRAME_BYTES = 8_192 + 24
"""Bytes of a page in the WAL."""
IDLE_SECONDS = 2.0
"""Quiet time after which what is left is copied."""
RETRY_SECONDS = 0.5
"""Between tries while readers hold the WAL."""
READER_WAIT_MS = 20
"""How long one try waits for readers; a short transaction ends by itself."""
END_OWN_READER_SECONDS = 10.0
"""How long workers wait before a `houston` command that holds them up is ended."""
END_FOREIGN_READER_SECONDS = 60.0
"""The same before another program is ended that this user may end: it has been named by then."""
MB = 1_000_000


class WalCheckpoints:
    """Run by the recorder's thread between batches: acks have left by then."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._path = store.home.database.with_name(store.home.database.name + "-wal")
        self._copied_seq = store.journal.seq
        self._copied_bytes = store.journal.inline_bytes
        self._last_seen = (store.journal.seq, time.monotonic())
        # What a killed daemon left is copied in the first turn: daemons that are killed again and
        # again, each before its own first copy, would otherwise make the WAL grow without end.
        self._retry_at = time.monotonic()
        self._waiting_since: float | None = None
        """Since when workers wait; None while they do not."""
        self._failed = False
        """Whether the last try met an error of the disk, not a reader."""
        self._terminated_pids: set[int] = set()
        """Readers that were asked to end."""
        self.problem = ""
        """Why the WAL is not copied, or who holds it; empty when all is well."""

    def run(self, now: float) -> None:
        """Copy what is due. now: monotonic seconds."""
        journal = self._store.journal
        if journal.seq != self._last_seen[0]:
            self._last_seen = (journal.seq, now)
        idle = now - self._last_seen[1] > IDLE_SECONDS
        behind = journal.seq - self._copied_seq
        large = journal.inline_bytes - self._copied_bytes >= CHECKPOINT_BYTES
        due = behind and (behind >= CHECKPOINT_EVENTS or large or idle)
        if due or (self._retry_at and now >= self._retry_at):
            self._copy(now)

    def finish(self) -> None:
        """The last one."""
        self._checkpoint("TRUNCATE")

    def wal_bytes(self) -> int:
        """Size of the WAL file."""
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def refusal(self) -> Refusal | None:
        """What a worker hears that wants something stored; None while it may."""
        return Refusal("DISK_FULL", self.problem) if self._waiting_since is not None else None

    def _copy(self, now: float) -> None:
        self._copied_seq = self._store.journal.seq
        self._copied_bytes = self._store.journal.inline_bytes
        self._retry_at = 0.0
        is_complete, used = self._checkpoint("PASSIVE")
        if self._failed:
            self._retry_at = now + RETRY_SECONDS
        if used >= CROWDED_WAL_BYTES:
            is_complete, used = self._restart_wal()
        if is_complete:
            self._note_free()
        elif used >= CROWDED_WAL_BYTES:
            self._retry_at = now + RETRY_SECONDS
            self._handle_readers(used, now)

    def _restart_wal(self) -> tuple[bool, int]:
        """As `_checkpoint`, with a short wait for readers: the next commit reuses the file."""
        connection = self._store.connection
        (before,) = connection.execute("PRAGMA busy_timeout").fetchone()
        connection.execute(f"PRAGMA busy_timeout = {READER_WAIT_MS}")
        try:
            return self._checkpoint("RESTART")
        finally:
            connection.execute(f"PRAGMA busy_timeout = {before}")

    def _checkpoint(self, mode: str) -> tuple[bool, int]:
        """Whether everything was copied, and nobody was in the way; bytes of WAL in use."""
        try:
            point("recorder.checkpoint.before")
            busy, log, copied = self._store.connection.execute(
                f"PRAGMA wal_checkpoint({mode})"
            ).fetchone()
        except sqlite3.OperationalError as problem:
            # A full disk: the WAL keeps what could not be copied, and the next try copies it.
            self._failed = True
            self._report(f"checkpoint: {problem}")
            return False, 0
        self._failed = False
        point("recorder.checkpoint.after")
        return busy == 0 and log == copied, log * FRAME_BYTES

    def _handle_readers(self, used: int, now: float) -> None:
        readers = wal_inspection.find_wal_readers(self._store.home.database)
        names = ", ".join(map(str, readers)) or "a process that cannot be named"
        if used < HOLD_WORKERS_BYTES and self._waiting_since is None:
            self._report(f"the WAL keeps growing because of a read transaction: {names}")
            return
        if self._waiting_since is None:
            self._waiting_since = now
        self._report(
            f"WAL FULL: rollouts paused at {used // MB} MB until a read transaction ends: {names}"
        )
        waited = now - self._waiting_since
        for reader in readers:
            due = (
                reader.is_houston and waited >= END_OWN_READER_SECONDS
            ) or waited >= END_FOREIGN_READER_SECONDS
            if due and reader.may_end:
                wal_inspection.end_wal_reader(reader, hard=reader.pid in self._terminated_pids)
                self._terminated_pids.add(reader.pid)

    def _note_free(self) -> None:
        if self._waiting_since is not None:
            LOGGER.info("the WAL is free again: rollouts resume")
        self._retry_at = 0.0
        self._waiting_since = None
        self._terminated_pids.clear()
        self.problem = ""

    def _report(self, problem: str) -> None:
        if problem != self.problem:
            LOGGER.warning("%s", problem)
        self.problem = problem
