"""The recorder's three sockets: bound with their limits and modes, and read as frames.

`ingest` is for workers, `control` for people, `live` for notices; with each frame the kernel names
its sender. A socket whose file was removed is bound again within a second. Also has the pipe that
wakes the recorder's poll from another thread. `message_intake` interprets the messages. All calls
belong to the recorder's thread.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import zmq

from houston_daemon.recorder.disk import home_files
from houston_daemon.recorder.identity_and_roles import Peer, PeerIdentities
from houston_shared.errors import HoustonError
from houston_shared.faults import point
from houston_shared.home import Home
from houston_shared.wire import FRAME_LIMIT, NOTICE_START, PUSH_REQUEST_ID, encode_message


class WakeupPipe:
    """Written from any thread, read by the recorder's."""

    def __init__(self) -> None:
        self.descriptor, self._end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wake(self) -> None:
        """End the sleep; from any thread."""
        try:
            os.write(self._end, b"\0")
        except BlockingIOError:
            return  # the pipe is full of wakes already

    def drain(self) -> None:
        """Take in every wake so far."""
        with contextlib.suppress(BlockingIOError):  # a message or the clock woke us, nobody else
            os.read(self.descriptor, 65_536)

    def close(self) -> None:
        """Nobody may wake afterwards."""
        os.close(self.descriptor)
        os.close(self._end)


HIGH_WATER = 1_000
"""Messages a socket queues for or from one peer; beyond, peers wait or miss notices."""
_SEND_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)  # as numbers: enum arithmetic costs a microsecond
_SEND_LAST = int(zmq.NOBLOCK)

LINGER_MS = 500
"""How long the last answers may take to leave at a stop."""


class ReceivedFrames(NamedTuple):
    """One message as it came."""

    routing: bytes
    request: bytes
    """Request id, 8 bytes; `PUSH` when the frames were malformed."""
    body: bytes | None
    """None when the frames were malformed."""
    peer: Peer | None
    """None without credentials."""


class RouterSocket:
    """`ingest` or `control`."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        identify: Callable[[zmq.Frame], Peer | None],
    ) -> None:
        """identify: who sent a frame; None for who cannot be told."""
        self.socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        _set_limits(self.socket)
        # An answer to somebody who has gone must fail here, not vanish.
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._identify = identify

    def receive(self) -> ReceivedFrames | None:
        """The next message, None when there is none."""
        try:
            first = last = self.socket.recv(_SEND_LAST, copy=False)
        except zmq.Again:
            return None
        rest: list[bytes] = []
        while last.more:  # the parts of a message come all at once
            last = self.socket.recv(_SEND_LAST, copy=False)
            rest.append(last.bytes)
        peer = self._identify(first)
        if len(rest) != 2 or len(rest[0]) != len(PUSH_REQUEST_ID):
            request = rest[0] if len(rest[0]) == len(PUSH_REQUEST_ID) else PUSH_REQUEST_ID
            return ReceivedFrames(first.bytes, request, None, peer)
        return ReceivedFrames(first.bytes, rest[0], rest[1], peer)

    def connection_of(self, routing: bytes) -> int:
        """The number of a peer's TCP connection, higher for later ones; 0 for local peers."""
        del routing
        return 0

    def send(self, routing: bytes, request: bytes, message: object) -> bool:
        """Send an answer or push; False when the peer has gone or does not read."""
        try:
            self.socket.send(routing, _SEND_MORE)
            self.socket.send(request, _SEND_MORE)
            self.socket.send(encode_message(message), _SEND_LAST)
        except zmq.ZMQError as problem:
            if problem.errno in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                return False
            raise
        return True


