"""The actor that holds a worker's place on a node of a Ray cluster, and starts the worker there.

A worker is the same process as on the daemon's machine, `python -m houston_daemon.agent.…`, and a
child of its actor: it has its own exit code, signals and memory, and ends with the actor, which
ends with its driver (`ray_cluster`) or its node. Ray decides where the actor is and what it may
use. An actor serves one worker: a successor has another lease and may need another node.

`python -m houston_daemon.service.ray_actor PARENT FD MODULE ARGUMENTS…` is what the child runs.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import AsyncIterator

import msgspec

from houston_daemon.service.fork_server import (
    LINE_DESCRIPTOR,
    MESSAGE_BYTES,
    StartWorker,
    WorkerEnded,
    WorkerStarted,
    run_worker_module,
)
from houston_daemon.service.parent_death import end_with_parent
from houston_daemon.service.ray_messages import ActorPlace, LineMessage, WorkerOutput
from houston_shared.config_sections import LOCAL_HOST

OUTPUT_BYTES = 65_536
"""Most that one message to the log holds."""
NO_LINE = -1


class WorkerActor:
    """One place, and the worker that is started there."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._line: socket.socket | None = None
        """Our side of the worker's line, where many rollouts share it."""
        self._said: asyncio.Queue[msgspec.Struct | None] = asyncio.Queue()
        """What goes to the driver; None when the output has ended."""

    async def place(self) -> bytes:
        """Where this is: an ActorPlace."""
        return msgspec.json.encode(_own_place())

    async def run(self, order: bytes, with_line: bool) -> AsyncIterator[bytes]:
        """Run the worker of a StartWorker to its end; yields what the fork server would say of it,
        what it writes, and what it says on its line."""
        request = msgspec.json.decode(order, type=StartWorker)
        theirs = self._open_line() if with_line else None
        try:
            self._process = await _start(request, theirs)
        finally:
            if theirs is not None:
                theirs.close()
        me = os.environ.get("RAY_NODE_ID", "") or _own_place().node
        yield _encoded(WorkerStarted(request.rollout, request.lease, self._process.pid, me))
        reading = asyncio.create_task(self._read_output(self._process))
        while (message := await self._said.get()) is not None:
            yield _encoded(message)
        await reading
        code = await self._process.wait()
        self._forget_line()
        while not self._said.empty():
            if (message := self._said.get_nowait()) is not None:
                yield _encoded(message)
        yield _encoded(WorkerEnded(request.rollout, request.lease, code))

    async def send(self, data: bytes) -> None:
        """Say something on the worker's line; empty: nothing more will be said."""
        if self._line is None:
            return
        with contextlib.suppress(OSError):  # the worker has ended, which is heard next
            if data:
                await asyncio.get_running_loop().sock_sendall(self._line, data)
            else:
                self._line.shutdown(socket.SHUT_WR)

    async def signal(self, number: int) -> None:
        """Send the worker a signal; a KILL goes to all that it runs at this moment, too."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
            if number == signal.SIGKILL:
                os.killpg(self._process.pid, number)

    async def _read_output(self, process: Process) -> None:
        assert process.stdout is not None
        while text := await process.stdout.read(OUTPUT_BYTES):
            self._said.put_nowait(WorkerOutput(text.decode(errors="replace")))
        self._said.put_nowait(None)

    def _open_line(self) -> socket.socket:
        """The worker's side of a new line."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._line = ours
        asyncio.get_running_loop().add_reader(ours, self._read_line, ours)
        return theirs

    def _read_line(self, line: socket.socket) -> None:
        try:
            data = line.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if data:
            self._said.put_nowait(LineMessage(data.decode()))
        else:
            asyncio.get_running_loop().remove_reader(line)

    def _forget_line(self) -> None:
        """Read what is left of it, and close it."""
        if self._line is None:
            return
        asyncio.get_running_loop().remove_reader(self._line)
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while data := self._line.recv(MESSAGE_BYTES):
                self._said.put_nowait(LineMessage(data.decode()))
        self._line.close()
        self._line = None


def _own_place() -> ActorPlace:
    import ray

    context = ray.get_runtime_context()
    gpus = tuple(int(number) for number in context.get_accelerator_ids().get("GPU", ()))
    return ActorPlace(context.get_node_id(), socket.gethostname(), gpus)


async def _start(request: StartWorker, line: socket.socket | None) -> Process:
    """Start the worker's process, tied to this one."""
    arguments = list(request.arguments)
    if gpus := _own_place().gpus:
        arguments += ["--gpus", f"{LOCAL_HOST}={','.join(map(str, gpus))}"]
    descriptor = NO_LINE if line is None else line.fileno()
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "houston_daemon.service.ray_actor",
        str(os.getpid()),
        str(descriptor),
        request.module,
        *arguments,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        pass_fds=() if line is None else (descriptor,),
        start_new_session=True,
    )


def _encoded(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message)


def main(arguments: list[str]) -> int:
    """Be the worker."""
    parent, descriptor, module, *rest = arguments
    if not end_with_parent(int(parent)):
        return 1
    if int(descriptor) != NO_LINE:
        os.dup2(int(descriptor), LINE_DESCRIPTOR, inheritable=False)
        if int(descriptor) != LINE_DESCRIPTOR:
            os.close(int(descriptor))
    return run_worker_module(module, rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
