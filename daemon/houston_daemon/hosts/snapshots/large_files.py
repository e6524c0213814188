"""Copies of files that are too large for the shadow repository, made at marks only.

A copy shares its blocks with the original where the file system can, takes what the file holds
and not its holes elsewhere, and never shares its inode: the agent cannot change what was stored.
Named after inode, size and times, so that an untouched file is stored once. One mark copies so
many bytes and no more, and leaves the disk room to go on.
"""

import os
import shutil
from pathlib import Path

from houston_daemon.hosts import sparse_copy
from houston_daemon.hosts.snapshots.beneath import Beneath
from houston_daemon.hosts.snapshots.scanning import FileMark

MOST = 8 << 30
"""Bytes that one mark copies."""
_SPARE = 1 << 30
"""Bytes of disk that stay free for the rollout itself."""


class Copies:
    """The copies of one mark, in `folder`."""

    def __init__(self, workspace: Beneath, folder: Path, most: int = MOST) -> None:
        self._workspace = workspace
        self._folder = folder
        self._left = most

    def store(self, path: str, mark: FileMark) -> tuple[str, str]:
        """Copy a file; returns the copy's name, and what there is to say of it: why there is none.

        A file that changes while it is copied is stored as it was read, and that is said.
        """
        _, size, mtime, ctime, inode = mark
        name = f"{inode:x}-{size:x}-{mtime:x}-{ctime:x}"
        target = self._folder / name
        if target.exists():
            return name, ""
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            source = self._workspace.open(path, os.O_RDONLY)
        except OSError as error:
            return "", f"not kept: cannot be read: {error.strerror}"
        try:
            trouble = self._copy(source, target)
            if trouble:
                return "", f"not kept: {trouble}"
            known = os.fstat(source)
            same = (known.st_size, known.st_mtime_ns) == (size, mtime)
            return name, "" if same else "it changed while it was copied"
        finally:
            os.close(source)

    def _copy(self, source: int, target: Path) -> str:
        """Make the copy; why not, where there is none."""
        taken = sparse_copy.data_bytes(source)
        if taken > self._left:
            return "too large to copy at this mark"
        if shutil.disk_usage(self._folder).free < taken + _SPARE:
            return "no room on the disk for a copy"
        self._left -= taken
        beside = self._folder / "copy.new"
        try:
            with beside.open("wb") as file:
                sparse_copy.copy(source, file.fileno())
        except OSError as error:
            beside.unlink(missing_ok=True)
            return f"could not be copied: {error.strerror}"
        beside.replace(target)
        return ""
