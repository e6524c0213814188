"""Workers that are alive now: their lease, how to reach them, how long they have been silent.

Kept in memory only: after a restart there are none until the supervisor assigns rollouts again.
Silence counts only time in which the recorder listened, so a busy recorder blames no worker. The
supervisor ends silent workers.
"""

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from houston_shared.times_and_counts import join_first
from houston_shared.wire import Heartbeat, ReplicaUse, WorkerControl

if TYPE_CHECKING:
    from houston_daemon.recorder.recorder_sockets import RouterSocket

MAX_TURN_SECONDS = 0.5
"""A turn of the recorder that takes longer was stopped, or starved: no worker is blamed for it."""

TROUBLE_LIMIT = 500
"""Characters of what a worker says that goes wrong."""
ENDED_WORKERS_KEPT = 10_000
"""The newest of those that have ended: last words come within moments of an end."""
ROLLOUTS_NAMED = 3
"""Of those that one trouble is of."""


class WorkerRoute(NamedTuple):
    """Where a worker is answered."""

    router: "RouterSocket"
    routing: bytes
    connection: int = 0
    """Over TCP, of two connections the later one has the higher number."""


@dataclass(slots=True)
class LiveWorker:
    """One worker, from its assignment until its process ended."""

    lease: int
    route: WorkerRoute | None = None
    """Where it was last heard from under this lease; None before its first message."""
    told_control: WorkerControl | None = None
    """What it was last told."""
    heard_at: float | None = None
    """Monotonic time of its newest message."""
    listened_seconds: float = 0.0
    """How long the recorder had listened, in all, when it heard of it last."""
    active_us: int = 0
    """Active time of its newest heartbeat; what it said with a step is in the journal."""
    replicas: Mapping[str, ReplicaUse] = field(default_factory=dict)
    """Of its engines that have several servers, the one that it keeps to."""
    trouble: str = ""
    """What goes wrong beside its steps, as its newest heartbeat says."""


class WorkerSilence(NamedTuple):
    """How long a worker has said nothing."""

    lease: int
    seconds: float
    """Only time in which the recorder listened."""


class PendingPush(NamedTuple):
    """Control state that a worker should hear now."""

    route: WorkerRoute
    control: WorkerControl


class LiveWorkers:
    """The live workers, by rollout."""

    def __init__(self) -> None:
        self._by_rollout: dict[str, LiveWorker] = {}
        self._ended: OrderedDict[str, LiveWorker] = OrderedDict()
        """The last worker of rollouts that have none now, the newest end last."""
        self.longest_silence = 0.0
        """Longest time between two messages of one worker so far, seconds."""
        self._listened_seconds = 0.0
        self._last_turn = time.monotonic()

    def note_turn(self, listening: bool) -> None:
        """Note a new turn of the recorder. listening: whether it listens to workers in it."""
        before, self._last_turn = self._last_turn, time.monotonic()
        if listening:
            self._listened_seconds += min(self._last_turn - before, MAX_TURN_SECONDS)

    def silences(self) -> dict[str, WorkerSilence]:
        """Rollout → how long its worker has said nothing; from its assignment on."""
        return {
            rollout: WorkerSilence(worker.lease, self._listened_seconds - worker.listened_seconds)
            for rollout, worker in self._by_rollout.items()
        }

    def add(self, rollout: str, lease: int) -> None:
        """A rollout was assigned; whoever ran it before counts no more."""
        self._ended.pop(rollout, None)
        self._by_rollout[rollout] = LiveWorker(lease, listened_seconds=self._listened_seconds)

    def note_message(self, rollout: str, lease: int, route: WorkerRoute) -> None:
        """Record a message under the newest lease that came from `route`.

        Late messages of a worker that has ended do not make it live again.
        """
        worker = self._by_rollout.get(rollout)
        if worker is None and self._has_ended(rollout, lease):
            return
        if worker is None or worker.lease != lease:
            # A worker that outlived the daemon's memory of it (a remote one): its lease is proof.
            worker = self._by_rollout[rollout] = LiveWorker(lease)
        now = time.monotonic()
        if worker.heard_at is not None:
            self.longest_silence = max(self.longest_silence, now - worker.heard_at)
        worker.heard_at = now
        worker.listened_seconds = self._listened_seconds
        worker.route = route

    def has_later_line(self, rollout: str, lease: int, route: WorkerRoute) -> bool:
        """Whether the worker already uses a later connection: a message over this one was sent
        before, and again over the later one (a tunnel that hung delivers it late)."""
        worker = self._by_rollout.get(rollout)
        newest = worker.route if worker is not None and worker.lease == lease else None
        return newest is not None and route.connection < newest.connection

    def note_heartbeat(self, message: Heartbeat) -> None:
        """What a heartbeat tells that is in no journal."""
        worker = self._by_rollout.get(message.rollout)
        if worker is not None:
            worker.active_us = message.active_us
            worker.replicas = message.replicas
            worker.trouble = message.trouble[:TROUBLE_LIMIT]

    def troubles(self) -> dict[str, str]:
        """Problems outside the steps of rollouts; a problem that many share is listed once."""
        rollouts: dict[str, list[str]] = {}
        for rollout, worker in self._by_rollout.items():
            if worker.trouble:
                rollouts.setdefault(worker.trouble, []).append(rollout)
        return {
            join_first(sorted(names), ROLLOUTS_NAMED): trouble
            for trouble, names in rollouts.items()
        }

    def replica_uses(self) -> list[tuple[str, ReplicaUse]]:
        """Engine and replica, once for each rollout that keeps to it."""
        return [use for worker in self._by_rollout.values() for use in worker.replicas.items()]

    def remove(self, rollout: str, lease: int) -> int:
        """Remove an ended worker; returns its last heartbeat's active time, 0 for an old lease.

        A second call, after a transaction was rolled back, returns the same.
        """
        worker = self._by_rollout.get(rollout)
        if worker is not None and worker.lease == lease:
            self._ended[rollout] = self._by_rollout.pop(rollout)
            self._ended.move_to_end(rollout)
            if len(self._ended) > ENDED_WORKERS_KEPT:
                self._ended.popitem(last=False)
        return self._ended[rollout].active_us if self._has_ended(rollout, lease) else 0

    def _has_ended(self, rollout: str, lease: int) -> bool:
        ended = self._ended.get(rollout)
        return ended is not None and ended.lease == lease

    def get(self, rollout: str) -> LiveWorker | None:
        """The live worker of a rollout."""
        return self._by_rollout.get(rollout)

    def rollouts(self) -> list[str]:
        """Rollouts with a live worker."""
        return list(self._by_rollout)

    def pending_push(self, rollout: str, control: WorkerControl) -> PendingPush | None:
        """What must be sent so that the worker knows `control`; None when it does, or is silent."""
        worker = self._by_rollout.get(rollout)
        if worker is None or worker.route is None or worker.told_control == control:
            return None
        worker.told_control = control
        return PendingPush(worker.route, control)
