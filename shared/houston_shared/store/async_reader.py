"""The asynchronous reader: the same plans over aiosqlite, for the console.

Statements and blobs are read in threads; the caller's event loop only maps rows to records. Plans
of one reader run one after the other, each in one short read transaction.
"""

import asyncio
import contextlib
import sqlite3
from typing import Any, TypeVar

import aiosqlite

from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import store_reader
from houston_shared.store.journal_events import FetchBlob, ReadPlan, RunSql
from houston_shared.store.store_reader import (
    OPERATIONS_BETWEEN_LOOKS,
    ReadExpiry,
    check_expiry,
    is_stale,
    read_failure,
)

T = TypeVar("T")


class AsyncReader:
    """Reads one home from one event loop. Use `async with`, or `open` and `close`."""

    def __init__(self, home: Home) -> None:
        """home: where the database is; opened by the first `run`, or by `open`."""
        self.home = home
        self._opened: store_reader.OpenedDatabase | None = None
        self._journal: aiosqlite.Connection | None = None
        self._turn = asyncio.Lock()
        self._openings = 0
        self._ended = False
        self._expiry = ReadExpiry(home)

    async def open(self) -> "AsyncReader":
        """Open now; raises HoustonError when there is no database or it cannot be read."""
        async with self._turn:
            await self._connection()
        return self

    async def run(self, plan: ReadPlan[T]) -> T:
        """What the plan returns; raises HoustonError for what the plan or the file cannot give.

        Cancelled, it cuts its running statement short: a search nobody waits for ends at once.
        """
        async with self._turn:
            connection = await self._connection()
            try:
                try:
                    await connection.execute_fetchall("BEGIN")
                    self._expiry.begin()
                    return await self._answer(plan, connection)
                except asyncio.CancelledError:
                    await connection.interrupt()
                    raise
                finally:
                    await asyncio.shield(_end_transaction(connection))
            except sqlite3.DatabaseError as problem:
                raise read_failure(self.home, problem, self._expiry) from problem

    async def data_version(self) -> tuple[int, int]:
        """Changes whenever somebody else committed: the poll for when `live` is not there."""
        async with self._turn:
            connection = await self._connection()
            rows: Any = await connection.execute_fetchall("PRAGMA data_version")
            return self._openings, rows[0][0]

    async def interrupt(self) -> None:
        """Cut the running statement short; its `run` then raises HoustonError."""
        if self._journal is not None:
            await self._journal.interrupt()

    async def close(self) -> None:
        """Close the file for good: who still asks gets HoustonError.

        Were it opened again by a task that ends later, its thread would outlive the program.
        """
        self._ended = True
        async with self._turn:
            await self._close()

    async def __aenter__(self) -> "AsyncReader":
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _answer(self, plan: ReadPlan[T], journal: aiosqlite.Connection) -> T:
        try:
            request = next(plan)
            while True:
                try:
                    answer = await self._fetch(request, journal)
                except store_reader.NoSearchIndex as missing:
                    request = plan.throw(missing)
                else:
                    request = plan.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _fetch(self, request: RunSql | FetchBlob, journal: aiosqlite.Connection) -> Any:
        check_expiry(self.home, self._expiry)
        if isinstance(request, FetchBlob):
            return await asyncio.to_thread(store_reader.read_blob, self.home, request.sha256)
        if request.where == "search":
            return await asyncio.to_thread(self._search, request)
        return await journal.execute_fetchall(request.sql, request.parameters)

    def _search(self, request: RunSql) -> list[Any]:
        with contextlib.closing(store_reader.open_search_index(self.home).connection) as index:
            return index.execute(request.sql, request.parameters).fetchall()

    async def _connection(self) -> aiosqlite.Connection:
        if self._ended:
            raise HoustonError("The reader of the home is closed.", "Nothing was read.")
        if self._opened is not None and is_stale(self.home, self._opened):
            await self._close()
        if self._journal is None:
            # Opened before aiosqlite has it: a failed connect would leave its thread behind.
            opened = await asyncio.to_thread(store_reader.open_journal, self.home)
            opened.connection.set_progress_handler(self._expiry.look, OPERATIONS_BETWEEN_LOOKS)
            self._journal = await aiosqlite.Connection(lambda: opened.connection, 64)
            self._opened = opened
            self._openings += 1
        return self._journal

    async def _close(self) -> None:
        if self._journal is not None:
            await self._journal.close()
        self._journal = self._opened = None


async def _end_transaction(connection: aiosqlite.Connection) -> None:
    """End the transaction, behind all that waits for the connection's thread.

    Whoever was cancelled may have asked for one that is not begun yet, or failed to begin one.
    """
    try:
        await connection.execute_fetchall("ROLLBACK")
    except sqlite3.OperationalError:
        if connection.in_transaction:
            raise