class LiveSocket:
    """`live`: notices to whoever listens."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self.socket: zmq.Socket[bytes] = context.socket(zmq.XPUB)
        _set_limits(self.socket)
        # Every subscription and its end is reported, so that consoles can be counted.
        self.socket.setsockopt(zmq.XPUB_VERBOSER, 1)
        self.consoles = 0
        """Who subscribed to everything: consoles, and commands that follow."""
        self._processes = 0
        """Who subscribed to `NOTICE_START`: processes of the daemon itself."""

    def count_listeners(self) -> None:
        """Take in who came and who went."""
        with contextlib.suppress(zmq.Again):
            while True:
                change = self.socket.recv(zmq.NOBLOCK)
                if change[:1] in (b"\0", b"\1"):
                    self._count(1 if change[:1] == b"\1" else -1, change[1:] == NOTICE_START)

    def _count(self, more: int, is_process: bool) -> None:
        if is_process:
            self._processes = max(0, self._processes + more)
        else:
            self.consoles = max(0, self.consoles + more)

    @property
    def has_listeners(self) -> bool:
        """Whether anybody would hear a notice."""
        return bool(self.consoles or self._processes)

    def publish(self, message: object) -> None:
        """Send a notice to those who listen; who does not read misses it."""
        if self.has_listeners:
            with contextlib.suppress(zmq.Again):
                self.socket.send(encode_message(message), zmq.NOBLOCK)


def bind_socket(socket: "zmq.Socket[bytes]", home: Home, name: str, group: str) -> None:
    """Bind a socket and give it its mode; raises HoustonError."""
    try:
        point("recorder.bind.before")
        socket.bind(home.socket(name))
        point("recorder.bind.after")
        home_files.share_socket(home, name, group)
    except (zmq.ZMQError, OSError) as problem:
        raise HoustonError(
            f"The socket {home.run / name}.sock cannot be bound ({problem.strerror}).",
            "The daemon was not started.",
            "houston daemon status",
        ) from None


def _set_limits(socket: "zmq.Socket[bytes]") -> None:
    socket.setsockopt(zmq.MAXMSGSIZE, FRAME_LIMIT)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER)
    socket.setsockopt(zmq.LINGER, LINGER_MS)


def kernel_identity(identities: PeerIdentities) -> Callable[[zmq.Frame], Peer | None]:
    """The sender of a frame as the kernel names it; None over transports without credentials."""

    def identify(frame: zmq.Frame) -> Peer | None:
        try:
            address = frame.get("Peer-Address")
        except zmq.ZMQError:
            return None
        return identities.peer(address) if isinstance(address, str) else None

    return identify


LOGGER = logging.getLogger("houston.recorder")

SOCKET_CHECK_SECONDS = 1.0


class SocketBindings:
    """All sockets of one recorder; belongs to its thread."""

    def __init__(self, home: Home, sockets: "Mapping[str, zmq.Socket[bytes]]") -> None:
        """sockets: by their names in `run/`."""
        self._home = home
        self._sockets = sockets
        self._group = ""
        self._inodes: dict[str, int] = {}
        self._due = 0.0
        self._problem = ""

    def open(self, group: str) -> None:
        """Bind them all, for the members of `group`, too; raises HoustonError."""
        self._group = group
        for name in self._sockets:
            self._bind(name)

    def check(self, now: float) -> None:
        """Bind sockets again whose file is gone. now: monotonic seconds."""
        if now < self._due:
            return
        self._due = now + SOCKET_CHECK_SECONDS
        for name, inode in self._inodes.items():
            if _inode_of(self._path(name)) != inode:
                self._rebind(name)

    def close(self) -> None:
        """Remove their names."""
        for name in self._sockets:
            self._path(name).unlink(missing_ok=True)

    def _rebind(self, name: str) -> None:
        try:
            home_files.remake_run_folder(self._home, self._group)
            self._sockets[name].unbind(self._home.socket(name))
            self._bind(name)
        except (HoustonError, OSError, zmq.ZMQError) as problem:  # tried again
            if str(problem) != self._problem:
                LOGGER.error("%s cannot be bound again: %s", self._path(name), problem)
            self._problem = str(problem)
            return
        self._problem = ""
        LOGGER.warning("%s was removed: bound again", self._path(name))

    def _bind(self, name: str) -> None:
        bind_socket(self._sockets[name], self._home, name, self._group)
        self._inodes[name] = _inode_of(self._path(name))

    def _path(self, name: str) -> Path:
        return self._home.run / f"{name}.sock"


def _inode_of(path: Path) -> int:
    """0 where there is nothing, or nobody may look."""
    try:
        return path.lstat().st_ino
    except OSError:
        return 0
