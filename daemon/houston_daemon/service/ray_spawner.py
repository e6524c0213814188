"""Starts workers on the nodes of a Ray cluster, for a pool that does not know the difference.

As with the fork server, one process does this (`ray_cluster`), and `worker_spawner` keeps it alive;
this module has what a cluster needs in addition. A rollout gets a place before it gets a lease, so
a rollout that waits for a node stays in `queued`, and the status says for what. A rollout that has
worked on a node returns there while that node lives, because its workspace may be on that node's
disk; on another one its worker is told where it was. Everything here belongs to the supervisor's
main thread.
"""

import socket
import sqlite3
import time
from collections.abc import Mapping
from importlib.util import find_spec

import msgspec

from houston_daemon.recorder.recorder_handle import RunnableChanged
from houston_daemon.service.daemon_log import FORK_SERVER_LOG, LOGGER, worker_log_path
from houston_daemon.service.fork_server import (
    ForkServerPong,
    StartWorker,
    WorkerEnded,
    WorkerStarted,
)
from houston_daemon.service.ray_messages import (
    SPARE_PLACE,
    ClusterNode,
    ClusterSettings,
    PlaceFound,
    PlacePending,
    PlaceRequest,
    ReleasePlace,
    SignalWorker,
    StartAtPlace,
)
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_daemon.service.supervisor_queries import read_living_rollouts
from houston_daemon.service.worker_spawner import WorkerSpawner
from houston_shared.atomic_file import write_atomically
from houston_shared.config import LoadedConfiguration
from houston_shared.config_sections import LOCAL_HOST
from houston_shared.control_messages import NodeStatus
from houston_shared.errors import ConfigurationError
from houston_shared.home import Home
from houston_shared.node_places import (
    NodePlace,
    NodePlaces,
    node_places_file,
    read_node_places,
)
from houston_shared.records import RolloutSpec
from houston_shared.task import parse_task_record

UNWANTED_SECONDS = 30.0
"""A place that nobody has asked for again for so long is let go: its rollout was paused, or is
over."""
ASK_AGAIN_SECONDS = 5.0
"""After a request for a place that was refused."""
MEBIBYTE = 1 << 20


def require_ray() -> None:
    """Raises ConfigurationError where the package is not installed; imports nothing of it."""
    if find_spec("ray") is None:
        raise ConfigurationError(
            "`[ray] address` needs the package ray, which is not installed.",
            "No daemon was started.",
            "pip install 'houston-agents[ray]', or leave `address` out",
        )


_ClusterMessage = (
    WorkerStarted | WorkerEnded | ForkServerPong | PlaceFound | PlacePending | ClusterNode
)


PLACES_KEPT = 10_000
"""Before those of rollouts that have ended are forgotten."""


class _PlaceFile:
    """Where rollouts ran last, and what others wait for: kept in the home, for the next daemon and
    for commands."""

    def __init__(self, home: Home) -> None:
        self._file = node_places_file(home)
        self._database = home.database
        self._written = read_node_places(home)
        self._last = dict(self._written.last)
        self._forget_ended()

    def get(self, rollout: str) -> NodePlace:
        """Where a rollout ran last; an empty place for one that has run nowhere."""
        return self._last.get(rollout, NodePlace())

    def note(self, rollout: str, place: NodePlace) -> None:
        """A worker of it runs there now."""
        self._last[rollout] = place

    def _forget_ended(self) -> None:
        alive = read_living_rollouts(self._database)
        self._last = {rollout: place for rollout, place in self._last.items() if rollout in alive}
        self._limit = max(PLACES_KEPT, 2 * len(self._last))

    def write(self, waiting: dict[str, str]) -> None:
        """Write down what has changed. waiting: rollout → why it waits for a node."""
        if len(self._last) > self._limit:
            try:
                self._forget_ended()
            except sqlite3.OperationalError as problem:  # a full disk: tried again
                LOGGER.warning("rollouts could not be read: %s", problem)
        now = NodePlaces(dict(self._last), waiting)
        if now == self._written:
            return
        try:
            write_atomically(self._file, msgspec.json.encode(now), durable=False)
        except OSError as problem:  # a full disk: tried again in the next round
            LOGGER.warning("%s could not be written: %s", self._file, problem)
            return
        self._written = now


