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
    waiting = [os.fspath(folder) for folder in folders]
    while waiting:
        for name, entry in _entries(waiting.pop()):
            seen += 1
            if seen % _SLICE == 0:
                time.sleep(_PAUSE)
            if stat.S_ISDIR(entry.st_mode):
                waiting.append(name)
            elif entry.st_nlink > 1:
                if (entry.st_dev, entry.st_ino) in linked:
                    continue
                linked.add((entry.st_dev, entry.st_ino))
            total += max(LEAST, entry.st_blocks * 512)
    return total


def _entries(folder: str) -> list[tuple[str, os.stat_result]]:
    found: list[tuple[str, os.stat_result]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    found.append((entry.path, entry.stat(follow_symlinks=False)))
                except OSError:
                    continue  # removed since it was listed
    except OSError:
        return found
    return found
