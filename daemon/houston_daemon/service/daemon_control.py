"""Start the daemon from a command and wait until it is ready; stop it so that it always ends.

Readiness is one JSON line on a pipe from the daemon to its starter; if the pipe ends without it,
the daemon has died. To stop, the daemon is asked, then signalled, then killed, all within
`drain_seconds`: killing loses nothing, because everything acked is on disk. Engines that a dead
daemon left behind are ended under the home's lock. `commands.daemon_commands` prints the results.
"""

import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from houston_daemon.hosts.process_table import read_process_stat
from houston_daemon.service.daemon_log import describe_exit, read_last_line
from houston_daemon.service.engine_child import end_orphaned_engines
from houston_daemon.service.force_exit import STOP_RESERVE_SECONDS, shutdown_seconds
from houston_daemon.service.home_setup import make_home_folders
from houston_shared.config import LoadedConfiguration, fingerprint
from houston_shared.control_client import ControlClient
from houston_shared.errors import Busy, DaemonNotRunning, ExitCode, HoustonError, NoAnswer
from houston_shared.home import Home
from houston_shared.home_lock import HomeLock, HomeOwner, find_running_daemon, unusable_home
from houston_shared.times_and_counts import iso_time, now_us
from houston_shared.wire import AskStatus, StopDaemon


class ReadinessReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the daemon says once."""

    ready: bool = False
    running: HomeOwner | None = None
    """Somebody else holds the home."""
    before: str = ""
    """What is known of the daemon before, where it died."""
    cause: str = ""
    effect: str = ""
    next: str = ""
    code: int = 1

    def problem(self) -> HoustonError:
        """The error that kept the daemon from becoming ready."""
        return HoustonError(self.cause, self.effect, self.next, ExitCode(self.code))


def failure_report(problem: HoustonError) -> ReadinessReport:
    """The report of a daemon that cannot start."""
    return ReadinessReport(
        cause=problem.cause, effect=problem.effect, next=problem.next, code=int(problem.code)
    )


def send_readiness(fd: int | None, report: ReadinessReport) -> None:
    """Write the report and close the pipe; a starter that has gone is no problem of ours."""
    if fd is None:
        return
    try:
        os.write(fd, msgspec.json.encode(report) + b"\n")
    except BrokenPipeError:
        pass
    finally:
        os.close(fd)


def wait_for_readiness(fd: int, seconds: float) -> ReadinessReport | None:
    """Wait for the report; None when the daemon died without one. Raises TimeoutError."""
    received = b""
    end = time.monotonic() + seconds
    while not received.endswith(b"\n"):
        seconds_left = end - time.monotonic()
        if seconds_left <= 0 or not select.select([fd], [], [], seconds_left)[0]:
            raise TimeoutError
        chunk = os.read(fd, 65_536)
        if not chunk:
            return None
        received += chunk
    return msgspec.json.decode(received, type=ReadinessReport)


READY_SECONDS = 60.0
"""A start takes less than three seconds; a large log to recover may take longer."""
ANSWER_SECONDS = 8.0
"""How long a daemon that holds the home already may be silent before that is said."""
START_TRIES = 5
"""Starts that may each find a daemon which then ends: a stop beside them."""


@dataclass(frozen=True, slots=True)
class RunningDaemon:
    """A daemon that runs."""

    pid: int
    since: str
    """Empty when it was started just now."""
    before: str = ""
    """What is known of the daemon before, where it died and this one was started just now."""


def find_answering_daemon(loaded: LoadedConfiguration) -> RunningDaemon | None:
    """The daemon that runs on this home, None when there is none.

    Raises HoustonError with exit code 75 (busy) when it runs with another configuration, or holds
    the home and does not answer.
    """
    owner = find_running_daemon(loaded.home)
    return _wait_for_answer(loaded, owner) if owner else None


def start_daemon(loaded: LoadedConfiguration) -> RunningDaemon:
    """Start the daemon unless one runs (see `find_answering_daemon`); return when it is ready.

    Raises HoustonError with the reason when it cannot start.
    """
    for _ in range(START_TRIES):
        if launched := find_answering_daemon(loaded) or _start_once(loaded):
            return launched
    raise Busy(
        f"Something stops each daemon on {loaded.home.path} as soon as it runs.",
        "No daemon was started.",
        "houston daemon status",
    )


def _start_once(loaded: LoadedConfiguration) -> RunningDaemon | None:
    """One try; None when another daemon took the home, and has let it go since."""
    make_home_folders(loaded.home)
    end = _log_inode_and_size(loaded.home.logs / "daemon.log")
    reading, writing = os.pipe()
    try:
        process = _spawn_daemon(loaded, writing)
    except HoustonError:
        os.close(reading)
        raise
    finally:
        os.close(writing)
    try:
        report = wait_for_readiness(reading, READY_SECONDS)
    except TimeoutError:
        raise Busy(
            f"The daemon (pid {process.pid}) is not ready after {READY_SECONDS:g} s.",
            "It continues in the background.",
            "houston daemon logs -f",
        ) from None
    finally:
        os.close(reading)
    if report is None:
        raise _startup_failure(loaded, process, end)
    if report.running:
        return _wait_for_answer(loaded, report.running)
    if not report.ready:
        raise report.problem()
    return RunningDaemon(process.pid, "", report.before)


def _spawn_daemon(loaded: LoadedConfiguration, ready_fd: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "houston_daemon.service.daemon_process"]
    command += ["--home", str(loaded.home.path), "--ready-fd", str(ready_fd)]
    if loaded.file:
        command += ["--config", loaded.file]
    try:
        log = (loaded.home.logs / "daemon.log").open("ab")
    except OSError as problem:
        raise unusable_home(loaded.home, problem) from None
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


def _wait_for_answer(loaded: LoadedConfiguration, owner: HomeOwner) -> RunningDaemon | None:
    """Wait until the daemon that holds the home answers; refuse if it is configured otherwise.

    None when it has ended meanwhile.
    """
    try:
        with ControlClient(loaded.home, ANSWER_SECONDS) as client:
            client.ask(AskStatus())
    except DaemonNotRunning:
        return None
    except NoAnswer:
        raise Busy(
            f"A daemon (pid {owner.pid or 'unknown'}) holds the home {loaded.home.path}, but has "
            f"not answered for {ANSWER_SECONDS:g} s.",
            "It may still be starting, or hang; a stop ends it in any case.",
            "houston daemon stop",
        ) from None
    owner = find_running_daemon(loaded.home) or owner
    if owner.configuration != fingerprint(loaded.config):
        raise Busy(
            f"A daemon with another configuration ({owner.source}) is already running (pid "
            f"{owner.pid}, since {owner.since}).",
            "The running daemon was not changed.",
            "houston daemon restart",
        )
    return RunningDaemon(owner.pid, owner.since)


def _startup_failure(
    loaded: LoadedConfiguration, process: "subprocess.Popen[bytes]", end: tuple[int, int]
) -> HoustonError:
    """end: where the log ended before it was started; what others wrote is no cause of its end."""
    exit_text = describe_exit(process.wait())
    log = loaded.home.logs / "daemon.log"
    inode, size = _log_inode_and_size(log)
    new = size - end[1] if inode == end[0] else size
    last_line = read_last_line(log, new) if new > 0 else ""
    return HoustonError(
        f"The daemon ended ({exit_text}) before it was ready: {last_line or 'it wrote nothing'}",
        "The daemon was not started.",
        f"See {log}.",
    )


def _log_inode_and_size(log: Path) -> tuple[int, int]:
    try:
        status = log.stat()
    except OSError:
        return 0, 0
    return status.st_ino, status.st_size


STOP_ANSWER_SECONDS = 2.0
STOP_ANSWER_PART = 0.25
"""Part of the time for leaving in which a daemon may answer that it stops, at most
STOP_ANSWER_SECONDS."""
ABORT_SECONDS = 0.2
"""After an ABRT, which writes into the log where every thread stands, until a KILL."""
KERNEL_KILL_SECONDS = 1.5
"""What the kernel may take to end a process that was killed."""
ORPHANED_ENGINE_SECONDS = 3.0
"""What an engine without a daemon may take to end by itself."""
MIN_ORPHANED_ENGINE_SECONDS = 0.2
"""The same where the daemon before it took nearly all the time."""


@dataclass(frozen=True, slots=True)
class StoppedDaemon:
    """What was ended."""

    pid: int
    """0 when no daemon ran."""
    forced: str = ""
    """Why it was killed; empty when it left by itself."""
    stood: bool = False
    """Whether it had been stopped by a signal (SIGSTOP) and was let go on."""
    engines: tuple[str, ...] = ()
    """Engines that were ended here because their daemon was gone."""


def stop_running_daemon(loaded: LoadedConfiguration, keep_engine: bool) -> StoppedDaemon:
    """Drain and end the daemon of this home, if one runs. Raises HoustonError if it cannot die."""
    home, seconds = loaded.home, shutdown_seconds(loaded)
    end = time.monotonic() + seconds
    owner = find_running_daemon(home)
    if owner is None:
        return StoppedDaemon(
            0,
            engines=() if keep_engine else _end_engines_left_behind(home, ORPHANED_ENGINE_SECONDS),
        )
    stood = _continue_if_stopped(owner.pid)
    refused = _ask_to_stop(home, keep_engine, min(STOP_ANSWER_SECONDS, seconds * STOP_ANSWER_PART))
    if refused and owner.pid:
        _signal_daemon(owner.pid, signal.SIGTERM, refused)
    forced = ""
    if not _wait_until_released(home, end - STOP_RESERVE_SECONDS):
        forced = "it did not answer" if refused else "it did not drain"
        _kill_daemon(home, owner.pid)
    seconds_left = max(
        MIN_ORPHANED_ENGINE_SECONDS, min(ORPHANED_ENGINE_SECONDS, end - time.monotonic())
    )
    return StoppedDaemon(
        owner.pid,
        forced,
        stood,
        () if keep_engine else _end_engines_left_behind(home, seconds_left),
    )


def _kill_daemon(home: Home, pid: int) -> None:
    """End it without its help. Raises HoustonError when not even the kernel can."""
    for number, patience in (
        (signal.SIGABRT, ABORT_SECONDS),
        (signal.SIGKILL, KERNEL_KILL_SECONDS),
    ):
        if pid:
            _signal_daemon(pid, number)
        if _wait_until_released(home, time.monotonic() + patience):
            return
    raise _unkillable_error(pid)


def _continue_if_stopped(pid: int) -> bool:
    """Let a process go on that a signal has stopped: it could neither answer nor drain."""
    process = read_process_stat(pid) if pid else None
    if process is None or process.state != "T":
        return False
    _signal_daemon(pid, signal.SIGCONT)
    return True


def _unkillable_error(pid: int) -> HoustonError:
    process = read_process_stat(pid)
    waits = (
        " It waits for a disk or a device (state D)." if process and process.state == "D" else ""
    )
    return HoustonError(
        f"The daemon (pid {pid}) cannot be ended, not even with SIGKILL.{waits}",
        "It still holds the home.",
        "Check that disk or device; the kernel ends the process when it responds.",
    )


def _ask_to_stop(home: Home, keep_engine: bool, seconds: float) -> HoustonError | None:
    """Ask it to stop; why it does not, None when it does."""
    try:
        with ControlClient(home, seconds) as client:
            client.ask(StopDaemon(keep_engine=keep_engine))
    except HoustonError as problem:
        return problem  # it hangs, or ended this moment: a signal follows, or nothing is needed
    return None


def _signal_daemon(pid: int, number: signal.Signals, refused: HoustonError | None = None) -> None:
    """refused: what the daemon itself said, shown where this user may not signal it either."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        if refused and not isinstance(refused, (DaemonNotRunning, NoAnswer)):  # it says who may
            raise refused from None
        raise HoustonError(
            f"The daemon (pid {pid}) belongs to another user.", "It was not stopped."
        ) from None


def _wait_until_released(home: Home, end: float) -> bool:
    """Whether nobody holds the home by then (monotonic seconds)."""
    while find_running_daemon(home) is not None:
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _end_engines_left_behind(home: Home, seconds: float) -> tuple[str, ...]:
    """End what a daemon that was killed left; nobody can start one meanwhile."""
    if not home.lock_file.exists():
        return ()
    lock = HomeLock(home)
    untouched = "No daemon runs; engines that one left behind were not checked."
    if lock.take(HomeOwner(os.getpid(), iso_time(now_us())), untouched):
        return ()
    try:
        return tuple(end_orphaned_engines(home, seconds))
    finally:
        lock.release()
