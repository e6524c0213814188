"""`houston` as a process of its own, without what an interpreter takes to start and to import it.

A run of the tests starts thousands of commands. `houston_command("rollout", "list")` is what to run
instead of `python -m houston_shared.command rollout list`: a small client (`command_client.py`)
that hands its files, folder, environment and words to a server of this test process, which has
imported what commands import, and forks one for each. The client ends as that process ends, and
takes it along when it is killed. Where the environment holds something that an interpreter reads
when it starts, and that the server has otherwise, the client becomes `python -m
houston_shared.command` itself. Who tests signals, or reads the command line of a command in
`/proc`, starts it that way too.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from houston_daemon.service.fork_server import run_worker_module
from houston_shared.command_table import COMMANDS

ROOT = Path(__file__).parents[2]
CLIENT = Path(__file__).with_name("command_client.py")
MODULE = "houston_shared.command"
READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "OMP_", "OPENBLAS_")
"""Beginnings of the names of variables that are read once, before a command runs."""
PRELOADED = ("houston_daemon.agent.worker_preload", "houston_daemon.service.rollout_start_checks")
"""What `rollout start` imports when it runs."""


def houston_command(*words: str) -> list[str]:
    """What runs `houston words…` in a process of its own."""
    return [sys.executable, "-IS", str(CLIENT), _start_server(), *words]


@functools.cache
def _start_server() -> str:
    """The socket of this process's server, which ends with it."""
    folder = tempfile.mkdtemp(prefix="houston-commands-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = f"{folder}/socket"
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.houston_command", path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
    )
    atexit.register(server.kill)
    assert server.stdout and server.stdout.readline(), "the server of commands did not start"
    return path


def serve(path: str) -> int:
    """Fork a command for each client until standard input ends."""
    for module in (*PRELOADED, *(command.module for command in COMMANDS)):
        importlib.import_module(module)
    gc.freeze()
    own = dict(os.environb)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    print("ready", flush=True)
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        line, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            sys.exit(_answer(line, own))
        line.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
    return 0


def _answer(line: socket.socket, own: Mapping[bytes, bytes]) -> int:
    """Run one command and say how it ended; returns only in the process that runs it."""
    size, files, *_ = socket.recv_fds(line, 8, 3)
    request = b""
    while len(request) < int.from_bytes(size):
        request += line.recv(1 << 20)
    folder, count, *rest = request.split(b"\0")
    words = [os.fsdecode(word) for word in rest[: int(count)]]
    environment = dict(entry.split(b"=", 1) for entry in rest[int(count) :])
    if _start_variables(environment) != _start_variables(own):
        line.sendall(b"own")
        os._exit(0)
    if (pid := os.fork()) == 0:
        line.close()  # while its number is its own: the command opens files, too
        return _run_command(words, folder, environment, files)
    for descriptor in files:
        os.close(descriptor)
    ended = os.pidfd_open(pid)
    if ended in select.select([line, ended], [], [])[0]:
        _, status = os.waitpid(pid, 0)
        line.sendall(b"%d" % os.waitstatus_to_exitcode(status))
    else:  # the client has gone
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os._exit(0)


def _start_variables(environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    beginnings = tuple(map(str.encode, READ_AT_START))
    return {key: value for key, value in environment.items() if key.startswith(beginnings)}


def _run_command(
    words: list[str], folder: bytes, environment: Mapping[bytes, bytes], files: list[int]
) -> int:
    """Be `python -m houston_shared.command words…` of the client."""
    for number, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        os.dup2(files[number], number)
        was, buffering = getattr(sys, name), 1 if name == "stderr" else -1
        stream = open(number, mode, buffering, was.encoding, was.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.closerange(3, 1024)
    os.chdir(folder)
    os.environb.clear()
    os.environb.update(environment)
    sys.path[0] = os.getcwd()
    return run_worker_module(MODULE, words)


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1]))
