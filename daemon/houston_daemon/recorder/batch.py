"""Group commit: many messages in one transaction, each in a savepoint, answers after the commit.

A message that is refused leaves no trace and spoils nothing. When the disk is full the transaction
is undone and every message is tried alone, so that reads still answer and writers are told to wait.
"""

import logging
import sqlite3
import time
from collections import deque
from collections.abc import Sequence

from houston_daemon.recorder.refusal import Refusal, is_data, is_full
from houston_daemon.recorder.store import Point, Store
from houston_daemon.recorder.work import FULL, Work
from houston_shared.errors import HoustonError

LOGGER = logging.getLogger("houston.recorder")
_REMEMBER = 1_000
"""Commits whose durations the p99 is taken from."""


class Batch:
    """Runs batches on one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._durations: deque[float] = deque(maxlen=_REMEMBER)
        self.full = ""
        """What is wrong while the disk is full; empty when it is not."""
        self.fault = ""
        """The last fault of a handler; it stays until the daemon ends."""

    def run(self, works: Sequence[Work]) -> None:
        """Do all in one transaction and commit; when this returns, answers may leave.

        Raises what is wrong with the database or the disk: the recorder then ends.
        """
        try:
            self._transaction(works)
        except (sqlite3.OperationalError, OSError) as problem:
            if not is_full(problem, self._store.home.path):
                raise
            self._note_full(problem)
            for work in works:
                self._alone(work)

    def p99_ms(self) -> float:
        """99th percentile of recent commits, milliseconds."""
        ordered = sorted(self._durations)
        return ordered[int(0.99 * (len(ordered) - 1))] * 1e3 if ordered else 0.0

    def _alone(self, work: Work) -> None:
        try:
            self._transaction([work])
        except (sqlite3.OperationalError, OSError) as problem:
            if not is_full(problem, self._store.home.path):
                raise
            work.refuse(Refusal("DISK_FULL", FULL))

    def _transaction(self, works: Sequence[Work]) -> None:
        store = self._store
        connection = store.connection
        before = store.mark()
        connection.execute("BEGIN IMMEDIATE")
        try:
            for work in works:
                self._one(work)
            wrote = store.journal.seq != before.journal.seq
            began = time.perf_counter()
            connection.execute("COMMIT")
            if wrote:
                self._durations.append(time.perf_counter() - began)
                self.full = ""
        except BaseException:
            # SQLite may have rolled back by itself (a full disk).
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            store.back(before)
            raise
        for change in store.later:
            change()
        store.later.clear()

    def _one(self, work: Work) -> None:
        store = self._store
        before = store.mark()
        store.connection.execute("SAVEPOINT message")
        try:
            work.do(store)
        except (Refusal, HoustonError) as problem:
            self._undo(before)
            work.refuse(problem)
        except (sqlite3.Error, OverflowError) as problem:
            if not is_data(problem):
                raise
            self._undo(before)
            LOGGER.warning("a message held values that cannot be stored: %s", problem)
            work.refuse(Refusal("INVALID", f"The values cannot be stored: {problem}."))
        except (OSError, MemoryError):
            raise
        except Exception as problem:
            # A fault of ours met by one message must not end every rollout: it is undone, named
            # and answered. Whatever touches the database or the disk is never handled here.
            self._undo(before)
            self.fault = f"{type(problem).__name__}: {problem}"
            LOGGER.exception("a message could not be handled")
            work.refuse(Refusal("INVALID", f"It could not be handled ({self.fault})."))
        else:
            store.connection.execute("RELEASE message")

    def _undo(self, before: Point) -> None:
        self._store.connection.execute("ROLLBACK TO message")
        self._store.connection.execute("RELEASE message")
        self._store.back(before)

    def _note_full(self, problem: Exception) -> None:
        if not self.full:
            LOGGER.error("disk full, rollouts wait: %s", problem)
        self.full = f"disk full, rollouts wait: {problem}"
