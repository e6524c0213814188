"""Stop the daemon from a command; it always ends.

First it is asked, then signalled, then killed, all within the time for leaving (`drain_seconds`).
Killing loses nothing: what was acked is on disk. Engines that a dead daemon left behind are ended
under the home's lock.
"""

import os
import signal
import time
from dataclasses import dataclass

from houston_daemon.hosts.processes import stat_of
from houston_daemon.service.engine_child import end_left_over
from houston_daemon.service.forcing import STOP_SECONDS, leaving_seconds
from houston_shared.clock import iso, now_us
from houston_shared.config import Loaded
from houston_shared.control_client import ControlClient
from houston_shared.errors import DaemonNotRunning, HoustonError, NoAnswer
from houston_shared.home import Home
from houston_shared.lock import HomeLock, Owner, holder
from houston_shared.wire import StopDaemon

ASK_SECONDS = 2.0
ASK_PART = 0.25
"""Part of the time for leaving in which a daemon may answer that it stops, at most ASK_SECONDS."""
ABORT_SECONDS = 0.2
"""After an ABRT, which writes into the log where every thread stands, until a KILL."""
DIES_SECONDS = 1.5
"""What the kernel may take to end a process that was killed."""
ENGINE_SECONDS = 3.0
"""What an engine without a daemon may take to end by itself."""
LEAST_ENGINE_SECONDS = 0.2
"""The same where the daemon before it took nearly all the time."""


@dataclass(frozen=True, slots=True)
class Halted:
    """What was ended."""

    pid: int
    """0 when no daemon ran."""
    forced: str = ""
    """Why it was killed; empty when it left by itself."""
    stood: bool = False
    """Whether it had been stopped by a signal (SIGSTOP) and was let go on."""
    engines: tuple[str, ...] = ()
    """Engines that were ended here because their daemon was gone."""


def halt(loaded: Loaded, keep_engine: bool) -> Halted:
    """Drain and end the daemon of this home, if one runs. Raises HoustonError if it cannot die."""
    home, seconds = loaded.home, leaving_seconds(loaded)
    end = time.monotonic() + seconds
    owner = holder(home)
    if owner is None:
        return Halted(0, engines=() if keep_engine else _end_engines(home, ENGINE_SECONDS))
    stood = _let_go_on(owner.pid)
    refused = _refused(home, keep_engine, min(ASK_SECONDS, seconds * ASK_PART))
    if refused and owner.pid:
        _signal(owner.pid, signal.SIGTERM, refused)
    forced = ""
    if not _gone(home, end - STOP_SECONDS):
        forced = "it did not answer" if refused else "it did not drain"
        _force(home, owner.pid)
    left = max(LEAST_ENGINE_SECONDS, min(ENGINE_SECONDS, end - time.monotonic()))
    return Halted(owner.pid, forced, stood, () if keep_engine else _end_engines(home, left))


def _force(home: Home, pid: int) -> None:
    """End it without its help. Raises HoustonError when not even the kernel can."""
    for number, patience in ((signal.SIGABRT, ABORT_SECONDS), (signal.SIGKILL, DIES_SECONDS)):
        if pid:
            _signal(pid, number)
        if _gone(home, time.monotonic() + patience):
            return
    raise _immortal(pid)


def _let_go_on(pid: int) -> bool:
    """Let a process go on that a signal has stopped: it could neither answer nor drain."""
    found = stat_of(pid) if pid else None
    if found is None or found.state != "T":
        return False
    _signal(pid, signal.SIGCONT)
    return True


def _immortal(pid: int) -> HoustonError:
    found = stat_of(pid)
    waits = " It waits for a disk or a device (state D)." if found and found.state == "D" else ""
    return HoustonError(
        f"The daemon (pid {pid}) cannot be ended, not even by a kill.{waits}",
        "It holds the home still.",
        "Look at that disk or device; the kernel ends the process when it answers.",
    )


def _refused(home: Home, keep_engine: bool, seconds: float) -> HoustonError | None:
    """Ask it to stop; why it does not, None when it does."""
    try:
        with ControlClient(home, seconds) as client:
            client.ask(StopDaemon(keep_engine=keep_engine))
    except HoustonError as problem:
        return problem  # it hangs, or ended this moment: a signal follows, or nothing is needed
    return None


def _signal(pid: int, number: signal.Signals, refused: HoustonError | None = None) -> None:
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


def _gone(home: Home, end: float) -> bool:
    """Whether nobody holds the home by then (monotonic seconds)."""
    while holder(home) is not None:
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _end_engines(home: Home, seconds: float) -> tuple[str, ...]:
    """End what a daemon that was killed left; nobody can start one meanwhile."""
    if not home.lock_file.exists():
        return ()
    lock = HomeLock(home)
    untouched = "No daemon runs; engines that one left behind were not looked at."
    if lock.take(Owner(os.getpid(), iso(now_us())), untouched):
        return ()
    try:
        return tuple(end_left_over(home, seconds))
    finally:
        lock.release()
