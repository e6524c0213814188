"""Whether who listens on a home's socket is the user whose home it is, asked before a word is said.

A socket's folder and file are looked at, and the kernel is asked who bound it (SO_PEERCRED): a
folder that others may write to, a socket put in place of the daemon's, and a process of another
user behind it are refused. Another process of the same user is not told apart: it may read and
write the home anyway.
"""

import errno
import os
import socket
import stat
import struct
from pathlib import Path

from houston_shared.errors import HoustonError
from houston_shared.home import Home

_CREDENTIALS = struct.Struct("3i")
"""struct ucred: pid, uid, gid; unix(7)."""
_NOT_YET = (errno.ECONNREFUSED, errno.ENOENT, errno.EAGAIN)
"""A socket that nobody listens on any more, or one with a full queue."""


class Trust:
    """What one client knows of one socket; the kernel is asked again when the file is another."""

    def __init__(self, home: Home, name: str) -> None:
        self._home = home
        self._name = name
        self._seen: tuple[Path, int, int] | None = None

    def ready(self) -> bool:
        """Whether the daemon of this home listens; False while there is nobody yet.

        Raises HoustonError when it is somebody else, or when this user is not let in.
        """
        place = self._home.run / f"{self._name}.sock"
        try:
            owner = self._home.path.stat().st_uid
            _check_folder(place.parent, owner)
            found = place.lstat()
            if not stat.S_ISSOCK(found.st_mode) or found.st_uid != owner:
                raise _stolen(place, "it was put there by another user", found.st_uid, owner)
            seen = (place, found.st_ino, found.st_ctime_ns)
            if seen != self._seen and not self._listens(place, owner):
                return False
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError:
            raise _closed(place) from None
        self._seen = seen
        return True

    def _listens(self, place: Path, owner: int) -> bool:
        """Whether the owner's process answers there; raises for anybody else's."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(os.fspath(place))
            except OSError as problem:
                if problem.errno in _NOT_YET:
                    return False
                raise
            raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, _ = _CREDENTIALS.unpack(raw)
        if uid != owner:
            raise _stolen(place, "a process of another user listens there", uid, owner)
        return True


def _check_folder(folder: Path, owner: int) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner:
        raise _stolen(folder, "it was put there by another user", found.st_uid, owner)
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _stolen(folder, "other users may write to it", found.st_uid, owner)


def _stolen(place: Path, why: str, uid: int, owner: int) -> HoustonError:
    whose = f" (uid {uid}, the home is of uid {owner})" if uid != owner else ""
    return HoustonError(
        f"{place} cannot be trusted: {why}{whose}.",
        "Nothing was sent.",
        "Tell the owner of the home; `houston daemon restart` makes it anew.",
    )


def _closed(place: Path) -> HoustonError:
    return HoustonError(
        f"The daemon's socket {place} is not open to this user.",
        "Nothing was sent.",
        "Ask the owner of the home to set `daemon.group` to a group of yours.",
    )
