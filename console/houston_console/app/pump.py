"""Keeps the console up to date: a notice wakes it, and without notices a poll once a second.

It says only that something was committed; what, is read from the database. Woken any number of
times it calls at most five times a second, and not at all while nothing changes.
"""

import asyncio
from collections.abc import Awaitable, Callable

from houston_shared.control_async import LiveFeed
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store.async_reader import AsyncReader
from houston_shared.wire import Notice

POLL_SECONDS = 1.0
COALESCE_SECONDS = 0.2
LOW_SECONDS = 1.5
"""The same over a narrow line."""


class Pump:
    """Calls `changed` after commits, one call at a time."""

    def __init__(
        self,
        home: Home,
        reader: AsyncReader,
        changed: Callable[[], Awaitable[None]],
        announced: Callable[[Notice], None],
        failed: Callable[[HoustonError], None],
        pause: float = COALESCE_SECONDS,
    ) -> None:
        """announced: called for every notice; must not block. failed: a read did not succeed.

        pause: seconds between two calls at least.
        """
        self._pause = pause
        self._home = home
        self._reader = reader
        self._changed = changed
        self._announced = announced
        self._failed = failed
        self._woken = asyncio.Event()
        self._version: tuple[int, int] | None = None

    def wake(self) -> None:
        """Look now."""
        self._version = None
        self._woken.set()

    async def listen(self) -> None:
        """Take notices, for ever."""
        feed = LiveFeed(self._home)
        try:
            async for notice in feed:
                self._announced(notice)
                self._woken.set()
        finally:
            feed.close()

    async def run(self) -> None:
        """Call `changed` whenever something was committed, for ever."""
        while True:
            self._woken.clear()
            try:
                await self._look()
            except HoustonError as problem:
                self._failed(problem)
                await asyncio.sleep(POLL_SECONDS)
                continue
            await asyncio.sleep(self._pause)
            try:
                await asyncio.wait_for(self._woken.wait(), POLL_SECONDS)
            except TimeoutError:
                continue

    async def _look(self) -> None:
        version = await self._reader.data_version()
        if version != self._version:
            await self._changed()
            self._version = version