class RaySpawner(WorkerSpawner):
    """The line to the process that speaks with the cluster."""

    module = "houston_daemon.service.ray_cluster"
    title = "Ray cluster"
    leave_seconds = 2.0

    def __init__(
        self, inbox: SupervisorInbox, loaded: LoadedConfiguration, patience: float
    ) -> None:
        """patience: seconds that the process may be silent."""
        settings = loaded.config.ray
        cluster_settings = ClusterSettings(settings.address, is_local_only=not settings.endpoint)
        log = worker_log_path(loaded.home, FORK_SERVER_LOG)
        super().__init__(inbox, msgspec.json.encode(cluster_settings).decode(), log, patience)
        self._cpus = settings.cpus
        self._gives_gpus = settings.schedules_gpus
        self._requests: dict[str, PlaceRequest] = {}
        """What rollouts ask for, of those that were looked at."""
        self._requested_at: dict[str, float] = {}
        """Place → when somebody wanted it last, monotonic; of those that were asked for."""
        self._refused_until: dict[str, float] = {}
        self._nodes_by_place: dict[str, str] = {}
        """Place that is held → its node."""
        self._wait_reasons: dict[str, str] = {}
        """Place → why there is none yet."""
        self._unschedulable: set[str] = set()
        """Places that no node has room for, whatever ends there."""
        self._nodes: dict[str, ClusterNode] = {}
        self._last = _PlaceFile(loaded.home)

    # --- places -----------------------------------------------------------------------------------

    def has_place(self, spec: RolloutSpec, shares: bool, room: int) -> bool:
        """Whether a node holds what a rollout asks for; else one is looked for.

        shares: it goes to a shared worker, and none of these has room now. room: how many more may
        run: nobody would use more places than that.
        """
        request = self._spare_request() if shares else self._request(spec)
        name, now = request.name, time.monotonic()
        if name not in self._requested_at:
            if self._refused_until.get(name, 0.0) > now:
                return False
            if len(self._requested_at.keys() - self._unschedulable) >= room or not self._ask(
                request, now
            ):
                return False
        self._requested_at[name] = now
        return name in self._nodes_by_place

    def _ask(self, request: PlaceRequest, now: float) -> bool:
        """Ask for a place; whether that could be done now."""
        if self._line is None and self._backoff.seconds_left(now):
            return False
        try:
            self.ensure_running()
        except OSError as problem:
            LOGGER.error("the process that speaks with Ray could not be started: %s", problem)
            return False
        self._send(request)
        self._wait_reasons[request.name] = "waits for the cluster to answer"
        return True

    def _spare_request(self) -> PlaceRequest:
        return PlaceRequest(SPARE_PLACE, cpus=self._cpus)

    def _request(self, spec: RolloutSpec) -> PlaceRequest:
        request = self._requests.get(spec.rollout)
        if request is None:
            request = place_request(spec, self._cpus, self._gives_gpus)
            self._requests[spec.rollout] = request
        node = self._last.get(spec.rollout).node
        return msgspec.structs.replace(request, node=node if self._is_node_alive(node) else "")

    def _is_node_alive(self, node: str) -> bool:
        return node in self._nodes and self._nodes[node].alive

    def expire_places(self, now: float) -> None:
        """Give back places that nobody has asked for again, and write down what waits. now:
        monotonic."""
        self._last.write({**self._wait_reasons})
        for name in [
            name for name, at in self._requested_at.items() if now - at > UNWANTED_SECONDS
        ]:
            self._send(ReleasePlace(name))
            self._forget(name)

    def forget(self, rollout: str) -> None:
        """A rollout has ended, or is paused."""
        self._requests.pop(rollout, None)

    def _forget(self, name: str) -> None:
        self._requested_at.pop(name, None)
        self._nodes_by_place.pop(name, None)
        self._wait_reasons.pop(name, None)
        self._unschedulable.discard(name)

    # --- workers ----------------------------------------------------------------------------------

    def start_at_place(
        self, request: StartWorker, spec: RolloutSpec | None, line: socket.socket | None = None
    ) -> None:
        """Start a worker at its place. spec: of its rollout; None for one that many share.

        Raises OSError when the process that speaks with the cluster cannot be started.
        """
        place = self._request(spec) if spec else self._spare_request()
        if spec is not None:
            before = self._last.get(spec.rollout)
            if before.node and self._nodes_by_place.get(place.name) != before.node:
                lay = ["--workspace-was-on", before.words]
                request = msgspec.structs.replace(request, arguments=[*request.arguments, *lay])
        self.ensure_running()
        self._running[request.rollout, request.lease] = request
        self._send(StartAtPlace(request, place), line)
        self._forget(place.name)

    def signal_worker(self, name: str, lease: int, number: int) -> None:
        """Send a signal to a worker. name: its rollout, or that of a shared one (lease 0)."""
        if self._line is not None:
            self._send(SignalWorker(name, lease, number))

    def _take(self, data: bytes) -> list[object]:
        message = msgspec.json.decode(data, type=_ClusterMessage)
        match message:
            case ClusterNode():
                self._note_node(message)
            case PlaceFound(name, node):
                if name in self._requested_at:
                    self._nodes_by_place[name] = node
                    self._wait_reasons.pop(name, None)
                    self._unschedulable.discard(name)
                return [RunnableChanged()]
            case PlacePending(name, reason, refused, impossible):
                if name in self._requested_at:
                    self._wait_reasons[name] = reason
                    (self._unschedulable.add if impossible else self._unschedulable.discard)(name)
                if refused:
                    self._requested_at.pop(name, None)
                    self._refused_until[name] = time.monotonic() + ASK_AGAIN_SECONDS
            case WorkerStarted(rollout, lease, _, node):
                if lease:  # a shared worker has none, and its rollouts no workspace
                    host = self._nodes[node].host if node in self._nodes else ""
                    self._last.note(rollout, NodePlace(node, host))
                return [message]
            case WorkerEnded(rollout, lease):
                self._running.pop((rollout, lease), None)
                return [message]
        return []

    def _note_node(self, node: ClusterNode) -> None:
        before = self._nodes.get(node.id)
        self._nodes[node.id] = node
        if before is not None and before.alive and not node.alive:
            LOGGER.error("the node %s of the cluster, on %s, was lost", node.name, node.host)
            for name in [name for name, at in self._nodes_by_place.items() if at == node.id]:
                self._forget(name)

    def _handle_loss(self) -> None:
        for places in (
            self._requested_at,
            self._nodes_by_place,
            self._wait_reasons,
            self._unschedulable,
            self._nodes,
        ):
            places.clear()
        super()._handle_loss()

    # --- status -----------------------------------------------------------------------------------

    def troubles(self, now: float) -> dict[str, str]:
        """As of the fork server; a cluster that was lost is one until it answers again."""
        if (troubles := super().troubles(now)) or self._nodes or not self._last_words:
            return troubles
        return {self.title: f"is tried again; last: {self._last_words}"}

    def node_statuses(self, runs: Mapping[str, tuple[str, str]]) -> tuple[NodeStatus, ...]:
        """The nodes, and what runs there. runs: rollout → its node and the name of its worker."""
        statuses = []
        for node in self._nodes.values():
            rollouts = sorted(rollout for rollout, (at, _) in runs.items() if at == node.id)
            if not node.alive and not rollouts:
                continue
            workers = len({runs[rollout][1] for rollout in rollouts})
            labels, memory = dict(node.labels), node.memory // MEBIBYTE
            statuses.append(
                NodeStatus(
                    node.name, node.host, node.alive, node.cpus, memory, node.gpus, labels,
                    workers, tuple(rollouts),
                )
            )  # fmt: skip
        return tuple(statuses)

    @property
    def unplaced(self) -> dict[str, str]:
        """Rollout → why it waits for a node; SPARE_PLACE for the next that many will share."""
        return dict(self._wait_reasons)


def place_request(spec: RolloutSpec, cpus: float, schedules_gpus: bool) -> PlaceRequest:
    """What the worker of a rollout asks of its node.

    cpus: where the task does not say. schedules_gpus: whether GPUs are the cluster's to give.
    """
    task = parse_task_record(spec.task)
    asks = task.resources
    gpus = spec.gpus.get(LOCAL_HOST, 0) if schedules_gpus else 0
    memory = (asks.memory_mb or task.mapped.memory_mb) * MEBIBYTE
    own_cpus = cpus if asks.cpus is None else asks.cpus
    return PlaceRequest(spec.rollout, own_cpus, memory, gpus, dict(asks.labels))
