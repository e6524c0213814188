"""The process that speaks with a Ray cluster: it starts workers as actors of it.

`python -m houston_daemon.service.ray_cluster PARENT FD SETTINGS LOG ROOM`, started by the
supervisor in the place of the fork server, whose messages it understands (`fork_server`); those for
places and nodes are in `ray_messages`. It is the driver of all actors: when it ends, Ray ends them.
Which rollout wants a place is the supervisor's business, and where there is one is Ray's. Ray is
imported here and in the actors only, so that neither it nor its threads are part of the daemon.

Ends with 1 and a sentence in its log when the cluster cannot be reached, or answers no more.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.service.fork_server import (
    MESSAGE_BYTES,
    ForkServerPing,
    ForkServerPong,
    StartWorker,
    WorkerEnded,
    WorkerStarted,
    redirect_output,
    rotate_if_long,
)
from houston_daemon.service.parent_death import end_with_parent
from houston_daemon.service.ray_messages import (
    ActorPlace,
    ClusterNode,
    ClusterSettings,
    LineMessage,
    PlaceFound,
    PlaceRequest,
    PlaceWaits,
    ReleasePlace,
    SignalWorker,
    StartAtPlace,
    WorkerOutput,
)
from houston_shared.config_sections import LOCAL_CLUSTER
from houston_shared.node_places import node_name
from houston_shared.secret_redaction import redact

LOOK_SECONDS = 1.0
"""Between two looks at the nodes."""
CONNECT_SECONDS = 60.0
"""Longest time for joining a cluster, or starting one; 2 to 5 s where nothing else runs."""
HEAD_SILENT_SECONDS = 15.0
"""A head that answers nothing for so long is gone."""
NODE_VERDICT_SECONDS = 30.0
"""How long Ray may take to say that a node was lost: its own limits add up to 15 s. A successor
waits for that, since it would be placed on the same node before."""
IMPOSSIBLE = "asks for "
"""How a reason begins that only another node can end."""
LOST_EXIT_CODE = -int(signal.SIGKILL)
"""What is said of a worker that ended with its actor: Ray kills those."""
STORE_BYTES = 80_000_000
"""Object store of a cluster of our own: workers put nothing there, and Ray wants no less."""
_MEBIBYTE = 1 << 20

Order = StartAtPlace | PlaceRequest | ReleasePlace | SignalWorker | ForkServerPing
ActorSays = WorkerStarted | WorkerEnded | WorkerOutput | LineMessage


@dataclass(slots=True)
class _Place:
    request: PlaceRequest
    actor: Any
    """Handle of the actor."""
    found: "asyncio.Task[ActorPlace]"
    reason: str = ""
    """Why it waits, as was said last."""


@dataclass(slots=True)
class _RunningWorker:
    order: StartWorker
    place: _Place
    line: socket.socket | None = None
    """The supervisor's line to it, where it is shared."""
    ended: bool = False
    """Whether its actor has said so."""


