"""A trainer's first process: starts the command and ends with all of it.

`python -m houston_daemon.service.trainer_child PARENT SECONDS COMMAND…`, in its own session. A
trainer starts processes (one per GPU) that the kernel would not tie to the daemon: this process is
tied to it and ends the others. TERM asks them to leave and waits `SECONDS`; when the daemon dies,
none of them outlives it by a second. It imports little, because it lives as long as the run.

Exit code: the command's; 128 and the signal if a signal ended it.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import time

from houston_daemon.service.parent_death import end_with_parent

_PARENT_DEATH_SIGNAL = signal.SIGUSR1


def main(arguments: list[str]) -> int:
    """Run the command; returns its exit code."""
    parent, seconds, command = int(arguments[0]), float(arguments[1]), arguments[2:]
    wakeup_reader, wake = socket.socketpair()
    wake.setblocking(False)
    # A handler alone would come too late for a signal just before a wait; the byte ends the wait.
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(_PARENT_DEATH_SIGNAL, _kill_session)
    if not end_with_parent(parent, _PARENT_DEATH_SIGNAL):
        return 1
    signal.signal(signal.SIGTERM, lambda *_: None)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_end_with_first)
    _pass_on_term(child, wakeup_reader, seconds)
    code = child.wait()
    return 128 - code if code < 0 else code


def _end_with_first() -> None:
    """In the command's process, before it begins: where this one is killed, as Ray does with what
    a worker has left, there is no time for the session."""
    end_with_parent(os.getppid())


def _pass_on_term(
    child: "subprocess.Popen[bytes]", wakeup_reader: socket.socket, seconds: float
) -> None:
    """Return when the command has ended; end the session `seconds` after the first TERM."""
    ended = os.pidfd_open(child.pid)
    sources: list[int | socket.socket] = [ended, wakeup_reader]
    deadline: float | None = None
    while True:
        seconds_left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = select.select(sources, [], [], seconds_left)[0]
        if ended in ready:
            return
        if (
            wakeup_reader in ready
            and signal.SIGTERM in wakeup_reader.recv(4096)
            and deadline is None
        ):
            deadline = time.monotonic() + seconds
            child.send_signal(signal.SIGTERM)
        if deadline is not None and time.monotonic() >= deadline:
            _kill_session()


def _kill_session(*_: object) -> None:
    """Everything of this session, this process too."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
