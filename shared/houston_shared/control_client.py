"""Speak to the daemon over `control`, and listen on `live`: for commands and for the console.

Whether a daemon runs is read from the lock of the home, never guessed from a long silence: without
one the answer is `DaemonNotRunning` at once. It knows frames and requests; what a message means
is for who sends it. Sending a message again is safe where the message carries an id of its own.
"""

import asyncio
import itertools
import time
import weakref
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

import zmq
import zmq.asyncio

from houston_shared import wire
from houston_shared.errors import (
    AnswerLost,
    DaemonNotRunning,
    ExitCode,
    Frozen,
    HoustonError,
    NoAnswer,
)
from houston_shared.home import Home
from houston_shared.lock import Owner, holder
from houston_shared.standing import stands, stopped
from houston_shared.trust import Trust
from houston_shared.wire import ControlRequest, Denied, Done, Notice, Status

TIMEOUT_SECONDS = 10.0
"""How long an answer may take before the client says that none came."""
_FROZEN_SECONDS = 1.0
"""How long a daemon that a signal has stopped may take to be let go on."""
_SLICE_SECONDS = 0.2
_LOOK_SECONDS = 0.02


class ControlClient:
    """One synchronous connection; for commands."""

    def __init__(self, home: Home, timeout: float = TIMEOUT_SECONDS) -> None:
        self._home = home
        self._timeout = timeout
        context = zmq.Context(1)
        self._socket = context.socket(zmq.DEALER)
        self._end = weakref.finalize(self, _end, self._socket, context)
        _limit(self._socket)
        self._endpoint = ""
        self._trust = Trust(home, "control")
        self._ids = itertools.count(1)

    def ask(self, message: ControlRequest, timeout: float | None = None) -> Done | Status:
        """Send `message` and return its answer.

        timeout: seconds, the client's own when None.
        Raises DaemonNotRunning when no daemon holds the home, AnswerLost when it ends before it
        answers, and HoustonError with the daemon's own words when it denies, when it says nothing,
        or when somebody else listens in its place.
        """
        _must_run(self._home)
        wait = self._timeout if timeout is None else timeout
        request = next(self._ids).to_bytes(8, "big")
        words = [request, _body(message)]
        end = time.monotonic() + wait
        while not self._trust.ready():
            _wait_for_daemon(self._home, end, wait)
            time.sleep(_LOOK_SECONDS)
        self._endpoint = _reach(self._socket, self._home, self._endpoint)
        self._socket.send_multipart(words)
        while (left := end - time.monotonic()) > 0:
            if not self._socket.poll(int(1000 * min(left, _SLICE_SECONDS)) or 1):
                _may_answer(self._home, wait - left)
                continue
            frames = self._socket.recv_multipart()
            if len(frames) == 2 and frames[0] == request:
                return _answer(frames[1])
        raise no_answer(self._home, wait)

    def close(self) -> None:
        """Let the connection go; what was not sent by now is dropped."""
        self._end()

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


