"""All logs of one daemon: its own, the nursery's and the workers', turned over and opened again.

A log that somebody removed or moved away is begun anew within ten seconds, at SIGHUP at once. A
worker writes for hours; when its log has grown too long it is moved aside and the worker is told
to open it again (SIGHUP). Until it does, it writes into the moved file: no line is lost. Engines'
logs have pumps of their own.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from houston_daemon.service.log import LOGGER, LogFile
from houston_daemon.service.rotation import rotate

LOOK_SECONDS = 10.0
NURSERY = "nursery"
"""Stands for the nursery among rollouts."""


class Logs:
    """Used from the supervisor's thread only."""

    def __init__(self, own: LogFile, log_of: Callable[[str], Path], limit: int, keep: int) -> None:
        """log_of: log of a rollout's workers; limit: bytes of one file; keep: older files kept."""
        self._own = own
        self._log_of = log_of
        self._limit = limit
        self._keep = keep
        self._due = 0.0
        self._seen: set[tuple[str, int]] = set()
        """Processes that had a log: only those hear a SIGHUP, others may not listen for it yet."""

    def look(self, now: float, pids: Mapping[str, int]) -> None:
        """Turn over what has grown too long; pids: living processes by whose log it is."""
        if now < self._due:
            return
        self._due = now + LOOK_SECONDS
        self._seen &= set(pids.items())
        if self._own.moved and self._opened():
            LOGGER.warning("the log was removed or moved away: this is a new one")
        for name, pid in pids.items():
            log = self._log_of(name)
            try:
                if not log.exists():
                    if (name, pid) in self._seen:
                        _hang_up(pid)  # it begins a new one
                    continue
                self._seen.add((name, pid))
                if log.stat().st_size > self._limit:
                    rotate(log, self._keep)
                    _hang_up(pid)
            except OSError as problem:  # a full disk: it grows on
                LOGGER.warning("the log %s could not be turned over: %s", log, problem)

    def reopen(self, pids: Mapping[str, int]) -> None:
        """Somebody moved logs away: begin new ones of the same names."""
        if self._opened():
            LOGGER.info("the log was opened again")
        for pid in pids.values():
            _hang_up(pid)

    def _opened(self) -> bool:
        try:
            self._own.reopen()
        except OSError as problem:  # heard on in the old file, and in systemd's journal
            LOGGER.warning("the log cannot be opened again: %s", problem)
            return False
        return True


def _hang_up(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGHUP)
