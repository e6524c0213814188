"""The three sockets: bound with their limits, read as frames with the sender's identity.

Knows frames and peers, not what messages mean. All calls belong to the recorder's thread.
"""

import contextlib
from typing import NamedTuple

import zmq

from houston_daemon.recorder.disk import folders
from houston_daemon.recorder.people.identity import Identities, Peer
from houston_shared.errors import HoustonError
from houston_shared.faults import point
from houston_shared.home import Home
from houston_shared.wire import FRAME_LIMIT, PUSH, encode

HIGH_WATER = 1_000
"""Messages a socket queues for or from one peer; beyond, peers wait or miss notices."""
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)  # as numbers: enum arithmetic costs a microsecond
_LAST = int(zmq.NOBLOCK)

LINGER_MS = 500
"""How long the last answers may take to leave at a stop."""


class Frames(NamedTuple):
    """One message as it came."""

    routing: bytes
    request: bytes
    """Request id, 8 bytes; `PUSH` when the frames were malformed."""
    body: bytes | None
    """None when the frames were malformed."""
    peer: Peer | None
    """None without credentials."""


class Router:
    """`ingest` or `control`."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", identities: Identities) -> None:
        self.socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        _limit(self.socket)
        # An answer to somebody who has gone must fail here, not vanish.
        self.socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self._identities = identities

    def receive(self) -> Frames | None:
        """The next message, None when there is none."""
        try:
            first = last = self.socket.recv(_LAST, copy=False)
        except zmq.Again:
            return None
        rest: list[bytes] = []
        while last.more:  # the parts of a message come all at once
            last = self.socket.recv(_LAST, copy=False)
            rest.append(last.bytes)
        peer = self._identities.peer(_address(first))
        if len(rest) != 2 or len(rest[0]) != len(PUSH):
            request = rest[0] if len(rest[0]) == len(PUSH) else PUSH
            return Frames(first.bytes, request, None, peer)
        return Frames(first.bytes, rest[0], rest[1], peer)

    def send(self, routing: bytes, request: bytes, message: object) -> bool:
        """Send an answer or push; False when the peer has gone or does not read."""
        try:
            self.socket.send(routing, _MORE)
            self.socket.send(request, _MORE)
            self.socket.send(encode(message), _LAST)
        except zmq.ZMQError as problem:
            if problem.errno in (zmq.EAGAIN, zmq.EHOSTUNREACH):
                return False
            raise
        return True


class Live:
    """`live`: notices to whoever listens."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self.socket: zmq.Socket[bytes] = context.socket(zmq.XPUB)
        _limit(self.socket)
        # Every subscription and its end is reported, so that consoles can be counted.
        self.socket.setsockopt(zmq.XPUB_VERBOSER, 1)
        self.listeners = 0

    def count(self) -> None:
        """Take in who came and who went."""
        with contextlib.suppress(zmq.Again):
            while True:
                change = self.socket.recv(zmq.NOBLOCK)
                if change[:1] in (b"\0", b"\1"):
                    self.listeners = max(0, self.listeners + (1 if change[:1] == b"\1" else -1))

    def publish(self, message: object) -> None:
        """Send a notice to those who listen; who does not read misses it."""
        if self.listeners:
            with contextlib.suppress(zmq.Again):
                self.socket.send(encode(message), zmq.NOBLOCK)


def bind(socket: "zmq.Socket[bytes]", home: Home, name: str, group: str) -> None:
    """Bind a socket and give it its mode; raises HoustonError."""
    try:
        point("recorder.bind.before")
        socket.bind(home.socket(name))
        point("recorder.bind.after")
        folders.open_socket(home, name, group)
    except (zmq.ZMQError, OSError) as problem:
        raise HoustonError(
            f"The socket {home.run / name}.sock cannot be bound ({problem.strerror}).",
            "The daemon was not started.",
            "houston daemon status",
        ) from None


def _limit(socket: "zmq.Socket[bytes]") -> None:
    socket.setsockopt(zmq.MAXMSGSIZE, FRAME_LIMIT)
    socket.setsockopt(zmq.SNDHWM, HIGH_WATER)
    socket.setsockopt(zmq.RCVHWM, HIGH_WATER)
    socket.setsockopt(zmq.LINGER, LINGER_MS)


def _address(frame: zmq.Frame) -> str | None:
    """The sender's address as the kernel gave it; None over transports without credentials."""
    try:
        found = frame.get("Peer-Address")
    except zmq.ZMQError:
        return None
    return found if isinstance(found, str) else None