class ClusterLine:
    """Serves one supervisor; used from its event loop only."""

    def __init__(self, line: socket.socket, settings: ClusterSettings) -> None:
        self._line = line
        self._settings = settings
        self._places: dict[str, _Place] = {}
        self._workers: dict[tuple[str, int], _RunningWorker] = {}
        self._nodes: dict[str, ClusterNode] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsaid: deque[bytes] = deque()
        """What the supervisor is still to be told."""
        self._connected = asyncio.Event()

    async def serve(self) -> int:
        """Until the supervisor closes the line (0), or the cluster is gone (1)."""
        self._line.setblocking(False)
        orders = asyncio.create_task(self._take_orders())
        looking = asyncio.create_task(self._watch_cluster())
        await asyncio.wait({orders, looking}, return_when=asyncio.FIRST_COMPLETED)
        if looking.done():
            sys.stderr.write(f"{redact(looking.result())}\n")
            return 1
        looking.cancel()
        return 0

    # --- the supervisor -------------------------------------------------------------------------

    async def _take_orders(self) -> None:
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._line, readable.set)
        while True:
            await readable.wait()
            readable.clear()
            try:
                data, descriptors, *_ = socket.recv_fds(self._line, MESSAGE_BYTES, 1)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                data, descriptors = b"", []
            if not data:
                return
            readable.set()  # there may be more
            self._take(msgspec.json.decode(data, type=Order), descriptors)
            await asyncio.sleep(0)

    def _take(self, order: Order, descriptors: Sequence[int]) -> None:
        match order:
            case ForkServerPing():
                self._say(ForkServerPong())
            case PlaceRequest():
                self._spawn(self._hold_place(order))
            case ReleasePlace(name):
                self._spawn(self._let_go(name))
            case StartAtPlace(worker, place):
                line = socket.socket(fileno=descriptors[0]) if descriptors else None
                self._spawn(self._run_worker(worker, place, line))
            case SignalWorker():
                self._signal(order)

    def _say(self, message: msgspec.Struct) -> None:
        """Say something, in order. Never waits: the supervisor may be waiting to say something."""
        self._unsaid.append(msgspec.json.encode(message))
        if len(self._unsaid) == 1:
            self._send_unsaid()

    def _send_unsaid(self) -> None:
        loop = asyncio.get_running_loop()
        while self._unsaid:
            try:
                self._line.send(self._unsaid[0])
            except BlockingIOError:
                loop.add_writer(self._line, self._send_unsaid)
                return
            except (BrokenPipeError, ConnectionResetError):  # it has ended: so do we
                self._unsaid.clear()
                break
            self._unsaid.popleft()
        loop.remove_writer(self._line)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()):
            sys.stderr.write(redact(f"{type(problem).__name__}: {problem}\n"))

    # --- the cluster ----------------------------------------------------------------------------

    async def _watch_cluster(self) -> str:
        """Connect, then look at the nodes; returns why that is over."""
        address = self._settings.address
        try:
            await asyncio.wait_for(asyncio.to_thread(_connect, address), CONNECT_SECONDS)
        except TimeoutError:
            return f"The Ray cluster {address} cannot be reached: silent for {CONNECT_SECONDS:g} s"
        except Exception as problem:  # noqa: BLE001 whatever Ray raises: it is said, and tried again
            words = " ".join(str(problem).split())[:300]
            return f"The Ray cluster {address} cannot be reached: {words}"
        self._connected.set()
        import ray

        while True:
            looking = asyncio.gather(
                asyncio.to_thread(ray.nodes), asyncio.to_thread(ray.available_resources)
            )
            try:
                nodes, free = await asyncio.wait_for(looking, HEAD_SILENT_SECONDS)
            except Exception as problem:  # noqa: BLE001 a head that is gone shows in many ways
                words = " ".join(str(problem).split())[:200] or "silent"
                return f"The head of the Ray cluster {address} does not answer: {words}"
            self._note_nodes(nodes)
            self._explain(free)
            await asyncio.sleep(LOOK_SECONDS)

    def _note_nodes(self, nodes: Sequence[dict[str, Any]]) -> None:
        for stands in nodes:
            offers, id = stands.get("Resources", {}), stands["NodeID"]
            node = ClusterNode(
                id=id,
                host=stands["NodeManagerHostname"],
                alive=stands["Alive"],
                cpus=offers.get("CPU", 0.0),
                memory=int(offers.get("memory", 0)),
                gpus=offers.get("GPU", 0.0),
                labels=_own_labels(stands.get("Labels") or {}),
            )
            if not node.alive:  # what it offered is not said of a dead one
                before = self._nodes.get(id, node)
                node = msgspec.structs.replace(before, alive=False)
            if self._nodes.get(id) != node:
                self._nodes[id] = node
                self._say(node)
                if not node.alive:
                    self._drop_places(id)

    def _drop_places(self, node: str) -> None:
        """Forget places that a lost node held: who wants one asks again."""
        held = [
            name
            for name, place in self._places.items()
            if (found := _found(place)) and found.node == node
        ]
        for name in held:
            self._release(name)

    def _explain(self, free: dict[str, float]) -> None:
        """Say why places wait, where that has changed."""
        for place in self._places.values():
            if place.found.done():
                continue
            reason = waiting_reason(place.request, list(self._nodes.values()), free)
            if reason != place.reason:
                place.reason = reason
                impossible = reason.startswith(IMPOSSIBLE)
                self._say(PlaceWaits(place.request.name, reason, impossible=impossible))

    # --- places ---------------------------------------------------------------------------------

    def _make_place(self, request: PlaceRequest) -> _Place:
        actor = _make_actor(request)
        place = _Place(request, actor, asyncio.ensure_future(_ask_place(actor)))
        self._places[request.name] = place
        return place

    async def _hold_place(self, request: PlaceRequest) -> None:
        await self._connected.wait()
        if before := self._places.get(request.name):
            if found := _found(before):
                self._say(PlaceFound(request.name, found.node))
            return
        place = self._make_place(request)
        try:
            found = await place.found
        except Exception as problem:  # noqa: BLE001 whatever Ray raises: it is said, and tried again
            if self._places.get(request.name) is place:
                del self._places[request.name]
                words = " ".join(str(problem).split())[:200]
                self._say(
                    PlaceWaits(request.name, f"its actor could not be made: {words}", refused=True)
                )
            return
        if trouble := self._trouble_with(found):
            if self._places.pop(request.name, None) is place:
                _kill(place.actor)
                self._say(PlaceWaits(request.name, trouble, refused=True))
            return
        if self._places.get(request.name) is place:
            self._say(PlaceFound(request.name, found.node))

    def _trouble_with(self, found: ActorPlace) -> str:
        if not self._settings.here_only or found.host == socket.gethostname():
            return ""
        return (
            f"the node {node_name(found.node)} is on {found.host}, and workers reach the recorder"
            " on this machine only: name `[ray] endpoint`"
        )

    async def _let_go(self, name: str) -> None:
        await self._connected.wait()  # after the request, which waits for the same
        self._release(name)

    def _release(self, name: str) -> None:
        if (place := self._places.pop(name, None)) is not None:
            _kill(place.actor)

    # --- workers --------------------------------------------------------------------------------

    async def _run_worker(
        self, order: StartWorker, wanted: PlaceRequest, line: socket.socket | None
    ) -> None:
        key = order.rollout, order.lease
        await self._connected.wait()
        place = self._places.get(wanted.name) or self._make_place(wanted)
        del self._places[wanted.name]
        worker = self._workers[key] = _RunningWorker(order, place, line)
        log = Path(order.log)
        rotate_if_long(log, order)
        if line is not None:
            asyncio.get_running_loop().add_reader(line, self._relay, worker)
        try:
            await self._follow(worker, log)
        except Exception as problem:  # noqa: BLE001 whatever Ray raises of an actor that has ended
            _append(log, f"{await self._why_lost(worker, problem)}\n")
        finally:
            self._workers.pop(key, None)
            _kill(place.actor)
            _close_line(worker)
            if not worker.ended:
                self._say(WorkerEnded(order.rollout, order.lease, LOST_EXIT_CODE))

    async def _follow(self, worker: _RunningWorker, log: Path) -> None:
        """Pass on what the actor says of its worker, until that has ended. Raises what Ray does."""
        order = msgspec.json.encode(worker.order)
        said = worker.place.actor.run.remote(order, worker.line is not None)
        async for reference in said:
            message = msgspec.json.decode(await reference, type=ActorSays)
            match message:
                case WorkerOutput(text):
                    _append(log, redact(text))
                case LineMessage(data):
                    self._say_on_line(worker, data)
                case WorkerStarted():
                    self._say(message)
                case WorkerEnded():
                    worker.ended = True
                    _close_line(worker)  # before: the supervisor reads it to its end then
                    self._say(message)

    def _say_on_line(self, worker: _RunningWorker, data: str) -> None:
        if worker.line is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                worker.line.send(data.encode())

    def _relay(self, worker: _RunningWorker) -> None:
        """What the supervisor says to a shared worker goes to its actor."""
        line = worker.line
        if line is None:
            return
        try:
            data = line.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(line)
        worker.place.actor.send.remote(data)

    async def _why_lost(self, worker: _RunningWorker, problem: Exception) -> str:
        """Why an actor ended, in a line: the worker's last words."""
        found = _found(worker.place)
        if found is None:
            return f"its actor ended before it was placed: {_first_line(problem)}"
        place = f"node {node_name(found.node)} on {found.host}"
        deadline = time.monotonic() + NODE_VERDICT_SECONDS
        while self._lives(found.node) and time.monotonic() < deadline:
            if not _may_be_lost(problem):
                return f"its actor on the {place} ended: {_first_line(problem)}"
            await asyncio.sleep(LOOK_SECONDS / 4)
        return f"the {place} was lost, and the worker with it"

    def _lives(self, node: str) -> bool:
        return node not in self._nodes or self._nodes[node].alive

    def _signal(self, order: SignalWorker) -> None:
        if worker := self._workers.get((order.rollout, order.lease)):
            worker.place.actor.signal.remote(order.number)


