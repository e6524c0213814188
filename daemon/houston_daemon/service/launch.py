"""Start the daemon from a command and wait until it is ready."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from houston_daemon.service import ready
from houston_daemon.service.first_folders import make_folders
from houston_daemon.service.log import last_line
from houston_shared.config import Loaded, fingerprint
from houston_shared.control_client import ControlClient
from houston_shared.errors import DaemonNotRunning, ExitCode, HoustonError, NoAnswer
from houston_shared.lock import Owner, holder, unusable
from houston_shared.wire import AskStatus

READY_SECONDS = 60.0
"""A start takes less than three seconds; a large log to recover may take longer."""
ANSWER_SECONDS = 8.0
"""How long a daemon that holds the home already may be silent before that is said."""
TRIES = 5
"""Starts that may each find a daemon which then ends: a stop beside them."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A daemon that runs."""

    pid: int
    since: str
    """Empty when it was started just now."""
    before: str = ""
    """What is known of the daemon before, where it died and this one was started just now."""


def already(loaded: Loaded) -> Launched | None:
    """The daemon that runs on this home, None when there is none.

    Raises HoustonError with exit code 75 (busy) when it runs with another configuration, or holds
    the home and does not answer.
    """
    owner = holder(loaded.home)
    return _running(loaded, owner) if owner else None


def launch(loaded: Loaded) -> Launched:
    """Start the daemon unless one runs (see `already`); return when it is ready.

    Raises HoustonError with the reason when it cannot start.
    """
    for _ in range(TRIES):
        if launched := already(loaded) or _launch(loaded):
            return launched
    raise HoustonError(
        f"Daemons on {loaded.home.path} are stopped as soon as they run.",
        "None was started.",
        "houston daemon status",
        ExitCode.BUSY,
    )


def _launch(loaded: Loaded) -> Launched | None:
    """One try; None when another daemon took the home, and has let it go since."""
    make_folders(loaded.home)
    end = _end_of(loaded.home.logs / "daemon.log")
    reading, writing = os.pipe()
    try:
        process = _spawn(loaded, writing)
    except HoustonError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    try:
        report = ready.hear(reading, READY_SECONDS)
    except TimeoutError:
        raise HoustonError(
            f"The daemon (pid {process.pid}) is not ready after {READY_SECONDS:g} s.",
            "It goes on in the background.",
            "houston daemon logs -f",
            ExitCode.BUSY,
        ) from None
    finally:
        os.close(reading)
    if report is None:
        raise _died(loaded, process, end)
    if report.running:
        return _running(loaded, report.running)
    if not report.ready:
        raise report.problem()
    return Launched(process.pid, "", report.before)


def _spawn(loaded: Loaded, ready_fd: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "houston_daemon.supervisor"]
    command += ["--home", str(loaded.home.path), "--ready-fd", str(ready_fd)]
    if loaded.source != "defaults":
        command += ["--config", loaded.source]
    try:
        log = (loaded.home.logs / "daemon.log").open("ab")
    except OSError as problem:
        raise unusable(loaded.home, problem) from None
    with log:
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(ready_fd,),
                start_new_session=True,
            )
        except OSError as problem:
            raise HoustonError(
                f"The daemon's process could not be started: {problem.strerror} "
                f"({problem.filename or sys.executable}).",
                "The daemon was not started.",
                "houston doctor",
            ) from None


def _running(loaded: Loaded, owner: Owner) -> Launched | None:
    """Wait until the daemon that holds the home answers; refuse if it is configured otherwise.

    None when it has ended meanwhile.
    """
    try:
        with ControlClient(loaded.home, ANSWER_SECONDS) as client:
            client.ask(AskStatus())
    except DaemonNotRunning:
        return None
    except NoAnswer:
        raise HoustonError(
            f"A daemon (pid {owner.pid or 'unknown'}) holds the home {loaded.home.path}, but has "
            f"not answered for {ANSWER_SECONDS:g} s.",
            "It may still be starting, or hang; a stop ends it in any case.",
            "houston daemon stop",
            ExitCode.BUSY,
        ) from None
    owner = holder(loaded.home) or owner
    if owner.configuration != fingerprint(loaded.config):
        raise HoustonError(
            f"A daemon with another configuration ({owner.source}) runs already "
            f"(pid {owner.pid}, since {owner.since}).",
            "The running one goes on as it is.",
            "houston daemon restart",
            ExitCode.BUSY,
        )
    return Launched(owner.pid, owner.since)


def _died(loaded: Loaded, process: "subprocess.Popen[bytes]", end: tuple[int, int]) -> HoustonError:
    """end: where the log ended before it was started; what others wrote is no cause of its end."""
    code = process.wait()
    log = loaded.home.logs / "daemon.log"
    inode, size = _end_of(log)
    new = size - end[1] if inode == end[0] else size
    said = last_line(log, new) if new > 0 else ""
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return HoustonError(
        f"The daemon ended ({how}) before it was ready: {said or 'it wrote nothing'}",
        "The daemon was not started.",
        f"See {log}.",
    )


def _end_of(log: Path) -> tuple[int, int]:
    """Inode and size of a log; zeros while there is none."""
    try:
        found = log.stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_size
