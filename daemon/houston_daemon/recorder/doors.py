"""The sockets' names in `run/`: bound, looked at every second, and bound again where one is gone.

Who is connected stays connected without a name; nobody else could come in any more. What comes in
is for `receiving`.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

import zmq

from houston_daemon.recorder.disk import folders
from houston_daemon.recorder.sockets import bind
from houston_shared.errors import HoustonError
from houston_shared.home import Home

LOGGER = logging.getLogger("houston.recorder")

LOOK_SECONDS = 1.0


class Doors:
    """All sockets of one recorder; belongs to its thread."""

    def __init__(self, home: Home, sockets: "Mapping[str, zmq.Socket[bytes]]") -> None:
        """sockets: by their names in `run/`."""
        self._home = home
        self._sockets = sockets
        self._group = ""
        self._inodes: dict[str, int] = {}
        self._due = 0.0
        self._problem = ""

    def open(self, group: str) -> None:
        """Bind them all, for the members of `group`, too; raises HoustonError."""
        self._group = group
        for name in self._sockets:
            self._bind(name)

    def look(self, now: float) -> None:
        """Bind again what has no name any more. now: monotonic seconds."""
        if now < self._due:
            return
        self._due = now + LOOK_SECONDS
        for name, inode in self._inodes.items():
            if _inode(self._path(name)) != inode:
                self._again(name)

    def close(self) -> None:
        """Remove their names."""
        for name in self._sockets:
            self._path(name).unlink(missing_ok=True)

    def _again(self, name: str) -> None:
        try:
            folders.open_run(self._home, self._group)
            self._sockets[name].unbind(self._home.socket(name))
            self._bind(name)
        except (HoustonError, OSError, zmq.ZMQError) as problem:  # tried again
            if str(problem) != self._problem:
                LOGGER.error("%s cannot be bound again: %s", self._path(name), problem)
            self._problem = str(problem)
            return
        self._problem = ""
        LOGGER.warning("%s was removed: bound again", self._path(name))

    def _bind(self, name: str) -> None:
        bind(self._sockets[name], self._home, name, self._group)
        self._inodes[name] = _inode(self._path(name))

    def _path(self, name: str) -> Path:
        return self._home.run / f"{name}.sock"


def _inode(path: Path) -> int:
    """0 where there is nothing, or nobody may look."""
    try:
        return path.lstat().st_ino
    except OSError:
        return 0