def _close_line(worker: _RunningWorker) -> None:
    if worker.line is not None:
        asyncio.get_running_loop().remove_reader(worker.line)
        worker.line.close()
        worker.line = None


def _found(place: _Place) -> ActorPlace | None:
    """Where a place is, once that is known."""
    is_found = place.found.done() and not place.found.cancelled() and not place.found.exception()
    return place.found.result() if is_found else None


def _own_labels(labels: dict[str, str]) -> dict[str, str]:
    """Without what Ray itself says of every node."""
    return {name: value for name, value in labels.items() if name != "ray.io/node-id"}


def _may_be_lost(problem: Exception) -> bool:
    """Whether Ray may yet say that the node was lost: it knows of an ended actor at once, and of a
    node only when that has been silent for a while."""
    import ray

    return isinstance(problem, ray.exceptions.ActorUnavailableError) or "node" in str(problem)


def _first_line(problem: Exception) -> str:
    return " ".join(str(problem).split())[:300]


def _append(log: Path, text: str) -> None:
    """A worker's words into its log; a full disk loses them, and nothing else."""
    with contextlib.suppress(OSError):
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)


def waiting_reason(
    request: PlaceRequest, nodes: Sequence[ClusterNode], free: dict[str, float]
) -> str:
    """Why a request has no place. free: what Ray says is unused in the whole cluster, memory in
    bytes."""
    asks = _describe_request(request)
    living = [node for node in nodes if node.alive]
    if not any(_fits(request, node) for node in living):
        offers = "; ".join(_describe_offer(node) for node in living[:4]) or "there is none"
        more = f"; and {len(living) - 4} more" if len(living) > 4 else ""
        return f"{IMPOSSIBLE}{asks}, more than any node has ({offers}{more})"
    if all(
        asked <= free.get(name, 0.0)
        for name, asked in (
            ("CPU", request.cpus),
            ("memory", request.memory),
            ("GPU", request.gpus),
        )
    ):
        return f"waits for its actor to start, which asks for {asks}"
    unused = [_amount(free.get("CPU", 0.0), "CPU")] if request.cpus else []
    unused += [f"{free.get('memory', 0.0) / _MEBIBYTE:,.0f} MB"] if request.memory else []
    unused += [_amount(free.get("GPU", 0.0), "GPU")] if request.gpus else []
    return f"waits for {asks} on one node; free in the whole cluster: {', '.join(unused) or 'any'}"


