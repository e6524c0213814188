"""The messages between the supervisor and a shared worker: run this rollout, a rollout was left.

The line is a SOCK_SEQPACKET pair with one JSON message a packet. The supervisor closes its end when
it has no more rollouts for the worker, which exits when its last one has ended. This module has the
worker's end, `service.shared_workers` the supervisor's. Everything else about a rollout goes to the
recorder only.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

import msgspec

MESSAGE_BYTES = 65_536


class RunRollout(msgspec.Struct, frozen=True, tag=True):
    """Run this rollout until it ends, concurrently with those that run already."""

    rollout: str
    lease: int
    log: str
    """File for what is logged while it runs."""


class RolloutExited(msgspec.Struct, frozen=True, tag=True):
    """The worker no longer runs this rollout, and keeps running."""

    rollout: str
    lease: int
    code: int = 0
    """What a process of its own would have exited with: 0 when it left as it was meant to."""
    problem: str = ""
    """What went wrong, in a line, where it did."""


class WorkerLine:
    """The worker's end; used from its event loop only."""

    def __init__(self, line: socket.socket, take: Callable[[RunRollout], None]) -> None:
        """take: called with each rollout that is to be run; must not block."""
        self._line = line
        self._take = take
        self.closed = asyncio.Event()
        """Set when no more rollouts come."""
        asyncio.get_running_loop().add_reader(line, self._receive)

    def report(self, message: RolloutExited) -> None:
        """Say that a rollout was left."""
        # Never full: no more is said than rollouts were given that nobody has heard of since.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # nobody listens
            self._line.send(msgspec.json.encode(message))

    def _receive(self) -> None:
        try:
            data = self._line.recv(MESSAGE_BYTES)
        except ConnectionResetError:
            data = b""
        if data:
            self._take(msgspec.json.decode(data, type=RunRollout))
        else:
            asyncio.get_running_loop().remove_reader(self._line)
            self.closed.set()
