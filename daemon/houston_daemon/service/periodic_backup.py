"""The backup that the daemon makes automatically, in a child process at low priority.

Knows when one is due, that only one runs, when the newest is too old, and when to retry. The
package `maintenance` defines what a backup is, and removes old ones.
"""

import logging
import os
import subprocess
import sys
import time
from functools import partial

from houston_daemon.maintenance.home_backup import find_newest_backup, list_corrupt_backups
from houston_shared.config import LoadedConfiguration
from houston_shared.errors import ExitCode
from houston_shared.times_and_counts import format_duration

BACKUP_LOGGER = logging.getLogger("houston.backup")
BACKUP_NICENESS = 15
BACKUP_LIST_SECONDS = 5.0
"""How often is looked which backups there are."""
BACKUP_DUE_SECONDS = 60.0
"""How often the newest backup's age is looked at."""
BACKUP_FIRST_SECONDS = 600.0
"""After a start rollouts come first."""
BACKUP_RETRY_SECONDS = 3_600.0
BACKUP_STOP_SECONDS = 1.0
BACKUP_OVERDUE_FACTOR = 1.5
"""Times `[backup] every_hours` after which the newest backup is too old."""


class PeriodicBackup:
    """Used from the supervisor's thread: `update` in every round, `stop` at the end."""

    def __init__(self, loaded: LoadedConfiguration) -> None:
        self._loaded = loaded
        self._child: subprocess.Popen[bytes] | None = None
        self._first_due = self._not_before = time.monotonic() + BACKUP_FIRST_SECONDS
        self._listed_at = -1e9
        self._failed = ""
        self._corrupt: list[str] = []
        """Backups that are no longer what was backed up, until somebody removes them."""
        self.newest: tuple[float, int] | None = None
        """When the newest backup was made (POSIX time) and to which event."""

    def update(self, now: float) -> None:
        """Begin a backup when one is due; take note of one that ended. now: monotonic seconds."""
        self._list_backups(now)
        if self._child is not None:
            self._finish(self._child, now)
        elif now >= self._not_before and self._loaded.config.backup.every_hours:
            self._not_before = now + BACKUP_DUE_SECONDS
            if self._is_older_than(1.0):
                self._begin(now)

    def troubles(self, now: float) -> dict[str, str]:
        """What a person must know: the last backup failed, one rotted, or the newest is too old."""
        if self._failed and self._loaded.config.backup.every_hours:
            wait = format_duration(self._not_before - now)
            again = "tried again now" if self._child else f"tried again in {wait}"
            return {"backup": f"{self._failed}; {again}; see houston daemon logs"}
        if self._corrupt:
            names = ", ".join(self._corrupt)
            return {
                "backup": f"changed since they were made, and now unusable: {names}; remove them"
            }
        if self.newest and now >= self._first_due and self._is_older_than(BACKUP_OVERDUE_FACTOR):
            hours = self._loaded.config.backup.every_hours
            old = format_duration(time.time() - self.newest[0])
            return {"backup": f"the newest is {old} old, one is due every {hours:g} h"}
        return {}

    def _is_older_than(self, times: float) -> bool:
        """Whether the newest backup is older than so many periods, or there is none."""
        hours = self._loaded.config.backup.every_hours
        if not hours or self.newest is None:
            return bool(hours)
        return time.time() - self.newest[0] >= 3_600 * hours * times

    def _list_backups(self, now: float) -> None:
        """Look at what backups there are, also those that people made."""
        if now - self._listed_at < BACKUP_LIST_SECONDS:
            return
        self._listed_at = now
        before, self.newest = self.newest, find_newest_backup(self._loaded.home)
        self._corrupt = list_corrupt_backups(self._loaded.home.backups)
        if self.newest and (before is None or before < self.newest):  # not when one was removed
            self._failed = ""

    def stop(self) -> None:
        """End a backup that is being made; half of one never looks like one."""
        if self._child is not None:
            self._child.terminate()
            try:
                self._child.wait(BACKUP_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
            self._child = None

    def _begin(self, now: float) -> None:
        words = ["backup", "--periodic", "--home", str(self._loaded.home.path)]
        if self._loaded.file:
            words += ["--config", self._loaded.file]
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "houston_shared.command", *words],
                stdin=subprocess.DEVNULL,
                preexec_fn=partial(os.nice, BACKUP_NICENESS),  # everything else goes first
            )
        except OSError as problem:
            self._not_before = now + BACKUP_RETRY_SECONDS
            self._failed = f"the last one could not be started ({problem})"
            BACKUP_LOGGER.error("no backup could be started: %s", problem)

    def _finish(self, child: "subprocess.Popen[bytes]", now: float) -> None:
        code = child.poll()
        if code is None:
            return
        self._child = None
        if code:
            self._not_before = now + BACKUP_RETRY_SECONDS
            reason = ": the home is not sound, houston verify" if code == ExitCode.DAMAGED else ""
            self._failed = f"the last one failed (exit code {code}{reason})"
            BACKUP_LOGGER.error("the backup failed (exit code %s); tried again in an hour", code)
        else:
            self._listed_at = -1e9
            BACKUP_LOGGER.info("a backup was made")