def _fits(request: PlaceRequest, node: ClusterNode) -> bool:
    """Whether a node that had nothing else to do could have it."""
    enough = (
        request.cpus <= node.cpus and request.memory <= node.memory and request.gpus <= node.gpus
    )
    return enough and all(
        _label_fits(value, node.labels.get(name)) for name, value in request.labels.items()
    )


def _label_fits(wanted: str, value: str | None) -> bool:
    """By Ray's rules: a value, `!value`, `in(a, b)` or `!in(a, b)`."""
    wanted, negated = wanted.removeprefix("!"), wanted.startswith("!")
    values = [wanted]
    if wanted.startswith("in(") and wanted.endswith(")"):
        values = [each.strip() for each in wanted[3:-1].split(",")]
    return (value in values) != negated


def _amount(number: float, unit: str) -> str:
    return f"{number:g} {unit}{'' if number == 1 else 's'}"


def _describe_request(request: PlaceRequest) -> str:
    parts = [_amount(request.cpus, "CPU")] if request.cpus else []
    parts += [f"{request.memory / _MEBIBYTE:,.0f} MB"] if request.memory else []
    parts += [_amount(request.gpus, "GPU")] if request.gpus else []
    parts += [f"{name}={value}" for name, value in request.labels.items()]
    return ", ".join(parts) or "a node"


