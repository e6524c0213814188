"""How much a rollout's folders hold, counted in slices so that nobody waits for it.

A folder that cannot be read is passed over. Sparse files count what they occupy, hard links once.
"""

import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

LEAST = 4096
"""A file counts as a block at least: names without content fill a disk's table of files too."""
_SLICE = 4_000
_PAUSE = 0.01
_LONGEST = 2_000
"""Characters of a path after which a folder is held open and paths begin anew: beyond PATH_MAX
nothing can be named from the top, and what cannot be named would cost nothing."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Room(NamedTuple):
    """What a disk has left."""

    bytes: int
    """For this user."""
    names: int
    """Files that can still be made; 0 where the file system sets no such limit."""


def room(folder: Path) -> Room:
    """What the disk of `folder` has left."""
    found = os.statvfs(folder)
    return Room(found.f_bavail * found.f_frsize, found.f_favail)


def held(folders: Iterable[Path]) -> int:
    """Bytes on disk below `folders`; sleeps between slices, so call it in a thread."""
    total = seen = 0
    linked: set[tuple[int, int]] = set()
    waiting = [(_Base(), os.fspath(folder)) for folder in folders]
    while waiting:
        base, path = waiting.pop()
        base, path, entries = _entries(base, path)
        for name, entry in entries:
            seen += 1
            if seen % _SLICE == 0:
                time.sleep(_PAUSE)
            if stat.S_ISDIR(entry.st_mode):
                waiting.append((base, f"{path}{name}"))
            elif entry.st_nlink > 1:
                if (entry.st_dev, entry.st_ino) in linked:
                    continue
                linked.add((entry.st_dev, entry.st_ino))
            total += max(LEAST, entry.st_blocks * 512)
    return total


class _Base:
    """A folder that paths begin at, open as long as one of them is waiting."""

    def __init__(self, fd: int = -1) -> None:
        self.fd = fd

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


_Entries = list[tuple[str, os.stat_result]]


def _entries(base: _Base, path: str) -> tuple[_Base, str, _Entries]:
    """What is in a folder, and what the names in it begin with."""
    try:
        fd = os.open(path, _FOLDER, dir_fd=base.fd if base.fd >= 0 else None)
    except OSError:
        return base, path, []
    folder = _Base(fd)
    found: _Entries = []
    with os.scandir(fd) as entries:
        for entry in entries:
            try:
                found.append((entry.name, entry.stat(follow_symlinks=False)))
            except OSError:
                continue  # removed since it was listed
    return (folder, "", found) if len(path) > _LONGEST else (base, f"{path}/", found)
