"""The interface between supervisor and recorder: calls, and the events that come back.

The supervisor holds a `RecorderHandle`; every call may come from any thread and returns after the
commit of what it changed. Also defines the events that the supervisor receives and its report for
the status. `recorder_thread` implements the interface.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from houston_daemon.recorder.live_workers import WorkerSilence
from houston_shared.config_sections import RoleSettings
from houston_shared.control_messages import NodeStatus, ReplicaStatus, Status
from houston_shared.records import RolloutSpec
from houston_shared.store.training_event_bodies import RunState
from houston_shared.wire import EngineReplica, ReplicaUse


@dataclass(frozen=True, slots=True)
class Assignment:
    """A rollout given to a worker."""

    spec: RolloutSpec
    lease: int
    """Raised at each assignment; messages with an older one are refused."""


@dataclass(frozen=True, slots=True)
class RunnableChanged:
    """Rollouts may have become runnable (queued, resumed), or one without a worker ended or was
    paused: check them."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """A person asked the daemon to stop."""

    keep_engine: bool


@dataclass(frozen=True, slots=True)
class RecorderFailed:
    """The recorder's thread ended by an exception: nothing further is acked."""

    cause: str
    damaged: bool = False
    """Whether the database itself cannot be read or written any more."""


@dataclass(frozen=True, slots=True)
class SupervisorReport:
    """What the supervisor says of the processes it keeps, for the status."""

    workers: int = 0
    engines: Mapping[str, str] = field(default_factory=dict)
    """Engine name → `ready`, `starting`, `down: <reason>`, or `failing: <reason>`: it is
    there, and workers wait for its answers."""
    error: str = ""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """`workers`, `engines`, `fork_servers` → how many were started again since the daemon began."""
    troubles: Mapping[str, str] = field(default_factory=dict)
    """What keeps ending → how often, when it is tried again, what it said last."""
    backup: tuple[float, int] | None = None
    """When the newest backup was made (POSIX time), and which event; None without one."""
    gpus: Mapping[str, str] = field(default_factory=dict)
    """Host → which of its GPUs are leased; `waiting` → who waits for one."""
    training: Mapping[str, str] = field(default_factory=dict)
    """Training run → how far it has come, in words."""
    policies: Mapping[str, str] = field(default_factory=dict)
    """Engine → the policy that its new rollouts sample with."""
    replicas: Mapping[str, tuple[ReplicaStatus, ...]] = field(default_factory=dict)
    """Engine that has several servers → how each stands."""
    nodes: tuple[NodeStatus, ...] = ()
    """Nodes of the cluster; empty without one."""
    unplaced: Mapping[str, str] = field(default_factory=dict)
    """Rollout → why it waits for a node."""


RecorderEvent = RunnableChanged | StopRequested | RecorderFailed
NotifySupervisor = Callable[[RecorderEvent], None]
"""Called from the recorder's thread; must not block."""


class RecorderHandle(Protocol):
    """The recorder as the supervisor sees it."""

    epoch: int
    """Raised at every start of the daemon."""

    def start(self) -> None:
        """Open and migrate the database, bind the sockets; raises HoustonError with the cause."""
        ...

    def runnable(self) -> list[str]:
        """Rollouts in `queued` or `running` without a live worker, oldest first."""
        ...

    def assign(self, rollout: str) -> Assignment:
        """Raise the lease, move to `running` if queued, and give the spec."""
        ...

    def worker_ended(self, rollout: str, lease: int, failure: str) -> None:
        """A worker process ended. With `failure`, the rollout fails with that reason.

        Does nothing when the lease is old or the rollout has ended.
        """
        ...

    def silences(self) -> dict[str, WorkerSilence]:
        """Rollout → how long its worker has said nothing."""
        ...

    def report(self, report: SupervisorReport) -> None:
        """What `Status` says about workers and engines from now on."""
        ...

    def status(self, patience: float) -> Status:
        """How the daemon stands. Raises TimeoutError when the recorder is silent for so long."""
        ...

    def use_roles(self, roles: RoleSettings) -> None:
        """Set who may do what. Raises ConfigurationError, and then keeps the previous roles."""
        ...

    def pause_for_engine(self, engine: str, down: bool, reason: str = "") -> None:
        """Pause (by `engine`), or resume, the rollouts that sample from `engine`."""
        ...

    def use_replicas(self, replicas: Mapping[str, tuple[EngineReplica, ...]]) -> None:
        """Set the servers of each engine that has several; workers are notified at once."""
        ...

    def replica_uses(self) -> list[tuple[str, ReplicaUse]]:
        """Engine and replica, once for each rollout that keeps to it."""
        ...

    def report_training_state(
        self, run: str, state: RunState, reason: str = "", start: bool = False
    ) -> None:
        """Store the state of a training run; start: a process for it began. Ignores ended runs."""
        ...

    def report_activation(
        self, asked: int, ok: bool, reason: str = "", unloaded: tuple[str, ...] = ()
    ) -> None:
        """Store the result of the activation that the event `asked` requested."""
        ...

    def drain(self) -> None:
        """Tell every worker to leave at the next safe point."""
        ...

    def stop(self) -> None:
        """Answer what is queued, checkpoint, close the database, unbind. Idempotent."""
        ...