def _describe_offer(node: ClusterNode) -> str:
    labels = "".join(f", {name}={value}" for name, value in sorted(node.labels.items()))
    gpus = f", {_amount(node.gpus, 'GPU')}" if node.gpus else ""
    return (
        f"{node.name}: {_amount(node.cpus, 'CPU')}, {node.memory / _MEBIBYTE:,.0f} MB{gpus}{labels}"
    )


# --- Ray ----------------------------------------------------------------------------------------


def _connect(address: str) -> None:
    """Join a cluster, or start one. Raises whatever Ray raises."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    quiet = {"log_to_driver": False, "logging_level": "WARNING", "namespace": "houston"}
    if address == LOCAL_CLUSTER:
        # GPUs of this machine stay with the ledger of the home, which engines lease from, too.
        own = {"num_gpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES}
        ray.init(address=LOCAL_CLUSTER, **own, **quiet)
    else:
        ray.init(address=address, **quiet)


def _make_actor(request: PlaceRequest) -> Any:
    """An actor that asks for what the request says; Ray places it when it can."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from houston_daemon.service.ray_actor import WorkerActor

    options: dict[str, Any] = {"num_cpus": request.cpus, "num_gpus": request.gpus}
    options["scheduling_strategy"] = "SPREAD"
    if request.memory:
        options["memory"] = request.memory
    if request.labels:
        options["label_selector"] = request.labels
    if request.node:
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(request.node, soft=True)
    return ray.remote(WorkerActor).options(max_restarts=0, **options).remote()


async def _ask_place(actor: Any) -> ActorPlace:
    return msgspec.json.decode(await actor.place.remote(), type=ActorPlace)


def _kill(actor: Any) -> None:
    import ray

    with contextlib.suppress(ray.exceptions.RayError):
        ray.kill(actor, no_restart=True)


async def _serve(line: socket.socket, settings: ClusterSettings) -> int:
    return await ClusterLine(line, settings).serve()


def _leave() -> None:
    import ray

    ray.shutdown()


def main(arguments: list[str]) -> int:
    """Serve the daemon until it closes the line."""
    parent, fd, settings, log, _room = arguments
    if not end_with_parent(int(parent)):
        return 1
    redirect_output(Path(log))
    known = msgspec.json.decode(settings, type=ClusterSettings)
    with socket.socket(fileno=int(fd)) as line:
        loop = asyncio.new_event_loop()  # not `run`, which waits for threads that wait for the head
        code = loop.run_until_complete(_serve(line, known))
    if code == 0:
        _leave()
    sys.stderr.flush()
    # Threads of Ray's that wait for a head that is gone would keep this process for a minute.
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
