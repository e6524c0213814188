"""Speak to the daemon over `control`, and listen on `live`, from an event loop: for the console.

The same as `control_client`, but that questions may overlap.
"""

import asyncio
import contextlib
import time
import weakref
from collections.abc import AsyncIterator

import msgspec
import zmq
import zmq.asyncio

from houston_shared import wire
from houston_shared.control_client import (
    LOOK_SECONDS,
    SLICE_SECONDS,
    TIMEOUT_SECONDS,
    ControlConnection,
    check_daemon_may_answer,
    close_socket,
    decode_reply,
    no_answer_error,
    require_daemon,
    set_socket_limits,
)
from houston_shared.control_messages import Status
from houston_shared.home import Home
from houston_shared.wire import ControlRequest, Notice, RequestStored


class AsyncControlClient(ControlConnection):
    """The same for an event loop; questions may overlap. Use it from one loop."""

    def __init__(self, home: Home) -> None:
        context = zmq.asyncio.Context(1)
        self._socket = context.socket(zmq.DEALER)
        super().__init__(home, TIMEOUT_SECONDS, self._socket, context)
        self._open: dict[bytes, asyncio.Future[bytes]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def ask(
        self, message: ControlRequest, timeout: float | None = None
    ) -> RequestStored | Status:
        """As `ControlClient.ask`."""
        require_daemon(self._home)
        seconds = self._timeout if timeout is None else timeout
        request = self._encode(message)
        self._reader = self._reader or asyncio.create_task(self._read())
        waiting = self._open[request[0]] = asyncio.get_running_loop().create_future()
        try:
            end = time.monotonic() + seconds
            while not self._connect(end, seconds):  # noqa: ASYNC110 a file: nothing tells of it
                await asyncio.sleep(LOOK_SECONDS)
            await self._socket.send_multipart(request)
            return decode_reply(await self._wait(waiting, end, seconds))
        finally:
            del self._open[request[0]]

    async def _wait(self, waiting: "asyncio.Future[bytes]", end: float, seconds: float) -> bytes:
        while (remaining := end - time.monotonic()) > 0:
            answered, _ = await asyncio.wait([waiting], timeout=min(remaining, SLICE_SECONDS))
            if answered:
                return waiting.result()
            check_daemon_may_answer(self._home, seconds - remaining)
        raise no_answer_error(self._home, seconds)

    async def _read(self) -> None:
        while True:
            frames = await self._socket.recv_multipart()
            waiting = self._open.get(frames[0]) if len(frames) == 2 else None
            if waiting and not waiting.done():
                waiting.set_result(frames[1])

    async def close(self) -> None:
        """Let the connection go."""
        if self._reader:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        self._end()


class LiveFeed:
    """Notices of what was committed, coalesced: the newest of each rollout and kind.

    A notice only says where to look. A reader that was slow, or away while the daemon was away,
    finds everything in the database by `seq`. The socket reconnects when a daemon comes back, and a
    changed `epoch` shows that it did.
    """

    def __init__(self, home: Home) -> None:
        context = zmq.asyncio.Context(1)
        self._socket = context.socket(zmq.SUB)
        self._end = weakref.finalize(self, close_socket, self._socket, context)
        set_socket_limits(self._socket)
        self._socket.subscribe(b"")
        self._socket.connect(home.socket("live"))

    async def __aiter__(self) -> AsyncIterator[Notice]:
        """Notices as they come, in order of `seq` within what came together."""
        while True:
            newest: dict[tuple[str, str], Notice] = {}
            frame = (await self._socket.recv_multipart())[-1]
            while True:
                # One of another version says nothing here: the database is looked at anyway.
                with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
                    notice = wire.notice_decoder.decode(frame)
                    newest[notice.rollout, notice.kind] = notice
                if not await self._socket.poll(0):
                    break
                frame = (await self._socket.recv_multipart())[-1]
            for notice in sorted(newest.values(), key=lambda notice: (notice.epoch, notice.seq)):
                yield notice

    def close(self) -> None:
        """Stop listening."""
        self._end()