class AsyncControlClient:
    """The same for an event loop; questions may overlap. Use it from one loop."""

    def __init__(self, home: Home, timeout: float = TIMEOUT_SECONDS) -> None:
        self._home = home
        self._timeout = timeout
        context = zmq.asyncio.Context(1)
        self._socket = context.socket(zmq.DEALER)
        self._end = weakref.finalize(self, _end, self._socket, context)
        _limit(self._socket)
        self._endpoint = ""
        self._trust = Trust(home, "control")
        self._ids = itertools.count(1)
        self._open: dict[bytes, asyncio.Future[bytes]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def ask(self, message: ControlRequest, timeout: float | None = None) -> Done | Status:
        """As `ControlClient.ask`."""
        _must_run(self._home)
        wait = self._timeout if timeout is None else timeout
        self._reader = self._reader or asyncio.create_task(self._read())
        request = next(self._ids).to_bytes(8, "big")
        waiting = self._open[request] = asyncio.get_running_loop().create_future()
        try:
            end = time.monotonic() + wait
            while not self._trust.ready():
                _wait_for_daemon(self._home, end, wait)
                await asyncio.sleep(_LOOK_SECONDS)
            self._endpoint = _reach(self._socket, self._home, self._endpoint)
            await self._socket.send_multipart([request, _body(message)])
            return _answer(await self._wait(waiting, wait))
        finally:
            del self._open[request]

    async def _wait(self, waiting: "asyncio.Future[bytes]", seconds: float) -> bytes:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            done, _ = await asyncio.wait([waiting], timeout=min(left, _SLICE_SECONDS))
            if done:
                return waiting.result()
            _may_answer(self._home, seconds - left)
        raise no_answer(self._home, seconds)

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

    A notice only says where to look; who was slow, or away while the daemon was, finds everything
    in the database by `seq`. The socket connects again by itself when a daemon comes back, and a
    changed `epoch` says that it did.
    """

    def __init__(self, home: Home) -> None:
        context = zmq.asyncio.Context(1)
        self._socket = context.socket(zmq.SUB)
        self._end = weakref.finalize(self, _end, self._socket, context)
        _limit(self._socket)
        self._socket.subscribe(b"")
        self._socket.connect(home.socket("live"))

    async def __aiter__(self) -> AsyncIterator[Notice]:
        """Notices as they come, in order of `seq` within what came together."""
        while True:
            newest: dict[tuple[str, str], Notice] = {}
            frame = (await self._socket.recv_multipart())[-1]
            while True:
                notice = wire.notice.decode(frame)
                newest[notice.rollout, notice.kind] = notice
                if not await self._socket.poll(0):
                    break
                frame = (await self._socket.recv_multipart())[-1]
            for notice in sorted(newest.values(), key=lambda notice: (notice.epoch, notice.seq)):
                yield notice

    def close(self) -> None:
        """Stop listening."""
        self._end()


def _end(socket: "zmq.Socket[Any]", context: "zmq.Context[Any]") -> None:
    """Close both, asked or when nobody holds their owner any more.

    A forgotten socket would otherwise hang the collector, which ends a context by waiting for it.
    """
    socket.close(linger=0)
    context.term()


def _reach(socket: "zmq.Socket[bytes] | zmq.asyncio.Socket", home: Home, before: str) -> str:
    """Connect to where `control` is now, if that is not where it was; returns where it is."""
    now = home.socket("control")
    if now != before:
        if before:
            socket.disconnect(before)
        socket.connect(now)
    return now


def _limit(socket: "zmq.Socket[bytes] | zmq.asyncio.Socket") -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, wire.FRAME_LIMIT)
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)


def _wait_for_daemon(home: Home, end: float, seconds: float) -> None:
    """Raise when nobody is there to wait for, or when it took too long; nothing was sent yet."""
    _must_run(home)
    if time.monotonic() > end:
        raise no_answer(home, seconds)


def _must_run(home: Home, asked: bool = False) -> Owner:
    owner = holder(home)
    if owner is not None:
        return owner
    cause = f"No daemon runs on {home.path}."
    if asked:
        raise AnswerLost(cause, "It ended before it answered.")
    raise DaemonNotRunning(cause)


def _may_answer(home: Home, waited: float) -> None:
    """Raise where the answer to a question `waited` seconds old will not come."""
    owner = _must_run(home, asked=True)
    if waited > _FROZEN_SECONDS and stopped(owner.pid):
        raise no_answer(home, waited)


def no_answer(home: Home, seconds: float) -> NoAnswer:
    """What is said after a silence of so many seconds, with its reason where that can be seen."""
    owner = holder(home)
    pid = owner.pid if owner else 0
    who = f"The daemon (pid {pid})" if pid else "The daemon"
    said = f"{who} did not answer in {round(seconds, 1):g} s"
    asked = "Whether it did what was asked is not known."
    if stopped(pid):
        return Frozen(f"{said}: {stands(pid)}.", asked, f"kill -CONT {pid}", ExitCode.BUSY)
    socket = home.run / "control.sock"
    if not socket.exists():
        return NoAnswer(
            f"{said}: there is no socket {socket}; it may still be starting.",
            "Nothing was sent.",
            "houston daemon logs",
            ExitCode.BUSY,
        )
    why = stands(pid)
    return NoAnswer(f"{said}{why and ': '}{why}.", asked, "houston daemon logs", ExitCode.BUSY)


def _body(message: ControlRequest) -> bytes:
    """The message as bytes; a longer one would only cut the connection."""
    body = wire.encode(message)
    if len(body) > wire.FRAME_LIMIT:
        raise HoustonError(
            f"The message has {len(body) / 1e6:,.0f} MB; the daemon takes at most "
            f"{wire.FRAME_LIMIT / 1e6:,.0f}.",
            "Nothing was sent.",
            "Ask for fewer at once, or for something shorter.",
            ExitCode.USAGE,
        )
    return body


def _answer(body: bytes) -> Done | Status:
    reply: wire.ControlReply = wire.control_reply.decode(body)
    if isinstance(reply, Denied):
        code = ExitCode(reply.code) if reply.code in set(ExitCode) else ExitCode.FAILED
        raise HoustonError(reply.cause, reply.effect, reply.next, code)
    return reply
