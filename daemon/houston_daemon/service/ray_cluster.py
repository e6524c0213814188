"""The process that talks to a Ray cluster: it has actors start workers on the nodes.

`python -m houston_daemon.service.ray_cluster PARENT FD SETTINGS LOG ROOM`, started by the
supervisor instead of the fork server, whose messages it understands (`fork_server`); those for
places and nodes are in `ray_messages`. It is the driver of all actors: when it ends, Ray ends them.
The supervisor decides which rollout wants a place; Ray decides where there is one
(`ray_placement`). Ray is imported only there and in the actors, so neither it nor its threads are
part of the daemon.

Exits with 1 and a sentence in its log if the cluster cannot be reached, or stops answering.
"""

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from houston_daemon.service import ray_placement
from houston_daemon.service.fork_server import (
    LOST_EXIT_CODE,
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
    PlacePending,
    PlaceRequest,
    ReleasePlace,
    SignalWorker,
    StartAtPlace,
    WorkerOutput,
)
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
GROUPS_SECONDS, LARGEST_GROUPS_SHARE = 0.05, 0.1
"""Least time between two looks at groups that wait, and the largest share of time in them."""
Result = TypeVar("Result")

Order = StartAtPlace | PlaceRequest | ReleasePlace | SignalWorker | ForkServerPing
ActorMessage = WorkerStarted | WorkerEnded | WorkerOutput | LineMessage


