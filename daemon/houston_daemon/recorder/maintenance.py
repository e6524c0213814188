"""What the recorder does between batches: checkpoints, the head file, the ballast.

A checkpoint runs after the acks have left, so no ack waits for it; the WAL stays bounded as long as
readers keep their transactions short. The head file is written by a thread of its own: its sync
costs as much as a commit.
"""

import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from houston_daemon.recorder import ballast, head_file
from houston_daemon.recorder.store import Store
from houston_shared.faults import point

LOGGER = logging.getLogger("houston.recorder")

CHECKPOINT_EVENTS = 1_000
"""Events after which the WAL is copied into the database (about 10 MB of WAL)."""
CHECKPOINT_BYTES = 4 * 1024 * 1024
"""Bytes of bodies after which it is copied even with fewer events."""
WAL_LIMIT = 64 * 1024 * 1024
"""Bytes of WAL that only a reader in a long transaction can cause; it is named then."""
IDLE_SECONDS = 2.0
"""Quiet time after which what is left is copied."""
HEAD_SECONDS = 1.0
BALLAST_SECONDS = 10.0


class Maintenance:
    """Called by the loop after every batch and when nothing happens."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._files = ThreadPoolExecutor(1, "houston-head")
        self._writing: Future[None] | None = None
        self._head_seq = -1
        self._head_due = 0.0
        self._ballast_due = 0.0
        self._copied_seq = store.journal.seq
        self._copied_bytes = store.journal.bytes
        self._last_seen = (store.journal.seq, time.monotonic())
        self.problem = ""
        """Why the head file or a checkpoint lags; empty when neither does."""

    def run(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        seq = self._store.journal.seq
        if seq != self._last_seen[0]:
            self._last_seen = (seq, now)
        idle = now - self._last_seen[1] > IDLE_SECONDS
        behind = seq - self._copied_seq
        large = self._store.journal.bytes - self._copied_bytes >= CHECKPOINT_BYTES
        if behind and (behind >= CHECKPOINT_EVENTS or large or idle):
            self._checkpoint("PASSIVE")
        if seq != self._head_seq and now >= self._head_due and self._idle_writer():
            self._head_due = now + HEAD_SECONDS
            self._head_seq = seq
            self._writing = self._files.submit(
                head_file.write, self._store.home, seq, self._store.journal.chain
            )
        if now >= self._ballast_due:
            self._ballast_due = now + BALLAST_SECONDS
            self._try(lambda: ballast.restore(self._store.home))

    def wal_bytes(self) -> int:
        """Size of the WAL file."""
        path = self._store.home.database
        try:
            return path.with_name(path.name + "-wal").stat().st_size
        except FileNotFoundError:
            return 0

    def close(self) -> None:
        """The last checkpoint and the last head; everything is on disk then."""
        self._files.shutdown(wait=True)
        self._checkpoint("TRUNCATE")
        seq, chain = self._store.journal.seq, self._store.journal.chain
        self._try(lambda: head_file.write(self._store.home, seq, chain))

    def _checkpoint(self, mode: str) -> None:
        try:
            point("recorder.checkpoint.before")
            busy, log, copied = self._store.connection.execute(
                f"PRAGMA wal_checkpoint({mode})"
            ).fetchone()
        except sqlite3.OperationalError as problem:
            # A full disk: the WAL keeps what could not be copied, and the next try copies it.
            self._say(f"checkpoint: {problem}")
            return
        point("recorder.checkpoint.after")
        self._copied_seq = self._store.journal.seq
        self._copied_bytes = self._store.journal.bytes
        if busy == 0 and log == copied:
            self.problem = ""
        elif self.wal_bytes() > WAL_LIMIT:
            self._say("a reader holds the WAL: its read transaction is too long")

    def _idle_writer(self) -> bool:
        if self._writing is None:
            return True
        if not self._writing.done():
            return False
        problem = self._writing.exception()
        self._writing = None
        if problem is not None:
            self._say(f"head file: {problem}")
        return True

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as problem:
            self._say(str(problem))

    def _say(self, problem: str) -> None:
        if problem != self.problem:
            LOGGER.warning("%s", problem)
        self.problem = problem
