"""Group commit: many messages in one transaction, answers after the commit.

A refused message leaves no trace. If a message is refused after it has written something, or if the
disk is full, the transaction is rolled back and every message is tried alone. A large commit runs
in a thread, so its sync overlaps with receiving. Each message's handler defines what it does.
"""

import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from houston_daemon.recorder.message_dispatch import DISK_FULL_REASON, WorkItem
from houston_daemon.recorder.recorder_store import Store
from houston_daemon.recorder.request_checks import Refusal, is_data_error, is_disk_full
from houston_shared.errors import HoustonError
from houston_shared.faults import point

LOGGER = logging.getLogger("houston.recorder")
WhileCommitting = Callable[["Future[Any]"], None]
"""Does something else until the future is done; must not touch the database."""

THREADED_COMMIT_MESSAGES = 8
"""Messages from which on a commit runs in a thread of its own."""


class DurationWindow(deque[float]):
    """The newest 1,000 durations, in seconds."""

    def __init__(self) -> None:
        super().__init__(maxlen=1_000)

    def p99_ms(self) -> float:
        """Their 99th percentile, milliseconds; 0 without any."""
        ordered = sorted(self)
        return ordered[int(0.99 * (len(ordered) - 1))] * 1e3 if ordered else 0.0


class _BatchRollback(Exception):
    """A message was refused after it had written something: the transaction must be undone."""

    def __init__(self, reason: Refusal | HoustonError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class GroupCommit:
    """Runs batches on one store."""

    def __init__(self, store: Store, during_commit: WhileCommitting) -> None:
        """during_commit: what the recorder's thread does while a large commit runs."""
        self._store = store
        self._during_commit = during_commit
        self._committer = ThreadPoolExecutor(1, "houston-commit")
        self.durations = DurationWindow()
        """Of commits that stored something."""
        self.commits = 0
        """Transactions that stored something."""
        self.disk_full = ""
        """What is wrong while the disk is full; empty when it is not."""
        self._logged_full: tuple[Any, ...] = ()
        self.fault = ""
        """The last fault of a handler; it stays until the daemon ends."""

    def run(self, items: Sequence[WorkItem]) -> None:
        """Handle all messages in one transaction and commit it; afterwards answers may be sent.

        Raises errors of the database or the disk; the recorder then ends.
        """
        try:
            self._run_transaction(items)
        except _BatchRollback:
            for work in items:
                self._run_alone(work)
        except (sqlite3.OperationalError, OSError) as problem:
            if not is_disk_full(problem, self._store.home.path):
                raise
            self._note_full(problem)
            for work in items:
                self._run_alone(work)

    def _run_alone(self, work: WorkItem) -> None:
        try:
            point("recorder.alone.before")
            self._run_transaction([work])
        except _BatchRollback as spoiled:
            work.refuse(spoiled.reason)
        except (sqlite3.OperationalError, OSError) as problem:
            if not is_disk_full(problem, self._store.home.path):
                raise
            work.refuse(Refusal("DISK_FULL", DISK_FULL_REASON))

    def _run_transaction(self, items: Sequence[WorkItem]) -> None:
        store = self._store
        connection = store.connection
        before = store.savepoint()
        connection.execute("BEGIN IMMEDIATE")
        point("recorder.transaction.begun")
        try:
            for work in items:
                self._handle_one(work)
            wrote = store.journal.seq != before.journal.seq
            began = time.perf_counter()
            point("recorder.commit.before")
            self._commit(len(items))
            point("recorder.commit.after")
            if wrote:
                self.commits += 1
                self.durations.append(time.perf_counter() - began)
                self.disk_full, self._logged_full = "", ()
        except BaseException:
            # SQLite may have rolled back by itself (a full disk).
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            store.roll_back_to(before)
            raise
        for change in store.after_commit:
            change()
        store.after_commit.clear()

    def close(self) -> None:
        """No transaction follows."""
        self._committer.shutdown(wait=True)

    def _commit(self, size: int) -> None:
        """Commit; a large one in a thread of its own, so that its sync overlaps with receiving.

        Nobody touches the connection meanwhile. A small commit is not worth two changes of thread:
        one rollout's step would take longer.
        """
        execute = self._store.connection.execute
        if size < THREADED_COMMIT_MESSAGES:
            execute("COMMIT")
            return
        commit = self._committer.submit(execute, "COMMIT")
        try:
            point("recorder.commit.during")
            self._during_commit(commit)
        finally:
            wait([commit])
        commit.result()

    def _handle_one(self, work: WorkItem) -> None:
        """Do one message. Refusals come before its first write, as a rule: nothing to undo then."""
        store = self._store
        events, changes_after = len(store.supervisor_events), len(store.after_commit)
        changes = store.connection.total_changes
        try:
            work.do(store)
        except (sqlite3.OperationalError, OSError, MemoryError):
            raise
        except Exception as problem:
            if store.connection.total_changes != changes:
                raise _BatchRollback(self._explain(problem)) from problem
            del (
                store.supervisor_events[events:],
                store.after_commit[changes_after:],
            )  # nothing was written: no event either
            work.refuse(self._explain(problem))

    def _explain(self, problem: Exception) -> Refusal | HoustonError:
        """What the sender hears; a database that is damaged is raised again."""
        if isinstance(problem, Refusal | HoustonError):
            return problem
        if is_data_error(problem):
            LOGGER.warning("a message held values that cannot be stored: %s", problem)
            return Refusal("INVALID", f"The values cannot be stored: {problem}.")
        if isinstance(problem, sqlite3.Error):
            raise problem
        # A fault of ours met by one message must not end every rollout: it is undone, named and
        # answered. Whatever touches the database or the disk never comes here.
        self.fault = f"{type(problem).__name__}: {problem}"
        LOGGER.error("a message could not be handled", exc_info=problem)
        return Refusal("INVALID", f"It could not be handled ({self.fault}).")

    def _note_full(self, problem: Exception) -> None:
        if problem.args != self._logged_full:  # it is tried again twice a second
            self._logged_full = problem.args
            LOGGER.error("disk full, rollouts wait: %s", problem)
        self.disk_full = f"disk full, rollouts wait: {problem}"
