"""Workers that many short rollouts share: which one takes a rollout, and when one is let go.

A rollout of three steps is over in some milliseconds; a separate process would cost many times
that. Rollouts whose environment needs no host (`EnvironmentKind.shares_worker`) are therefore given
to processes that run several at once and take the next when one has ended. A rollout's guarantees
stay the same: each has its own lease, and when a shared worker dies, each of its rollouts
continues. `worker_pool` counts and restarts the workers; `agent.shared_worker` runs the rollouts.
"""

import itertools
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from houston_daemon.agent.shared_worker_line import MESSAGE_BYTES, RolloutExited, RunRollout
from houston_daemon.recorder.recorder_handle import Assignment
from houston_daemon.service.supervisor_inbox import SupervisorInbox

MAX_WORKER_ROLLOUTS = 2_000
"""After so many a worker takes no more: whatever a library keeps for each ends with its process."""
IDLE_SECONDS = 30.0
"""How long a worker without rollouts stays: the next group often comes within seconds."""


@dataclass(slots=True)
class _SharedWorker:
    name: str
    arguments: tuple[str, ...]
    """What it was started with: the engine's address and how it is asked."""
    line: socket.socket
    rollouts: dict[str, int] = field(default_factory=dict)
    """Rollout → lease, of those that it was given and has not left."""
    pid: int = 0
    """0 until it is born."""
    node: str = ""
    """Node of a cluster that it runs on; empty for this machine."""
    taken: int = 0
    """How many it was given so far."""
    idle_since: float = 0.0
    retired: bool = False
    """Whether it is given no more."""


StartProcess = Callable[[str, tuple[str, ...], socket.socket], None]
"""Starts a shared worker of a name, with arguments and its end of the line. Raises OSError."""
ArgumentsOf = Callable[[Assignment, Mapping[str, str]], tuple[str, ...]]
"""What the worker of an assignment is started with, given its engines' URLs: rollouts of which
that is the same can share one."""


class SharedWorkers:
    """The shared workers of one daemon; used from the supervisor's thread only."""

    def __init__(
        self,
        start: StartProcess,
        arguments_of: ArgumentsOf,
        log_of: Callable[[str], Path],
        inbox: SupervisorInbox,
        capacity: int,
    ) -> None:
        self._start_process = start
        self._arguments_of = arguments_of
        self._log_of = log_of
        self._inbox = inbox
        self.capacity = capacity
        """Rollouts that one runs at once, at most; with 1 none is shared."""
        self._workers: dict[str, _SharedWorker] = {}
        self._numbers = itertools.count(1)

    def __contains__(self, name: object) -> bool:
        """Whether a worker of this name lives."""
        return name in self._workers

    @property
    def starting_count(self) -> int:
        """Workers that were asked for and do not run yet."""
        return sum(not worker.pid for worker in self._workers.values())

    @property
    def pids(self) -> dict[str, int]:
        """Name → process id, of those that are born on this machine."""
        workers = self._workers.values()
        return {worker.name: worker.pid for worker in workers if worker.pid and not worker.node}

    def process_of(self, name: str) -> tuple[int, str]:
        """Process id of a worker, 0 until it is born, and its node."""
        worker = self._workers[name]
        return worker.pid, worker.node

    @property
    def has_room(self) -> bool:
        """Whether any takes another rollout; of another engine than it has, it does not."""
        return any(self._can_take(worker) for worker in self._workers.values())

    def give(self, assignment: Assignment, urls: Mapping[str, str]) -> str:
        """Have a worker run a rollout, a new one where none has room; its name. Raises OSError."""
        rollout, lease = assignment.spec.rollout, assignment.lease
        order = msgspec.json.encode(RunRollout(rollout, lease, str(self._log_of(rollout))))
        arguments = self._arguments_of(assignment, urls)
        worker = next(self._send_to_living(arguments, order), None)
        if worker is None:
            worker = self._start(arguments)
            worker.line.send(order)
        worker.rollouts[rollout] = lease
        worker.taken += 1
        return worker.name

    def on_started(self, name: str, pid: int, node: str = "") -> None:
        """Its process runs, on a node of a cluster or here."""
        self._workers[name].pid, self._workers[name].node = pid, node

    def leave(self, leaving: RolloutExited, now: float) -> None:
        """A worker runs a rollout no more."""
        for worker in self._workers.values():
            if worker.rollouts.get(leaving.rollout) == leaving.lease:
                del worker.rollouts[leaving.rollout]
                worker.idle_since = now

    def take_ended(self, name: str) -> tuple[list[RolloutExited], dict[str, int]]:
        """Forget a worker whose process has ended; returns its last messages and what it ran."""
        worker = self._workers.pop(name)
        leavings: list[RolloutExited] = []
        while data := _receive(worker.line):
            leavings.append(msgspec.json.decode(data, type=RolloutExited))
        for leaving in leavings:
            worker.rollouts.pop(leaving.rollout, None)
        return leavings, worker.rollouts

    def retire(self, name: str) -> None:
        """Give a worker no more: it was told to leave."""
        if name in self._workers:
            self._workers[name].retired = True

    def retire_idle_workers(self, now: float) -> None:
        """End workers that have had no rollout for a while, or take no more."""
        for worker in self._workers.values():
            spent = worker.retired or now - worker.idle_since > IDLE_SECONDS
            if worker.pid and not worker.rollouts and (spent or not self._can_take(worker)):
                worker.retired = True
                try:
                    worker.line.shutdown(socket.SHUT_WR)
                except OSError:  # it has ended, which is heard next
                    continue

    def _can_take(self, worker: _SharedWorker) -> bool:
        has_room = len(worker.rollouts) < self.capacity
        return has_room and not worker.retired and worker.taken < MAX_WORKER_ROLLOUTS

    def _send_to_living(self, arguments: tuple[str, ...], order: bytes) -> Iterator[_SharedWorker]:
        """Workers that were started so, have room, and took the order."""
        for worker in self._workers.values():
            if worker.arguments == arguments and self._can_take(worker):
                try:
                    worker.line.send(order, socket.MSG_DONTWAIT)
                except OSError:  # it has ended, which is heard next
                    worker.retired = True
                else:
                    yield worker

    def _start(self, arguments: tuple[str, ...]) -> _SharedWorker:
        name = f"shared.{next(self._numbers)}"  # no task's name has a dot
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._start_process(name, arguments, theirs)
            except OSError:
                ours.close()
                raise
        worker = self._workers[name] = _SharedWorker(name, arguments, ours)
        self._inbox.listen(ours, lambda: _read(ours))
        return worker


def _read(line: socket.socket) -> list[object] | None:
    """What a worker said; None when it has ended."""
    data = _receive(line)
    if data is None:
        return []
    if not data:
        line.close()
        return None
    return [msgspec.json.decode(data, type=RolloutExited)]


def _receive(line: socket.socket) -> bytes | None:
    """The next message, empty at the end of the line, None where nothing was said."""
    try:
        return line.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except OSError:
        return b""
