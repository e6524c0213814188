"""The synchronous reader: runs plans against a home, for commands.

One connection, opened when first needed; every plan is one short read transaction, so that no
reader ever holds back a checkpoint. It never writes. `async_reader` is its twin for the console.
"""

import sqlite3
from types import TracebackType
from typing import TypeVar

from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import blobs, opening
from houston_shared.store.expiry import OPERATIONS, Expiry
from houston_shared.store.plan import Ask, Fetch, Plan, Row

T = TypeVar("T")


class ReadFailed(HoustonError):
    """A read that may succeed when it is tried again: locked, being recovered, or expired."""


class Reader:
    """Reads one home. Not for use from several threads at once; `interrupt` is the exception."""

    def __init__(self, home: Home) -> None:
        """home: where the database is; opened by the first `run`, or by `open`."""
        self.home = home
        self._journal: opening.Opened | None = None
        self._search: opening.Opened | None = None
        self._openings = 0
        self._expiry = Expiry(home)

    def open(self) -> "Reader":
        """Open now; raises HoustonError when there is no database or it cannot be read."""
        self._connection()
        return self

    def run(self, plan: Plan[T]) -> T:
        """What the plan returns; raises HoustonError for what the plan or the file cannot give."""
        connection = self._connection()
        try:
            connection.execute("BEGIN")
            self._expiry.begin()
            try:
                return self._answer(plan, connection)
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.DatabaseError as problem:
            raise failure(self.home, problem, self._expiry) from problem

    def data_version(self) -> tuple[int, int]:
        """Changes whenever somebody else committed: the poll for when `live` is not there."""
        connection = self._connection()
        try:
            found: int = connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.DatabaseError as problem:
            raise failure(self.home, problem) from problem
        return self._openings, found

    def interrupt(self) -> None:
        """Cut a running statement short, from another thread; `run` then raises."""
        for opened in (self._journal, self._search):
            if opened is not None:
                opened.connection.interrupt()

    def close(self) -> None:
        """Close the files. The reader opens them again if it is used again."""
        for opened in (self._journal, self._search):
            if opened is not None:
                opened.connection.close()
        self._journal = self._search = None

    def __enter__(self) -> "Reader":
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _answer(self, plan: Plan[T], journal: sqlite3.Connection) -> T:
        try:
            asked = next(plan)
            while True:
                try:
                    answer = self._one(asked, journal)
                except opening.NoSearchIndex as missing:
                    asked = plan.throw(missing)
                else:
                    asked = plan.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _one(self, asked: Ask | Fetch, journal: sqlite3.Connection) -> list[Row] | bytes:
        check(self.home, self._expiry)
        if isinstance(asked, Fetch):
            return blobs.read(self.home, asked.sha256)
        connection = self._index() if asked.where == "search" else journal
        return connection.execute(asked.sql, asked.parameters).fetchall()

    def _connection(self) -> sqlite3.Connection:
        if self._journal is not None and stale(self.home, self._journal):
            self._journal.connection.close()
            self._journal = None
        if self._journal is None:
            self._journal = opening.open_journal(self.home)
            self._journal.connection.set_progress_handler(self._expiry.look, OPERATIONS)
            self._openings += 1
        return self._journal.connection

    def _index(self) -> sqlite3.Connection:
        """The search index, opened afresh: it may have been rebuilt since (0.2 ms)."""
        if self._search is not None:
            self._search.connection.close()
            self._search = None
        self._search = opening.open_search(self.home)
        return self._search.connection


def stale(home: Home, opened: opening.Opened) -> bool:
    """Whether what was opened is no longer the home: a file opened as unchanging may change again,
    has been migrated (the daemon is back), or was replaced by a repair."""
    changes = opened.immutable and opening.has_wal(home.database)
    return changes or opening.migrated(opened) or opening.replaced(home, opened)


def check(home: Home, expiry: Expiry) -> None:
    """End a transaction that must end; raises ReadFailed."""
    if expiry.look():
        raise _expired(home)


def failure(
    home: Home, problem: sqlite3.DatabaseError, expiry: Expiry | None = None
) -> HoustonError:
    """What SQLite says during a read, as an error for people."""
    if expiry is not None and expiry.cut:
        return _expired(home)
    if isinstance(problem, sqlite3.OperationalError):
        return ReadFailed(f"Reading {home.database} failed ({problem}).", "", "try again")
    return HoustonError(f"{home.database} is damaged ({problem}).", "", "houston verify")


def _expired(home: Home) -> ReadFailed:
    return ReadFailed(
        f"Read expired: it took too long while rollouts write to {home.database}.",
        "Nothing was changed.",
        "try again, or ask for less",
    )
