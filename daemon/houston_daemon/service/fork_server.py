"""The process that workers are forked from: it has imported what they need, once for all of them.

`python -m houston_daemon.service.fork_server PARENT FD PRELOAD LOG ROOM`, started by the
supervisor. A worker as a fresh interpreter costs 0.3 s of a processor and 54 MB; forked from here
it costs some milliseconds and shares the memory. This process is tied to the daemon and workers
to it, so that none outlives the daemon. It runs no worker's code itself, has one thread only, and
imports little beyond what it is told to preload
(docs/decisions.md#workers-are-forked-from-a-fork-server).

Messages on FD (a SOCK_SEQPACKET pair) are JSON: `StartWorker` and `ForkServerPing` come in,
`WorkerStarted`, `WorkerNotStarted`, `WorkerEnded` and `ForkServerPong` go out.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import runpy
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from houston_daemon.service.log_rotation import rotate_log
from houston_daemon.service.parent_death import end_with_parent
from houston_shared.faults import point
from houston_shared.secret_redaction import redact

MESSAGE_BYTES = 65_536
LOST_EXIT_CODE = -int(signal.SIGKILL)
"""Of a worker that ended with what had started it: the kernel, or Ray, kills those."""
LINE_DESCRIPTOR = 3
"""Where a shared worker finds its line to the supervisor."""
FORK_SERVER = "houston_daemon.service.fork_server"
PRELOADED_MODULE = "houston_daemon.agent.worker_preload"
"""What workers need, imported once for all of them."""
_COMMAND_LINE_ROOM = "x" * 1024
"""Place for the command line that a worker shows in `ps`."""
DESCRIPTORS_TO_CLOSE = 4_096
"""More descriptors than a fork server ever has."""


class StartWorker(msgspec.Struct, frozen=True, tag=True):
    """Start `python -m module arguments` as a worker.

    A descriptor that comes along with the message is the worker's descriptor LINE_DESCRIPTOR.
    """

    rollout: str
    """The rollout, or the name of a worker that many share."""
    lease: int
    module: str
    arguments: list[str]
    log: str
    """Where its output goes."""
    log_bytes: int
    """A longer log of earlier workers is moved aside first."""
    log_files: int = 1
    """How many of those are kept."""


class WorkerStarted(msgspec.Struct, frozen=True, tag=True):
    """A worker runs."""

    rollout: str
    lease: int
    pid: int
    node: str = ""
    """Node of a cluster that it runs on; empty for this machine, by the fork server's hand."""


class WorkerNotStarted(msgspec.Struct, frozen=True, tag=True):
    """A worker could not be forked: there are no more processes, descriptors or memory now."""

    rollout: str
    lease: int
    reason: str


class WorkerEnded(msgspec.Struct, frozen=True, tag=True):
    """A worker has ended."""

    rollout: str
    lease: int
    code: int
    """Exit code; minus the number of the signal that ended it."""


class ForkServerPing(msgspec.Struct, frozen=True, tag=True):
    """Say that you are there."""


class ForkServerPong(msgspec.Struct, frozen=True, tag=True):
    """The fork server is there, and everything that was asked before is done."""


