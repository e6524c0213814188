"""Start one worker process, tied to the daemon, with its own log.

It knows how a process is started and how its end is seen (a pidfd); not why, nor what follows.
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class Spawned:
    """A worker process."""

    process: "subprocess.Popen[bytes]"
    ended_fd: int
    """A pidfd: readable when the process has ended. The caller closes it."""
    started_fd: int
    """A pipe: readable when the process has imported what it needs. The caller closes it."""


def spawn_worker(module: str, arguments: list[str], log: Path, log_bytes: int) -> Spawned:
    """Start a worker (main thread only): `python -m module arguments`. Raises OSError.

    log: where its output goes.
    log_bytes: a longer log of an earlier worker is moved aside first, to `<log>.1`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > log_bytes:
        log.replace(log.with_name(log.name + ".1"))
    reading, writing = os.pipe()
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                _command(writing, module, arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(writing,),
                start_new_session=True,  # a Ctrl-C at a foreground daemon drains, it kills nobody
            )
    except OSError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    return Spawned(process, os.pidfd_open(process.pid), reading)


def _command(started_fd: int, module: str, arguments: list[str]) -> list[str]:
    tether = "houston_daemon.service.tether"
    return [sys.executable, "-m", tether, str(os.getpid()), str(started_fd), module, *arguments]
