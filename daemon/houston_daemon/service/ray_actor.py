"""The actor that runs workers on a node of a Ray cluster.

A node has one for all workers whose places are placement groups; a worker with GPUs has a separate
one, because Ray tells an actor which GPUs it may use. Workers are forked from a `fork_server`, a
child of the actor, as on the daemon's machine: they share its memory and start in milliseconds.
Each has its own exit code and signals. They end with the fork server, which ends with the actor,
which ends with its driver (`ray_cluster`) or its node.
"""

import asyncio
import contextlib
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import msgspec

from houston_daemon.service.fork_server import (
    FORK_SERVER,
    LOST_EXIT_CODE,
    MESSAGE_BYTES,
    PRELOADED_MODULE,
    StartWorker,
    WorkerEnded,
    WorkerNotStarted,
    WorkerStarted,
    spawner_command,
)
from houston_daemon.service.ray_messages import ActorPlace, LineMessage, WorkerOutput
from houston_shared.config_sections import LOCAL_HOST

OUTPUT_BYTES = 65_536
"""Most that one message to the log holds."""
LAST_WORDS_SECONDS = 5.0
"""How long the output of a worker that has ended is waited for."""
BUSY_SECONDS = 0.02
"""Until a fork server that has too much to do is told the next thing."""


@dataclass(slots=True)
class _Worker:
    """One that was asked for, until its end was said."""

    said: "asyncio.Queue[msgspec.Struct]" = field(default_factory=asyncio.Queue)
    """What goes to the driver; its end last."""
    line: socket.socket | None = None
    """Our side of its line, where many rollouts share it."""
    pid: int = 0


