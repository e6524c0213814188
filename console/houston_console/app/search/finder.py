"""The process that searches, as the console holds it: started when somebody begins to write.

A new search ends the one before. A process that does not answer to one in time is killed and
started again: it hangs in somebody's pattern.
"""

import asyncio
import sys
from collections.abc import Callable

import msgspec

from houston_shared.home import Home
from houston_shared.store.finding.process import Found, Job
from houston_shared.store.finding.query import Query

ANSWER_SECONDS = 3.0
"""Within which a process that is well says that it has the search, also on a busy machine."""
LINE = 64 << 20
"""Bytes of one line of the process."""


class Finder:
    """One process at most."""

    def __init__(
        self, home: Home, found: Callable[[Found], None], anew: Callable[[], None]
    ) -> None:
        """found: told what was found for the newest job, on the event loop. anew: the newest job
        begins once more, and what was found for it is found again.
        """
        self._home = home
        self._anew = anew
        self._found = found
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._job = Job(0, Query(""))
        self._accepted = 0
        self._turn = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    async def warm(self) -> None:
        """Start it, so that the first search finds it there."""
        async with self._turn:
            if self._process is None or self._process.returncode is not None:
                await self._start()

    async def ask(self, query: Query) -> None:
        """Look for this, and for nothing else from now on; with an empty text for nothing."""
        job = self._job = Job(self._job.number + 1, query)
        await self.warm()
        if job is not self._job:
            return  # something else was asked meanwhile
        await self._send()
        if self._watching is not None:
            self._watching.cancel()
        self._watching = asyncio.create_task(self._watch(self._job))

    async def close(self) -> None:
        """End it."""
        async with self._turn:
            if self._watching is not None:
                self._watching.cancel()
            await self._end()

    async def _start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "houston_shared.store.finding.process",
            str(self._home.path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=LINE,
        )
        self._listening = asyncio.create_task(self._listen(self._process))

    async def _send(self) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        try:
            process.stdin.write(msgspec.json.encode(self._job) + b"\n")
            await process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            return  # it has ended, and its end is told by `_listen`

    async def _watch(self, job: Job) -> None:
        await asyncio.sleep(ANSWER_SECONDS)
        if self._accepted < job.number and job is self._job:
            self._job = Job(job.number + 1, job.query)  # nothing more of the old one is taken
            self._anew()
            async with self._turn:
                await self._end()
                await self._start()
            await self._send()

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            found = msgspec.json.decode(line, type=Found)
            self._accepted = max(self._accepted, found.number)
            if found.number == self._job.number:
                self._found(found)
        if process is self._process and self._job.query.text:
            cause = "The process that searches has ended."
            self._found(Found(self._job.number, problem=(cause, "Not all was looked at.", "")))

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()
        if self._listening is not None:
            await self._listening
            self._listening = None
