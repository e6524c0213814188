"""Workers as the recorder's benchmark needs them: many sockets, one message under way on each.

What they say is encoded before the clock runs; only the rollout's id is put in when it is sent.
"""

import select
import time
from collections.abc import Iterator
from typing import Any

import zmq

from houston_shared import records, wire
from houston_shared.home import Home
from tests.support.recorder_client import result, sample

TEXT = 2_000
"""Bytes of text in each long message."""
STEPS = 4_000
"""More than any rollout comes to in a run."""
REQUEST = b"\0" * 7 + b"\1"
_EMPTY = b"\xa7rollout\xa0"


class Script:
    """The messages of one worker, cut where the rollout's id belongs."""

    def __init__(self, short: str, steps: int = STEPS) -> None:
        """short: the text of intents and observations; samples and results have a long one."""
        said = "x" * TEXT
        self.halves: list[tuple[bytes, bytes]] = []
        for step in range(1, steps + 1):
            at: dict[str, Any] = {"rollout": "", "lease": 1, "step": step, "attempt": 1}
            run = records.ToolCall(id=f"{step}.0", name="run_command", arguments={"command": short})
            for message in (
                wire.StoreSample(**at, sample=sample(step, thought=said)),
                wire.StoreIntent(**at, index=0, intent=records.CallIntent(call=run)),
                wire.StoreResult(**at, index=0, result=result(step, text=said)),
                wire.StoreObservation(**at, observation=records.ObservationBody(tail=short)),
            ):
                before, found, after = wire.encode_message(message).partition(_EMPTY)
                assert found
                self.halves.append((before + _EMPTY[:-1], after))

    def bodies(self, count: int, rollout: str = "probe-abcd") -> list[bytes]:
        """The first messages of a rollout, whole."""
        name = _name(rollout)
        return [before + name + after for before, after in self.halves[:count]]


def shapes() -> dict[str, Script]:
    """The kinds of load: every message of 2 KB, and a step as real tools make it."""
    return {"2 KB": Script("y" * TEXT), "step": Script("[step]")}


def _name(rollout: str) -> bytes:
    return wire.encode_message(rollout)


class Clients:
    """One socket a rollout."""

    def __init__(
        self, context: "zmq.Context[Any]", home: Home, rollouts: list[str], script: Script
    ) -> None:
        self._context = context
        self._halves = script.halves
        self._poller = select.epoll()
        self._sockets: dict[int, Any] = {}
        """By the descriptor that says that something came: a poll of all would cost most of all."""
        self._names: dict[Any, bytes] = {}
        self._next: dict[Any, int] = {}
        self._sent: dict[Any, float] = {}
        self.waits: list[float] = []
        """Seconds from sending to the ack, of the last `work`."""
        self.total = 0
        for rollout in rollouts:
            socket = context.socket(zmq.DEALER)
            socket.connect(home.socket("ingest"))
            self._poller.register(socket.FD, select.EPOLLIN)
            self._sockets[socket.FD] = socket
            self._names[socket] = _name(rollout)
            self._next[socket] = 0

    def work(self, seconds: float) -> None:
        """Keep every client busy for a while, then take the last acks."""
        self.waits = []
        end = time.perf_counter() + seconds
        for socket in self._next:
            self._say(socket)
        while time.perf_counter() < end:
            for socket in self._ready():
                self._hear(socket)
                self._say(socket)
        done = len(self.waits)
        while self._sent:
            for socket in self._ready():
                self._hear(socket)
        self.total += len(self.waits)
        del self.waits[done:]

    def close(self) -> None:
        """Hang up."""
        self._context.destroy(linger=0)

    def _ready(self) -> Iterator[Any]:
        """Sockets with an answer, at once each.

        ZeroMQ gives a sign only for what comes after it was asked, so whoever was served is asked.
        """
        for descriptor, _ in self._poller.poll(1):
            socket = self._sockets[descriptor]
            while socket.EVENTS & zmq.POLLIN:
                yield socket

    def _say(self, socket: Any) -> None:
        number = self._next[socket]
        before, after = self._halves[number]
        self._next[socket] = number + 1
        self._sent[socket] = time.perf_counter()
        socket.send(REQUEST, zmq.SNDMORE)
        socket.send(before + self._names[socket] + after)

    def _hear(self, socket: Any) -> None:
        reply = socket.recv_multipart()
        if reply[0] == wire.PUSH_REQUEST_ID:
            raise SystemExit("nobody steers here, yet a push came")
        if b"\xa3Ack" not in reply[1][:12]:
            raise SystemExit(f"refused: {wire.ingest_reply_decoder.decode(reply[1])}")
        self.waits.append(time.perf_counter() - self._sent.pop(socket))
