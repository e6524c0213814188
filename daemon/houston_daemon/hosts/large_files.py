"""Copies of files that are too large for the shadow repository, made at marks only.

A copy shares its blocks with the original where the file system can (FICLONE, ioctl_ficlone(2)),
and never its inode: the agent cannot change what was stored. Named after inode, size and time, so
that an untouched file is stored once.
"""

import fcntl
import os
import shutil
from pathlib import Path

from houston_daemon.hosts.beneath import Beneath
from houston_daemon.hosts.snapshot_scan import FileMark

_FICLONE = 0x40049409
_SPARE = 1 << 30
"""Bytes of disk that stay free for the rollout itself."""


def store(workspace: Beneath, path: str, mark: FileMark, folder: Path) -> str:
    """Copy a file into `folder`; returns the copy's name, empty when there was no room or no file.

    A file that changes while it is copied is stored as it was read.
    """
    _, size, mtime, _, inode = mark
    name = f"{inode:x}-{size:x}-{mtime:x}"
    target = folder / name
    if target.exists():
        return name
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder).free < size + _SPARE:
        return ""
    beside = folder / "copy.new"
    try:
        source = workspace.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        with beside.open("wb") as file:
            copy(source, file.fileno())
    finally:
        os.close(source)
    beside.replace(target)
    return name


def copy(source: int, target: int) -> None:
    """Copy one open file into another, by reference where the file system can."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        at = 0
        while sent := os.sendfile(target, source, at, 1 << 26):
            at += sent