class ForkServer:
    """The loop: fork what is asked for, say what has ended."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._selector = selectors.DefaultSelector()
        self._selector.register(line, selectors.EVENT_READ)

    def run(self) -> None:
        """Until the daemon closes the line."""
        while True:
            for key, _ in self._selector.select():
                if isinstance(key.data, WorkerStarted):
                    self._reap(key.fd, key.data)
                else:
                    message, descriptors, *_ = socket.recv_fds(self._line, MESSAGE_BYTES, 1)
                    if not message:
                        return
                    order = msgspec.json.decode(message, type=StartWorker | ForkServerPing)
                    if isinstance(order, ForkServerPing):
                        self._send(ForkServerPong())
                    else:
                        self._fork(order, descriptors)

    def _fork(self, request: StartWorker, descriptors: Sequence[int]) -> None:
        fork_server = os.getpid()
        pid = -1
        try:
            point("fork_server.fork.before")
            pid = os.fork()
            if pid == 0:
                _run_as_worker(request, fork_server, self._line, descriptors)
            watched = os.pidfd_open(pid)
        except OSError as problem:  # as an error of this process it would end every other worker
            if pid > 0:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            self._send(WorkerNotStarted(request.rollout, request.lease, str(problem)))
            return
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        started = WorkerStarted(request.rollout, request.lease, pid)
        self._selector.register(watched, selectors.EVENT_READ, started)
        point("fork_server.fork.after")
        self._send(started)

    def _reap(self, fd: int, started: WorkerStarted) -> None:
        self._selector.unregister(fd)
        os.close(fd)
        _, status = os.waitpid(started.pid, 0)
        point("fork_server.reap.after")
        self._send(WorkerEnded(started.rollout, started.lease, os.waitstatus_to_exitcode(status)))

    def _send(self, message: msgspec.Struct) -> None:
        self._line.send(msgspec.json.encode(message))


def _run_as_worker(
    request: StartWorker, fork_server: int, line: socket.socket, descriptors: Sequence[int]
) -> NoReturn:
    """In the forked child: be the worker, then end without returning into the fork server."""
    code = 1
    try:
        line.close()
        for descriptor in descriptors:
            os.dup2(descriptor, LINE_DESCRIPTOR, inheritable=False)
        # The fork server's, of its line and of siblings.
        os.closerange(LINE_DESCRIPTOR + len(descriptors), DESCRIPTORS_TO_CLOSE)
        os.setsid()  # a Ctrl-C at a foreground daemon drains, it kills nobody
        point("fork_server.child.before")
        if end_with_parent(fork_server):
            log = Path(request.log)
            rotate_if_long(log, request)
            redirect_output(log)
            _set_command_line([sys.executable, "-m", request.module, *request.arguments])
            code = run_worker_module(request.module, request.arguments)
    except BaseException:  # noqa: BLE001 the end of the process: what it was goes to its log
        sys.stderr.write(redact(traceback.format_exc()))
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)
    raise AssertionError("unreachable")


def run_worker_module(module: str, arguments: list[str]) -> int:
    """Be `python -m module arguments` in this process; its exit code."""
    sys.argv = [module, *arguments]
    sys.modules.pop(module, None)  # it runs as `__main__`; what it imports stays
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as leaving:
        if isinstance(leaving.code, str):
            sys.stderr.write(f"{leaving.code}\n")
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:  # noqa: BLE001 the end of the process: what it was goes to its log
        sys.stderr.write(redact(traceback.format_exc()))
        return 1
    return 0


def rotate_if_long(log: Path, request: StartWorker) -> None:
    """Move the log of earlier workers aside where it has become too long."""
    if log.exists() and log.stat().st_size > request.log_bytes:
        rotate_log(log, request.log_files)


def redirect_output(log: Path) -> None:
    """Point stdout and stderr at `log`, and again at each SIGHUP: it may have been moved away."""

    def begin() -> None:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may be gone, too
        fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        os.close(fd)

    def again(*_: object) -> None:
        with contextlib.suppress(OSError):  # a full disk: what was open is written on
            begin()

    begin()
    signal.signal(signal.SIGHUP, again)


def _set_command_line(words: list[str]) -> None:
    """Show these words as the command line of this process (in `ps`): operators look for them.

    The kernel reads them from where the arguments lie in memory; ROOM made the place long enough.
    """
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start, arg_end: proc(5), fields 48 and 49
    text = b"\0".join(os.fsencode(word) for word in words)[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))


def spawner_command(module: str, descriptor: int, preload: str, log: str) -> list[str]:
    """How this program is started, or another `module` that takes the same messages.

    descriptor: its end of the line. preload: what it imports first. log: where its output goes.
    """
    words = (str(os.getpid()), str(descriptor), preload, log, _COMMAND_LINE_ROOM)
    return [sys.executable, "-m", module, *words]


def main(arguments: list[str]) -> int:
    """Serve the daemon until it closes the line."""
    parent, fd, preload, log, _room = arguments
    if not end_with_parent(int(parent)):
        return 1
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    redirect_output(Path(log))
    if preload:
        importlib.import_module(preload)
    gc.freeze()  # what is here now is shared with every worker: the collector lets it lie
    with socket.socket(fileno=int(fd)) as line:
        ForkServer(line).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