class WorkerActor:
    """Runs workers in the places that Ray holds for them."""

    def __init__(self) -> None:
        self._workers: dict[tuple[str, int], _Worker] = {}
        """By rollout, or the name of a shared worker, and lease."""
        self._fork_server: socket.socket | None = None
        self._process: Process | None = None

    async def place(self) -> bytes:
        """Where this is: an ActorPlace."""
        return msgspec.json.encode(_own_place())

    async def run(self, order: bytes, with_line: bool) -> AsyncIterator[bytes]:
        """Run the worker of a StartWorker to its end; yields what the fork server says of it,
        what it writes, and what it says on its line."""
        request = msgspec.json.decode(order, type=StartWorker)
        key, worker = (request.rollout, request.lease), _Worker()
        self._workers[key] = worker
        theirs = self._open_line(worker) if with_line else None
        reads, writes = os.pipe()
        reading = asyncio.create_task(_read_output(reads, worker))
        with contextlib.ExitStack() as pipe:
            pipe.callback(os.close, writes)
            try:
                # A worker opens its log by this name, and so writes into the pipe.
                log = f"/proc/{os.getpid()}/fd/{writes}"
                await self._fork(_on_this_node(request, log), theirs)
                if theirs is not None:
                    theirs.close()
                while not isinstance(message := await worker.said.get(), WorkerEnded):
                    yield msgspec.json.encode(message)
            finally:
                del self._workers[key]
        # What it has started may have the pipe open for longer than it lived.
        await asyncio.wait([reading], timeout=LAST_WORDS_SECONDS)
        reading.cancel()
        _forget_line(worker)
        while not worker.said.empty():
            yield msgspec.json.encode(worker.said.get_nowait())
        yield msgspec.json.encode(message)

    async def send(self, rollout: str, lease: int, data: bytes) -> None:
        """Say something on a worker's line; empty: nothing more will be said."""
        worker = self._workers.get((rollout, lease))
        if worker is None or worker.line is None:
            return
        with contextlib.suppress(OSError):  # the worker has ended, which is heard next
            if data:
                await asyncio.get_running_loop().sock_sendall(worker.line, data)
            else:
                worker.line.shutdown(socket.SHUT_WR)

    async def signal(self, rollout: str, lease: int, number: int) -> None:
        """Send a worker a signal; a KILL goes to all that it runs at this moment, too."""
        worker = self._workers.get((rollout, lease))
        if worker is None or not worker.pid:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.pid, number)
            if number == signal.SIGKILL:
                os.killpg(worker.pid, number)

    # --- the fork server --------------------------------------------------------------------------

    async def _fork(self, request: StartWorker, line: socket.socket | None) -> None:
        """Have a worker forked. line: the worker's end of its own."""
        if self._fork_server is None:
            await self._start_fork_server()
        message, descriptors = msgspec.json.encode(request), [line.fileno()] if line else []
        while (server := self._fork_server) is not None:
            try:
                socket.send_fds(server, [message], descriptors)
            except BlockingIOError:
                await asyncio.sleep(BUSY_SECONDS)
            except (BrokenPipeError, ConnectionResetError):
                return  # it has ended, which is heard next
            else:
                return

    async def _start_fork_server(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._fork_server = ours
        asyncio.get_running_loop().add_reader(ours, self._hear_fork_server, ours)
        log = f"/proc/{os.getpid()}/fd/2"
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *spawner_command(FORK_SERVER, theirs.fileno(), PRELOADED_MODULE, log),
                stdin=DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def _hear_fork_server(self, server: socket.socket) -> None:
        try:
            data = server.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:  # its workers have ended with it, by the kernel's hand
            asyncio.get_running_loop().remove_reader(server)
            server.close()
            self._fork_server = None
            for (rollout, lease), lost in self._workers.items():
                lost.said.put_nowait(WorkerEnded(rollout, lease, LOST_EXIT_CODE))
            return
        message = msgspec.json.decode(data, type=WorkerStarted | WorkerNotStarted | WorkerEnded)
        worker = self._workers.get((message.rollout, message.lease))
        if worker is None:  # its driver has given up on it
            return
        if isinstance(message, WorkerNotStarted):
            worker.said.put_nowait(WorkerOutput(f"it could not be forked: {message.reason}\n"))
            message = WorkerEnded(message.rollout, message.lease, LOST_EXIT_CODE)
        if isinstance(message, WorkerStarted):
            worker.pid = message.pid
            message = msgspec.structs.replace(message, node=_own_place().node)
        else:
            worker.pid = 0
        worker.said.put_nowait(message)

    # --- lines of shared workers ------------------------------------------------------------------

    def _open_line(self, worker: _Worker) -> socket.socket:
        """The worker's side of a new line."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        worker.line = ours
        asyncio.get_running_loop().add_reader(ours, _read_line, ours, worker)
        return theirs


async def _read_output(descriptor: int, worker: _Worker) -> None:
    """What a worker writes, until nobody has the pipe open any more."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    with contextlib.closing(transport):
        while text := await reader.read(OUTPUT_BYTES):
            worker.said.put_nowait(WorkerOutput(text.decode(errors="replace")))


def _read_line(line: socket.socket, worker: _Worker) -> None:
    try:
        data = line.recv(MESSAGE_BYTES)
    except BlockingIOError:
        return
    except ConnectionResetError:
        data = b""
    if data:
        worker.said.put_nowait(LineMessage(data.decode()))
    else:
        asyncio.get_running_loop().remove_reader(line)


def _forget_line(worker: _Worker) -> None:
    """Read what is left of it, and close it."""
    if worker.line is None:
        return
    asyncio.get_running_loop().remove_reader(worker.line)
    with contextlib.suppress(BlockingIOError, ConnectionResetError):
        while data := worker.line.recv(MESSAGE_BYTES):
            worker.said.put_nowait(LineMessage(data.decode()))
    worker.line.close()
    worker.line = None


def _on_this_node(request: StartWorker, log: str) -> StartWorker:
    """As the fork server is asked: its GPUs are those that Ray gave, its log is the actor's."""
    gpus = _own_place().gpus
    more = ["--gpus", f"{LOCAL_HOST}={','.join(map(str, gpus))}"] if gpus else []
    return msgspec.structs.replace(request, log=log, arguments=[*request.arguments, *more])


def _own_place() -> ActorPlace:
    import ray

    context = ray.get_runtime_context()
    gpus = tuple(int(number) for number in context.get_accelerator_ids().get("GPU", ()))
    return ActorPlace(context.get_node_id(), socket.gethostname(), gpus)
