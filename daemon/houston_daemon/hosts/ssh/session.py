"""One connection to a far end: an ssh process, requests on their way, answers as they come.

A session that has ended stays ended; `link` makes another.
"""

import asyncio
import contextlib
import signal
import time
from typing import Any

import msgspec

from houston_daemon.hosts import processes
from houston_daemon.hosts.ssh import frames
from houston_daemon.hosts.ssh import messages as m

_GREETING_SECONDS = 25.0
_PING_SECONDS = 5.0
_SILENT_SECONDS = 30.0
_ENDING_SECONDS = 2.0
_LAST_WORDS_SECONDS = 1.0
_SAID = 2_000
_CUT = "the connection was cut"


class Cut(Exception):
    """The connection has ended; the text says how."""


class Session:
    """Requests to one far end, from `open` until the connection ends."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process = process
        self._writer, self._reader = process.stdin, process.stdout
        self._waiting: dict[int, asyncio.Future[m.Answer]] = {}
        self._number = 0
        self._heard = time.monotonic()
        self.why = ""
        self._errors = bytearray()
        self._listening_to_errors = asyncio.create_task(self._collect_errors())
        self._tasks: list[asyncio.Task[None]] = []
        self.ended = asyncio.Event()

    @classmethod
    async def open(cls, command: list[str]) -> "Session":
        """Run `command`, which connects, and wait for the far end's greeting. Raises Cut."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=1 << 20,
                start_new_session=True,  # Ctrl-C at a terminal is not for it
            )
        except OSError as problem:
            raise Cut(f"{command[0]} cannot be run: {problem.strerror}") from problem
        session = cls(process)
        try:
            async with asyncio.timeout(_GREETING_SECONDS):
                await frames.greeted(session._reader)
        except (TimeoutError, frames.Garbled) as problem:
            await session._hear_errors()
            await session.close()
            why = str(problem) or f"no answer within {_GREETING_SECONDS:g} s"
            raise Cut(session._last_error() or why) from problem
        except BaseException:
            await session.close()
            raise
        session._tasks = [
            asyncio.create_task(session._listen()),
            asyncio.create_task(session._ping()),
        ]
        return session

    async def ask(self, ask: m.Asks, stop: asyncio.Event | None = None) -> m.Answer:
        """Ask, and wait for the answer; `stop` takes the request back. Raises Cut."""
        if self.ended.is_set():
            raise Cut(self.why)
        self._number += 1
        number = self._number
        answer: asyncio.Future[m.Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            await self._say(m.Request(number, ask))
            if stop is not None:
                await _either(answer, stop)
                if not answer.done():
                    await self._say(m.TakeBack(number))
            return await answer
        except asyncio.CancelledError:
            with contextlib.suppress(Cut):
                await self._say(m.TakeBack(number))
            raise
        finally:
            del self._waiting[number]

    async def close(self) -> None:
        """End the connection: the far end sees its input end."""
        self._end("it was closed")
        for task in (*self._tasks, self._listening_to_errors):
            task.cancel()
        await asyncio.gather(*self._tasks, self._listening_to_errors, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ENDING_SECONDS):
                await self._process.wait()

    async def _say(self, what: m.Said) -> None:
        try:
            self._writer.write(frames.packed(msgspec.msgpack.encode(what)))
            await self._writer.drain()
        except (ConnectionError, RuntimeError) as problem:  # the latter where it is closed already
            await self._hear_errors()
            self._end(self._last_error() or _CUT)
            raise Cut(self.why) from problem

    async def _listen(self) -> None:
        decoder = msgspec.msgpack.Decoder(m.Answer)
        why = ""
        try:
            while (body := await frames.read(self._reader, self._hear)) is not None:
                answer = decoder.decode(body)
                waiting = self._waiting.get(answer.number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
            await self._hear_errors()
        except (frames.Garbled, msgspec.MsgspecError) as problem:
            why = str(problem)
        self._end(why or self._last_error() or _CUT)

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(_PING_SECONDS)
            silent = time.monotonic() - self._heard
            if silent > _SILENT_SECONDS:
                self._end(f"it has said nothing for {silent:.0f} s")
                return
            self._number += 1
            with contextlib.suppress(Cut):
                await self._say(m.Request(self._number, m.Ping()))

    def _hear(self) -> None:
        self._heard = time.monotonic()

    def _end(self, why: str) -> None:
        if self.ended.is_set():
            return
        self.why = why
        self.ended.set()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Cut(why))
        self._writer.close()
        if self._process.returncode is None:
            # Not its own kill(), which looks first whether it has ended: the loop's watcher would
            # be left without its exit status, and say so to whoever sees the log.
            processes.send([self._process.pid], signal.SIGKILL)

    async def _collect_errors(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(_SAID):
            self._errors += data
            del self._errors[:-_SAID]

    async def _hear_errors(self) -> None:
        """What ssh says of its end comes a moment after it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await asyncio.shield(self._listening_to_errors)

    def _last_error(self) -> str:
        """The last line that ssh, or the shell there, wrote to its standard error."""
        lines = self._errors.decode(errors="replace").split("\n")
        return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "")


async def _either(answer: asyncio.Future[m.Answer], stop: asyncio.Event) -> None:
    stopping = asyncio.ensure_future(stop.wait())
    either: set[asyncio.Future[Any]] = {answer, stopping}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
