"""A trainer's first process: starts the command and ends with all of it.

`python -m houston_daemon.service.trainer_child PARENT SECONDS COMMAND…`, in a session of its own.
A trainer starts processes (one a GPU) which the kernel would not tie to the daemon: this one is
tied, and takes the others along. TERM asks them to leave and waits `SECONDS`; when the daemon
dies, none of them lives a second longer. Standard library only.

Exit code: the command's; 128 and the signal where one ended it.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading

_PR_SET_PDEATHSIG = 1
_PARENT_DEATH_SIGNAL = signal.SIGUSR1


def main(arguments: list[str]) -> int:
    """Run the command; returns its exit code."""
    parent, seconds, command = int(arguments[0]), float(arguments[1]), arguments[2:]
    signal.signal(_PARENT_DEATH_SIGNAL, _kill_session)
    if (
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, _PARENT_DEATH_SIGNAL, 0, 0, 0)
        != 0
    ):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        return 1
    child: subprocess.Popen[bytes] | None = None
    asked = passed_on = False

    def pass_on(*_: object) -> None:
        nonlocal asked, passed_on
        asked = True
        if child is not None and not passed_on:
            passed_on = True
            child.send_signal(signal.SIGTERM)
            late = threading.Timer(seconds, _kill_session)
            late.daemon = True
            late.start()

    signal.signal(signal.SIGTERM, pass_on)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    if asked:  # while it was being started
        pass_on()
    code = child.wait()
    return 128 - code if code < 0 else code


def _kill_session(*_: object) -> None:
    """Everything of this session, this process too."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
