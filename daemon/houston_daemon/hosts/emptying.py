"""Empties a folder that an agent may have filled, however deep it is nested and whatever its modes.

A folder below is moved to the top before it is looked into: two descriptors are enough, no path is
ever long, and nothing recurses (folders can be nested deeper than calls, and than PATH_MAX). No
link is followed: names are looked at, opened and removed relative to an open folder.
"""

import os
import secrets
import stat
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it; nothing happens when it is not there.

    Raises OSError when something would not go.
    """
    try:
        top = os.open(folder, _FOLDER)
    except FileNotFoundError:
        return
    try:
        empty(top)
    finally:
        os.close(top)
    folder.rmdir()


def empty(top: int) -> None:
    """Remove everything in an open folder. Raises OSError when something would not go."""
    waiting = _take_out(top, top)
    while waiting:
        name = waiting.pop()
        inner = _open(name, top)
        try:
            waiting += _take_out(inner, top)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=top)


def _take_out(folder: int, top: int) -> list[str]:
    """Remove the files of a folder and move its folders to `top`; their names there."""
    found: list[str] = []
    for name in os.listdir(folder):
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=folder)
            continue
        place = name
        if folder != top:
            os.close(_open(name, folder))  # a folder that may not be written to cannot be moved
            place = secrets.token_hex(16)
            os.rename(name, place, src_dir_fd=folder, dst_dir_fd=top)
        found.append(place)
    return found


def _open(name: str, folder: int) -> int:
    """A descriptor of a folder, which its owner may read and change from now on."""
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{place}", 0o700)  # noqa: PTH101
        return os.open(".", _FOLDER, dir_fd=place)
    finally:
        os.close(place)
