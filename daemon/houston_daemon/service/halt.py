"""Stop the daemon from a command; it always ends.

First it is asked, then signalled, then killed; each with a bound. Killing loses nothing: what was
acked is on disk. Engines that a dead daemon left behind are ended under the home's lock.
"""

import os
import signal
import time
from dataclasses import dataclass

from houston_daemon.hosts.processes import stat_of
from houston_daemon.service.engine_child import end_left_over
from houston_daemon.service.forcing import leaving_seconds
from houston_shared.clock import iso, now_us
from houston_shared.config import Loaded
from houston_shared.control_client import ControlClient
from houston_shared.errors import DaemonNotRunning, HoustonError, NoAnswer
from houston_shared.home import Home
from houston_shared.lock import HomeLock, Owner, holder
from houston_shared.wire import StopDaemon

ASK_SECONDS = 2.0
AFTER_SECONDS = 1.5
"""What a daemon may take beyond the time for leaving before it is killed; it ends itself sooner."""
SILENT_SECONDS = 9.0
"""The same for one that does not answer: it may be busy and drain all the same."""
FORCED_SECONDS = 1.5


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
    home = loaded.home
    owner = holder(home)
    if owner is None:
        return Halted(0, engines=() if keep_engine else _end_engines(home))
    stood = _let_go_on(owner.pid)
    refused = _refused(home, keep_engine)
    asked = refused is None
    if refused and owner.pid:
        _signal(owner.pid, signal.SIGTERM, refused)
    patience = leaving_seconds(loaded) + AFTER_SECONDS
    forced = ""
    if not _gone(home, patience if asked else min(patience, SILENT_SECONDS)):
        forced = "it did not drain" if asked else "it did not answer"
        if owner.pid:
            _signal(owner.pid, signal.SIGKILL)
        if not _gone(home, FORCED_SECONDS):
            raise _immortal(owner.pid)
    return Halted(owner.pid, forced, stood, () if keep_engine else _end_engines(home))


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


def _refused(home: Home, keep_engine: bool) -> HoustonError | None:
    """Ask it to stop; why it does not, None when it does."""
    try:
        with ControlClient(home, ASK_SECONDS) as client:
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


def _gone(home: Home, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while holder(home) is not None:
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def _end_engines(home: Home) -> tuple[str, ...]:
    """End what a daemon that was killed left; nobody can start one meanwhile."""
    if not home.lock_file.exists():
        return ()
    lock = HomeLock(home)
    untouched = "No daemon runs; engines that one left behind were not looked at."
    if lock.take(Owner(os.getpid(), iso(now_us())), untouched):
        return ()
    try:
        return tuple(end_left_over(home))
    finally:
        lock.release()
