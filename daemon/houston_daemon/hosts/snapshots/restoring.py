"""Writes the state of a snapshot into a folder, and says what could not be brought back."""

import contextlib
import errno
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pygit2

from houston_daemon.hosts import sparse_copy
from houston_daemon.hosts.snapshots.beneath import Beneath
from houston_daemon.hosts.snapshots.scanning import FileMark, scan
from houston_daemon.hosts.snapshots.tree_names import shown
from houston_daemon.hosts.snapshots.trees import (
    LINK,
    PROGRAM,
    About,
    Beside,
    TreeFile,
    about_of,
    files_of,
    walk,
)

Known = Mapping[str, tuple[FileMark, TreeFile]]
"""Files of the folder whose content is known from an earlier look."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No file can be written then: a folder without them all is no workspace."""


def restore(
    repo: pygit2.Repository, commit: pygit2.Commit, into: Path, large: Path, known: Known
) -> list[str]:
    """Make `into` equal to the snapshot; returns the paths that could not be brought back.

    Raises OSError where there is no room for them.
    What the snapshot does not have is removed; files that are right already are left alone, so
    that a large file which was only recorded survives where it still lies untouched.
    """
    into.mkdir(parents=True, exist_ok=True)
    wanted, about = dict(walk(files_of(commit))), about_of(commit)
    present = scan(into)
    right = {
        path
        for path, mark in present.files.items()
        if path in known and known[path] == (mark, wanted.get(path))
    }
    right |= {path for path in about.beside if _untouched(about.beside[path], present.files, path)}
    lost: list[str] = sorted(about.skipped)
    with Beneath(into) as folder:
        for path in (*present.files, *present.skipped):
            if path not in right and path not in about.skipped:
                folder.remove(path)
        for path in sorted(wanted.keys() - right):
            if not _placed(folder, path, partial(_write, repo, folder, path, wanted[path])):
                lost.append(path)
        for path in sorted(about.beside.keys() - right):
            recorded = about.beside[path]
            if not _placed(folder, path, partial(_bring_back, folder, path, recorded, large)):
                lost.append(path)
        for path in about.empty:
            folder.remove_unless_folder(path)
            folder.make_folder(path)
        _drop_empty(folder, into, about)
    return [shown(path) for path in lost]


def _untouched(recorded: Beside, files: Mapping[str, FileMark], path: str) -> bool:
    """Whether a large file still is what was recorded; one without a copy is given the doubt."""
    mark = files.get(path)
    if mark is None or mark[1:3] != (recorded.size, recorded.mtime_ns):
        return False
    return not recorded.stored or mark[3] == recorded.ctime_ns


def _placed(folder: Beneath, path: str, write: Callable[[], bool]) -> bool:
    """Write a file; what is in its way is cleared only when something is. OSError: no room."""
    for clear in (False, True):
        try:
            if clear:
                folder.remove(path)
                folder.clear_way(path)
            return write()
        except OSError as problem:
            if problem.errno in _FULL:
                raise
    return False


def _write(repo: pygit2.Repository, folder: Beneath, path: str, file: TreeFile) -> bool:
    data = repo[file.oid].data
    if file.mode == LINK:
        folder.make_link(path, data)
        return True
    mode = 0o755 if file.mode == PROGRAM else 0o644
    descriptor = folder.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as output:
        output.write(data)
        os.fchmod(output.fileno(), mode)
    return True


def _bring_back(folder: Beneath, path: str, recorded: Beside, large: Path) -> bool:
    if not recorded.stored or not (large / recorded.stored).exists():
        return False
    target = folder.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with (large / recorded.stored).open("rb") as source, os.fdopen(target, "wb") as output:
        sparse_copy.copy(source.fileno(), output.fileno())
        os.fchmod(output.fileno(), recorded.mode & 0o777)
        os.utime(output.fileno(), ns=(recorded.mtime_ns, recorded.mtime_ns))
    return True


def _drop_empty(folder: Beneath, into: Path, about: About) -> None:
    """Remove folders that the removals left empty; those the snapshot had empty stay."""
    kept = set(about.empty)
    for path in scan(into).empty:
        with contextlib.suppress(OSError):  # not empty, or gone
            while path and path not in kept:
                folder.remove_empty(path)
                path = path.rpartition("/")[0]
