"""One look at every file of a workspace: what is there, and which of it may have changed.

Compares size, times, inode and mode (as git's index does); contents are not read here. A folder or
file that vanishes meanwhile was not there; one that may not be read is named.
"""

import errno
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

FileMark = tuple[int, int, int, int, int]
"""mode, size in bytes, mtime and ctime in ns, inode: equal marks mean an untouched file."""


EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Says nothing of the file that was looked at: what is not seen then is not gone."""
DEEPEST = 200
"""Folders within folders; what lies deeper is named and not recorded."""


@dataclass(slots=True)
class Scan:
    """Paths are relative to the workspace, with `/`."""

    files: dict[str, FileMark] = field(default_factory=dict)
    """Regular files and symbolic links."""
    empty: list[str] = field(default_factory=list)
    """Folders with nothing in them, or nothing but what is skipped: no git tree can hold them."""
    skipped: dict[str, str] = field(default_factory=dict)
    """What is neither file, link nor folder, or may not be read, and why."""


def scan(root: Path) -> Scan:
    """Look at every file below `root`; links are not followed.

    Raises OSError where this process has no descriptors or memory left to look with.
    """
    found = Scan()
    waiting = [""]
    top = os.fspath(root)
    while waiting:
        _look_into(top, waiting.pop(), found, waiting)
    found.empty.sort()
    return found


def _look_into(top: str, folder: str, found: Scan, waiting: list[str]) -> None:
    if folder.count("/") >= DEEPEST:
        found.skipped[folder] = "nested too deeply"
        return
    prefix = f"{folder}/" if folder else ""
    files = found.files
    nothing = True
    try:
        with os.scandir(f"{top}/{folder}") as entries:
            for entry in entries:
                path = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    nothing = False
                    waiting.append(path)
                    continue
                try:
                    known = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                mode = known.st_mode
                if mode & _KIND in _CONTENT:
                    nothing = False
                    files[path] = (
                        mode,
                        known.st_size,
                        known.st_mtime_ns,
                        known.st_ctime_ns,
                        known.st_ino,
                    )
                else:
                    found.skipped[path] = _SPECIAL.get(mode & _KIND, "special file")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        found.skipped[folder] = f"cannot be read: {error.strerror}"
        return
    if nothing and folder:
        found.empty.append(folder)


_KIND = 0o170000
_CONTENT = (stat.S_IFREG, stat.S_IFLNK)
_SPECIAL = {
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "block device",
    stat.S_IFCHR: "character device",
}
