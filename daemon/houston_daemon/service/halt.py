"""Stop the daemon from a command; it always ends.

First it is asked, then signalled, then killed; each with a bound. Killing loses nothing: what was
acked is on disk. Engines that a dead daemon left behind are ended under the home's lock.
"""

import os
import signal
import time
from dataclasses import dataclass

from houston_daemon.service.engine_child import end_left_over
from houston_shared.clock import iso, now_us
from houston_shared.config import Loaded
from houston_shared.control_client import ControlClient
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.lock import HomeLock, Owner, holder
from houston_shared.wire import StopDaemon

ASK_SECONDS = 3.0
AFTER_DRAIN_SECONDS = 30.0
"""Beyond the drain: closing the database and ending engines."""
FORCED_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Halted:
    """What was ended."""

    pid: int
    """0 when no daemon ran."""
    forced: bool = False
    engines: tuple[str, ...] = ()
    """Engines that were ended here because their daemon was gone."""


def halt(loaded: Loaded, keep_engine: bool) -> Halted:
    """Drain and end the daemon of this home, if one runs. Raises HoustonError if it cannot die."""
    home = loaded.home
    owner = holder(home)
    if owner is None:
        return Halted(0, engines=() if keep_engine else _end_engines(home))
    patience = loaded.config.daemon.drain_seconds + AFTER_DRAIN_SECONDS
    if not _asked(home, keep_engine) and owner.pid:
        _signal(owner.pid, signal.SIGTERM)
    if _gone(home, patience):
        return Halted(owner.pid)
    for number in (signal.SIGTERM, signal.SIGKILL):
        if owner.pid:
            _signal(owner.pid, number)
        if _gone(home, FORCED_SECONDS):
            return Halted(owner.pid, True, () if keep_engine else _end_engines(home))
    raise HoustonError(f"The daemon (pid {owner.pid}) cannot be ended, not even by a kill.")


def _asked(home: Home, keep_engine: bool) -> bool:
    try:
        with ControlClient(home, ASK_SECONDS) as client:
            client.ask(StopDaemon(keep_engine=keep_engine))
    except HoustonError:
        return False  # it hangs, or ended this moment: a signal follows, or nothing is needed
    return True


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
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
    if lock.take(Owner(os.getpid(), iso(now_us()))):
        return ()
    try:
        return tuple(end_left_over(home))
    finally:
        lock.release()
