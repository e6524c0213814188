"""The backup that the daemon makes by itself, in a child process at low priority.

Knows when one is due and that only one runs; what a backup is, `recorder.upkeep.backup` knows.
"""

import logging
import os
import subprocess
import sys
import time

from houston_daemon.recorder.upkeep.backup import age_seconds
from houston_shared.config import Loaded

LOGGER = logging.getLogger("houston.backup")
NICE = 15
LOOK_SECONDS = 60.0
"""How often the newest backup's age is looked at."""
FIRST_SECONDS = 600.0
"""After a start rollouts come first."""
RETRY_SECONDS = 3_600.0
STOP_SECONDS = 1.0


class Nightly:
    """Used from the supervisor's thread: `look` in every round, `stop` at the end."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._child: subprocess.Popen[bytes] | None = None
        self._not_before = time.monotonic() + FIRST_SECONDS

    def look(self, now: float) -> None:
        """Begin a backup when one is due; take note of one that ended. now: monotonic seconds."""
        if self._child is not None:
            self._ended(self._child, now)
        elif now >= self._not_before and self._loaded.config.backup.every_hours:
            self._not_before = now + LOOK_SECONDS
            age = age_seconds(self._loaded.home)
            if age is None or age >= 3_600 * self._loaded.config.backup.every_hours:
                self._begin(now)

    def stop(self) -> None:
        """End a backup that is being made; half of one never looks like one."""
        if self._child is not None:
            self._child.terminate()
            try:
                self._child.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
            self._child = None

    def _begin(self, now: float) -> None:
        words = ["backup", "--periodic", "--home", str(self._loaded.home.path)]
        if self._loaded.source != "defaults":
            words += ["--config", self._loaded.source]
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "houston_shared.command", *words],
                stdin=subprocess.DEVNULL,
                preexec_fn=_quietly,
            )
        except OSError as problem:
            self._not_before = now + RETRY_SECONDS
            LOGGER.error("no backup could be begun: %s", problem)

    def _ended(self, child: "subprocess.Popen[bytes]", now: float) -> None:
        code = child.poll()
        if code is None:
            return
        self._child = None
        if code:
            self._not_before = now + RETRY_SECONDS
            LOGGER.error("the backup failed (exit code %s); tried again in an hour", code)
        else:
            LOGGER.info("a backup was made")


def _quietly() -> None:
    """Between fork and exec: everything else goes first."""
    os.nice(NICE)
