"""Whether there is room for rollouts on the home's disk; when not, they wait and it is said.

Rollouts are held back while some megabytes are left, so that people can still speak, pause and
cancel, and logs and checkpoints have room. They go on when there is twice as much: no flicker at
the border. A disk that refuses in spite of its figures (a quota) counts as full for a while, too.
"""

import logging
import shutil
import time

from houston_daemon.recorder.refusal import Refusal
from houston_shared.home import Home
from houston_shared.records import LOW_DISK

LOGGER = logging.getLogger("houston.recorder")

MB = 1_000_000
NEED = 2 * LOW_DISK
"""Free bytes with which they go on."""
LOOK_SECONDS = 0.5
REFUSED_SECONDS = 2.0
"""How long a write that was refused speaks against the figures of the file system."""


class DiskRoom:
    """Looked at by the recorder's thread after every batch and when nothing happens."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._next_look = 0.0
        self._refused_at = -REFUSED_SECONDS
        self.problem = ""
        """For people, while rollouts wait; empty while they do not."""
        self.reason = ""
        """The same as the reason of a pause."""

    def look(self) -> bool:
        """Ask the file system, if it was not asked just now; whether it was."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_SECONDS
        try:
            found = shutil.disk_usage(self._home.path)
        except FileNotFoundError:  # the home was removed: `own_files` says so
            return False
        refused = now - self._refused_at < REFUSED_SECONDS
        limit = NEED if self.problem else LOW_DISK
        # A file system that counts no blocks at all says nothing about its room.
        self._settle(refused or (found.total > 0 and found.free < limit), found.free)
        return True

    def refused(self) -> None:
        """A write found no space."""
        self._refused_at = time.monotonic()
        self._settle(True, shutil.disk_usage(self._home.path).free)

    def refusal(self) -> Refusal | None:
        """What a worker hears that wants something stored; None while there is room."""
        return Refusal("DISK_FULL", self.problem) if self.problem else None

    def _settle(self, full: bool, free: int) -> None:
        was, self.problem, self.reason = self.problem, "", ""
        if full:
            self.reason = f"{free // MB} MB free on the disk of the home, {NEED // MB} MB needed"
            self.problem = f"DISK FULL: rollouts paused, {free // MB} MB free, need {NEED // MB} MB"
        if full and not was:
            LOGGER.error("%s", self.problem)
        elif was and not full:
            LOGGER.info("there is room again (%s MB free): rollouts go on", free // MB)