@dataclass(slots=True, eq=False)
class _Place:
    request: PlaceRequest
    node: str
    """Where it is, or had best be; "" where nobody knows."""
    found: "asyncio.Task[ActorPlace]" = field(init=False)
    group: Any = None
    """The placement group that holds it, once there is one."""
    placed: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether the group is on `node`."""
    actor: Any = None
    """The actor that holds it, where it has GPUs."""
    reason: str = ""
    """Why it waits, as was said last."""
    left: bool = False
    """Whether nobody wants it any more."""


@dataclass(slots=True)
class _RunningWorker:
    order: StartWorker
    place: _Place
    line: socket.socket | None
    """The supervisor's line to it, where it is shared."""
    actor: Any = None
    """Of its node, or its own where it has GPUs; once its place is found."""
    started: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether its actor has it, or will not have it any more."""
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
        self._actors: dict[str, Any] = {}
        """Node → the actor that runs workers there."""
        self._group_waits = asyncio.Event()
        """Whether a group may have no node yet."""
        self._calls = ThreadPoolExecutor(1, "ray")
        """In which Ray is asked for groups, in order."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._outbox: deque[bytes] = deque()
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
                self._spawn(self._release_when_connected(name))
            case StartAtPlace(worker, place):
                line = socket.socket(fileno=descriptors[0]) if descriptors else None
                self._spawn(self._run_worker(worker, place, line))
            case SignalWorker():
                self._signal(order)

    def _say(self, message: msgspec.Struct) -> None:
        """Say something, in order. Never waits: the supervisor may be waiting to say something."""
        self._outbox.append(msgspec.json.encode(message))
        if len(self._outbox) == 1:
            self._flush_outbox()

    def _flush_outbox(self) -> None:
        loop = asyncio.get_running_loop()
        while self._outbox:
            try:
                self._line.send(self._outbox[0])
            except BlockingIOError:
                loop.add_writer(self._line, self._flush_outbox)
                return
            except (BrokenPipeError, ConnectionResetError):  # it has ended: so do we
                self._outbox.clear()
                break
            self._outbox.popleft()
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
        connecting = asyncio.to_thread(ray_placement.connect, address)
        try:
            await asyncio.wait_for(connecting, CONNECT_SECONDS)
        except TimeoutError:
            return f"The Ray cluster {address} cannot be reached: silent for {CONNECT_SECONDS:g} s"
        except Exception as problem:  # noqa: BLE001 whatever Ray raises: it is said, and tried again
            words = ray_placement.in_one_line(problem)
            return f"The Ray cluster {address} cannot be reached: {words}"
        self._connected.set()
        self._spawn(self._watch_groups())
        while True:
            looking = asyncio.to_thread(ray_placement.read_nodes)
            try:
                nodes, free = await asyncio.wait_for(looking, HEAD_SILENT_SECONDS)
            except Exception as problem:  # noqa: BLE001 a head that is gone shows in many ways
                words = ray_placement.in_one_line(problem) or "silent"
                return f"The head of the Ray cluster {address} does not answer: {words}"
            self._note_nodes(nodes)
            self._explain(free)
            await asyncio.sleep(LOOK_SECONDS)

    async def _watch_groups(self) -> None:
        """Look where groups have been placed, while one waits for that."""
        while True:
            await self._group_waits.wait()
            waiting = [each for each in self._all() if each.group and not each.placed.is_set()]
            if not waiting:
                self._group_waits.clear()
                continue
            began = time.monotonic()
            try:
                grouped = await self._ask(ray_placement.read_groups)
            except Exception as problem:  # noqa: BLE001 of a head that is gone `_watch_cluster` hears
                sys.stderr.write(f"groups: {redact(ray_placement.in_one_line(problem))}\n")
                await asyncio.sleep(LOOK_SECONDS)
                continue
            took = time.monotonic() - began
            for place in waiting:
                if place.group and (node := grouped.get(place.group.id.hex())) in self._nodes:
                    place.node = node
                    place.placed.set()
            await asyncio.sleep(max(GROUPS_SECONDS, took / LARGEST_GROUPS_SHARE))

    def _all(self) -> list[_Place]:
        return [*self._places.values(), *(worker.place for worker in self._workers.values())]

    async def _ask(self, call: Callable[[], Result]) -> Result:
        """What Ray answers. Raises whatever Ray raises."""
        return await asyncio.get_running_loop().run_in_executor(self._calls, call)

    def _note_nodes(self, nodes: Sequence[ClusterNode]) -> None:
        for node in nodes:
            before = self._nodes.get(node.id)
            if not node.alive:  # what it offered is not said of a dead one
                node = msgspec.structs.replace(before or node, alive=False)
            if before != node:
                self._nodes[node.id] = node
                self._say(node)
                if not node.alive:
                    self._actors.pop(node.id, None)
                    self._drop_places(node.id)

    def _drop_places(self, node: str) -> None:
        """Forget places that a lost node held: who wants one asks again."""
        names = [
            name
            for name, place in self._places.items()
            if (actor_place := _actor_place(place)) and actor_place.node == node
        ]
        for name in names:
            self._release(name)

    def _explain(self, free: dict[str, float]) -> None:
        """Say why places wait, where that has changed."""
        for place in self._places.values():
            if place.found.done():
                continue
            reason = ray_placement.waiting_reason(place.request, list(self._nodes.values()), free)
            if reason != place.reason:
                place.reason = reason
                impossible = reason.startswith(ray_placement.IMPOSSIBLE)
                self._say(PlacePending(place.request.name, reason, impossible=impossible))

    # --- places ---------------------------------------------------------------------------------

    def _make_place(self, request: PlaceRequest) -> _Place:
        place = _Place(request, request.node or self._emptiest_node())
        place.found = asyncio.ensure_future(self._find(place))
        self._places[request.name] = place
        return place

    async def _find(self, place: _Place) -> ActorPlace:
        """Have Ray find a place. Raises whatever Ray raises."""
        request = place.request
        if request.gpus:
            place.actor = ray_placement.make_gpu_actor(request)
            actor_place = msgspec.json.decode(await place.actor.place.remote(), type=ActorPlace)
            place.node = actor_place.node
            return actor_place
        group = await self._ask(partial(ray_placement.make_group, request, place.node))
        if place.left:
            await self._ask(partial(ray_placement.remove_group, group))
            raise asyncio.CancelledError
        place.group = group
        self._group_waits.set()
        await place.placed.wait()
        return ActorPlace(place.node, self._nodes[place.node].host)

    def _emptiest_node(self) -> str:
        """Where the fewest places are for each processor, of those that workers may be on; "" where
        there is none."""
        place_counts = Counter(place.node for place in self._all())
        fit = [
            node
            for node in self._nodes.values()
            if node.alive and node.cpus and self._may_be_on(node.host)
        ]
        return min(fit, key=lambda node: place_counts[node.id] / node.cpus).id if fit else ""

    def _may_be_on(self, host: str) -> bool:
        return not self._settings.is_local_only or host == socket.gethostname()

    async def _leave(self, place: _Place) -> None:
        """Give back what a place holds; one that is still looked for is given up."""
        place.left = True
        if place.actor is not None:
            ray_placement.kill_actor(place.actor)
        if place.group is not None:
            group, place.group = place.group, None
            place.found.cancel()
            await self._ask(partial(ray_placement.remove_group, group))

    async def _hold_place(self, request: PlaceRequest) -> None:
        await self._connected.wait()
        if before := self._places.get(request.name):
            if actor_place := _actor_place(before):
                self._say(PlaceFound(request.name, actor_place.node))
            return
        place = self._make_place(request)
        try:
            actor_place = await place.found
        except Exception as problem:  # noqa: BLE001 whatever Ray raises: it is said, and tried again
            if self._places.get(request.name) is place:
                del self._places[request.name]
                words = ray_placement.in_one_line(problem)
                self._say(PlacePending(request.name, f"Ray refused it: {words}", refused=True))
            return
        if trouble := self._unreachable_reason(actor_place):
            if self._places.pop(request.name, None) is place:
                self._spawn(self._leave(place))
                self._say(PlacePending(request.name, trouble, refused=True))
            return
        if self._places.get(request.name) is place:
            self._say(PlaceFound(request.name, actor_place.node))

    def _unreachable_reason(self, actor_place: ActorPlace) -> str:
        if self._may_be_on(actor_place.host):
            return ""
        return (
            f"the node {node_name(actor_place.node)} is on {actor_place.host}, and workers reach"
            " the recorder on this machine only: name `[ray] endpoint`"
        )

    async def _release_when_connected(self, name: str) -> None:
        await self._connected.wait()  # after the request, which waits for the same
        self._release(name)

    def _release(self, name: str) -> None:
        if (place := self._places.pop(name, None)) is not None:
            self._spawn(self._leave(place))

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
            _append(log, f"{await self._loss_reason(worker, problem)}\n")
        finally:
            self._workers.pop(key, None)
            worker.started.set()
            self._spawn(self._leave(place))
            _close_line(worker)
            if not worker.ended:
                self._say(WorkerEnded(order.rollout, order.lease, LOST_EXIT_CODE))

    async def _follow(self, worker: _RunningWorker, log: Path) -> None:
        """Pass on what the actor says of its worker, until that has ended. Raises what Ray does."""
        actor_place = await worker.place.found
        worker.actor = worker.place.actor or self._actor_of(actor_place.node)
        order = msgspec.json.encode(worker.order)
        references = worker.actor.run.remote(order, worker.line is not None)
        async for reference in references:
            message = msgspec.json.decode(await reference, type=ActorMessage)
            match message:
                case WorkerOutput(text):
                    _append(log, redact(text))
                case LineMessage(data):
                    self._say_on_line(worker, data)
                case WorkerStarted():
                    worker.started.set()
                    self._say(message)
                case WorkerEnded():
                    worker.ended = True
                    _close_line(worker)  # before: the supervisor reads it to its end then
                    self._say(message)

    def _actor_of(self, node: str) -> Any:
        if node not in self._actors:
            self._actors[node] = ray_placement.make_node_actor(node)
        return self._actors[node]

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
        self._spawn(self._send(worker, data))

    async def _send(self, worker: _RunningWorker, data: bytes) -> None:
        await worker.started.wait()  # an actor may take a call before one that was made first
        if worker.actor is not None:
            worker.actor.send.remote(worker.order.rollout, worker.order.lease, data)

    async def _loss_reason(self, worker: _RunningWorker, problem: Exception) -> str:
        """Why an actor ended, in a line: the worker's last words."""
        actor_place = _actor_place(worker.place)
        if actor_place is None:
            return f"it ended before it was placed: {ray_placement.in_one_line(problem)}"
        if (
            ray_placement.is_of_actor(problem)
            and self._actors.get(actor_place.node) is worker.actor
        ):
            del self._actors[actor_place.node]  # the next worker there has another
        place = f"node {node_name(actor_place.node)} on {actor_place.host}"
        deadline = time.monotonic() + NODE_VERDICT_SECONDS
        while self._is_node_alive(actor_place.node):
            if not ray_placement.may_be_lost(problem) or time.monotonic() > deadline:
                return f"its actor on the {place} ended: {ray_placement.in_one_line(problem)}"
            await asyncio.sleep(LOOK_SECONDS / 4)
        return f"the {place} was lost, and the worker with it"

    def _is_node_alive(self, node: str) -> bool:
        return node not in self._nodes or self._nodes[node].alive

    def _signal(self, order: SignalWorker) -> None:
        worker = self._workers.get((order.rollout, order.lease))
        if worker is not None and worker.actor is not None:
            worker.actor.signal.remote(order.rollout, order.lease, order.number)


def _close_line(worker: _RunningWorker) -> None:
    if worker.line is not None:
        asyncio.get_running_loop().remove_reader(worker.line)
        worker.line.close()
        worker.line = None


def _actor_place(place: _Place) -> ActorPlace | None:
    """Where a place is, once that is known."""
    is_found = place.found.done() and not place.found.cancelled() and not place.found.exception()
    return place.found.result() if is_found else None


def _append(log: Path, text: str) -> None:
    """A worker's words into its log; a full disk loses them, and nothing else."""
    with contextlib.suppress(OSError):
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)


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
    cluster_settings = msgspec.json.decode(settings, type=ClusterSettings)
    with socket.socket(fileno=int(fd)) as line:
        loop = asyncio.new_event_loop()  # not `run`, which waits for threads that wait for the head
        code = loop.run_until_complete(_serve(line, cluster_settings))
    if code == 0:
        _leave()
    sys.stderr.flush()
    # Threads of Ray's that wait for a head that is gone would keep this process for a minute.
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
