"""Which home holds a rollout's folder on a host: one at a time, by an flock and a note.

`<root>/rollouts/<rollout>/holder` names the home; a running worker holds an flock on it. A copied
or restored home has the same rollouts with the same folders: without this lock, two daemons would
act in one workspace. A home that no longer exists holds nothing. Of a home's content, this module
knows only the name of the database.
"""

import os
from pathlib import Path

from houston_daemon.hosts.host_files import try_lock
from houston_daemon.hosts.host_protocol import RolloutHeldElsewhere

HOME_DATABASE = "houston.db"
_LOCK_SECONDS = 2.0
"""How long the lock is waited for: a predecessor of the same home may still be ending."""


class RolloutFolderLock:
    """One home's right to a rollout's folder, from `acquire` until `release` or the process's end.

    home: the daemon's home; empty where ownership does not matter (tests, tools).
    """

    def __init__(self, folder: Path, home: str) -> None:
        self._note = holder_note(folder)
        self._home = home
        self._fd = -1

    @property
    def is_held_elsewhere(self) -> bool:
        """Whether another home may hold the folder: nothing in it may be ended or removed."""
        return bool(self._home) and self._fd < 0

    def acquire(self) -> str:
        """Lock the folder, which must exist; return the home that held it before, if that was
        another.

        Needs no disk space. Raises RolloutHeldElsewhere while another home has it.
        """
        if not self._home or self._fd >= 0:
            return ""
        fd = os.open(self._note, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            noted_home = os.pread(fd, 4096, 0).decode(errors="replace")
            self._check(noted_home, free=try_lock(fd, _LOCK_SECONDS))
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        return "" if noted_home == self._home else noted_home

    def note_home(self) -> None:
        """Note which home holds the folder, for when the process has ended. Raises OSError."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, self._home.encode(), 0)

    def _check(self, noted_home: str, free: bool) -> None:
        """Refuse a folder that another home works in, or still claims.

        A worker of this very home that still holds it was stopped or cut off: between the two,
        leases decide.
        """
        if noted_home == self._home:
            return
        if not free or _is_there(noted_home):
            raise RolloutHeldElsewhere(self._note, noted_home, running=not free)

    def release(self, ended: bool = False) -> None:
        """Release the lock; with `ended`, also remove the name. Idempotent."""
        if self._fd >= 0:
            if ended:
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1


def holder_note(folder: Path) -> Path:
    """The note in a rollout's folder."""
    return folder / "holder"


def read_holder(folder: Path) -> str:
    """The home that a rollout's folder names; empty for none."""
    try:
        return holder_note(folder).read_text(errors="replace")
    except OSError:
        return ""


def is_claimed_elsewhere(folder: Path, home: str) -> bool:
    """Whether a rollout's folder names a home other than `home` that exists or is at work."""
    holder = read_holder(folder)
    return holder not in ("", home) and (_is_there(holder) or _is_locked(holder_note(folder)))


def _is_locked(note: Path) -> bool:
    """Whether a worker holds a rollout's folder: one whose home has no path here, too."""
    try:
        with note.open("rb") as file:
            return not try_lock(file.fileno())
    except FileNotFoundError:
        return False


def _is_there(home: str) -> bool:
    return bool(home) and Path(home, HOME_DATABASE).exists()


def clear_holder(folder: Path) -> None:
    """Remove the home's name from the folder of a rollout that has ended."""
    if read_holder(folder):
        os.truncate(holder_note(folder), 0)
