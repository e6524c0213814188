"""Terminals of rollouts that ended without a worker: cancelled while paused, failed after deaths.

A worker ends its rollout's terminals itself. If no worker was left to do it, the supervisor finds
the leftovers and starts a short process that ends them (`maintenance.host_cleanup`), here and on
other machines. This module only decides what is ended, and when.
"""

import os
import subprocess
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import msgspec

from houston_daemon.hosts.ssh import remote_part
from houston_daemon.maintenance.host_cleanup import CleanupOrder, has_leftovers, start_cleanup
from houston_daemon.service.daemon_log import LOGGER
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_daemon.service.supervisor_queries import read_ended_rollouts, read_living_rollouts
from houston_shared.faults import point

_REMOTE_RETRY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class OrphanCleanupEnded:
    """The process that ended terminals is done."""


class OrphanedTerminals:
    """What is left on this host; used from the supervisor's thread only."""

    def __init__(self, database: Path, host_root: Path, inbox: SupervisorInbox) -> None:
        self._database = database
        self._home = str(database.parent.resolve())
        self._root = host_root
        self._inbox = inbox
        self._newest_end = 0
        self._waiting: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._ending: set[str] = set()
        """Rollouts of which the process ends the terminals on this host."""
        self._remote_candidates: set[str] = set()
        """Rollouts that have ended, of which something may be left on another machine."""
        self._next_remote_look = 0.0

    def update(self, live: Container[str]) -> None:
        """End terminals of rollouts that ended since the last look and have no live worker."""
        ended, self._newest_end = read_ended_rollouts(self._database, self._newest_end)
        self._waiting.update(ended)
        self._remote_candidates.update(ended)
        ready = {rollout for rollout in self._waiting if rollout not in live}
        if self._process is not None:
            return
        if ready:
            resumed = ready & read_living_rollouts(self._database)  # their workers are away only
            self._waiting -= resumed
            ready -= resumed
        orphaned = sorted(
            rollout for rollout in ready if has_leftovers(self._root, rollout, self._home)
        )
        try:
            if orphaned:
                self._start(orphaned)
            elif not ready:
                self._end_remote(live)
        except OSError as problem:  # no more processes or descriptors: tried again
            names = ", ".join(orphaned) or "rollouts elsewhere"
            LOGGER.warning("terminals of %s are not ended yet: %s", names, problem)
            return
        self._waiting -= ready

    def may_run(self, rollout: str) -> bool:
        """Whether processes of a rollout that ended may still run, here or on another machine."""
        on_this_host = rollout in self._waiting or rollout in self._ending
        return on_this_host or bool(remote_part.find_leftovers(self._root, (rollout,)))

    def _end_remote(self, live: Container[str]) -> None:
        """The same on other machines; one that is away is asked again every minute."""
        now = time.monotonic()
        if not self._remote_candidates or now < self._next_remote_look:
            return
        self._next_remote_look = now + _REMOTE_RETRY_SECONDS
        self._remote_candidates -= read_living_rollouts(self._database)  # resumed meanwhile
        over = {rollout for rollout in self._remote_candidates if rollout not in live}
        notes = remote_part.find_leftovers(self._root, over)
        self._remote_candidates -= over - {note.stem.rpartition("@")[0] for note in notes}
        if orders := _read_remote_orders(self._root, notes):
            self._start_with(orders)

    def on_ended(self) -> None:
        """Take note that the process is done."""
        if self._process is not None and (code := self._process.wait()):
            LOGGER.warning("terminals could not all be ended (exit code %s)", code)
        self._process = None
        self._ending.clear()

    def _start(self, rollouts: list[str]) -> None:
        LOGGER.info("ending terminals of %s", ", ".join(rollouts))
        root = str(self._root)
        self._start_with([CleanupOrder(root, rollout, "processes") for rollout in rollouts])
        self._ending.update(rollouts)

    def _start_with(self, orders: list[CleanupOrder]) -> None:
        point("supervisor.leftovers.before")
        process = start_cleanup(self._home, orders, subprocess.DEVNULL)
        try:
            self._inbox.watch(os.pidfd_open(process.pid), OrphanCleanupEnded())
        except OSError:  # its end would never be heard, and nothing be ended any more
            process.kill()
            process.wait()
            raise
        self._process = process


def _read_remote_orders(root: Path, notes: list[Path]) -> list[CleanupOrder]:
    """What is to be ended on other machines, of which these are the notes."""
    orders: list[CleanupOrder] = []
    for note in notes:
        try:
            part = remote_part.read_leftover(note).part
        except (OSError, msgspec.DecodeError) as problem:
            LOGGER.warning("%s cannot be read: %s", note, problem)
            continue
        rollout = note.stem.rpartition("@")[0]
        orders.append(CleanupOrder(str(root), rollout, "processes", (part,)))
    return orders
