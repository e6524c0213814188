"""Writes the state of a snapshot into a folder, and says what could not be restored.

For a branch, a machine that fetches it, or a person. The repository is only read (after a power
cut, its broken objects are removed first), so the rollout may be running. A large file without a
copy is taken from the live workspace if it is unchanged there.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pygit2

from houston_daemon.hosts import untrusted_files
from houston_daemon.hosts.snapshots.git_objects import (
    LINK_MODE,
    PROGRAM_MODE,
    SnapshotNotes,
    TreeFile,
    UnstoredFile,
    check_objects,
    files_tree,
    printable_path,
    read_notes,
    walk_tree,
)
from houston_daemon.hosts.snapshots.workspace_scan import FileMark, scan_workspace
from houston_daemon.hosts.untrusted_files import NoFollowFolder
from houston_shared.errors import HoustonError

_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No file can be written then: a folder without them all is no workspace."""


def write_snapshot(
    repo: pygit2.Repository, commit: pygit2.Commit, destination: Path, large: Path
) -> list[str]:
    """Make `destination` equal to the snapshot; returns the paths that could not be restored.

    Raises OSError where there is no room for them.
    Files that the snapshot lacks are removed; files that are right already are left alone, so that
    a large file of which only size and time were recorded survives if it is still untouched.
    """
    destination.mkdir(parents=True, exist_ok=True)
    wanted_files, notes = dict(walk_tree(files_tree(commit))), read_notes(commit)
    present = scan_workspace(destination)
    right_paths = {
        path
        for path, recorded in notes.beside.items()
        if _is_untouched(recorded, present.files, path)
    }
    lost: list[str] = sorted(notes.skipped)
    with NoFollowFolder(destination) as folder:
        for path in (*present.files, *present.skipped):
            if path not in right_paths and path not in notes.skipped:
                folder.remove(path)
        for path in sorted(wanted_files.keys() - right_paths):
            if not _place_file(
                folder, path, partial(_write_file, repo, folder, path, wanted_files[path])
            ):
                lost.append(path)
        for path in sorted(notes.beside.keys() - right_paths):
            recorded = notes.beside[path]
            if not _place_file(
                folder, path, partial(_restore_large_file, folder, path, recorded, large)
            ):
                lost.append(path)
        for path in notes.empty:
            folder.remove_unless_folder(path)
            folder.make_folder(path)
        _remove_emptied_folders(folder, destination, notes)
    return [printable_path(path) for path in lost]


def _is_untouched(recorded: UnstoredFile, files: Mapping[str, FileMark], path: str) -> bool:
    """Whether a large file still is what was recorded; one without a copy is given the doubt."""
    mark = files.get(path)
    if mark is None or mark[1:3] != (recorded.size, recorded.mtime_ns):
        return False
    return not recorded.stored or mark[3] == recorded.ctime_ns


def _place_file(folder: NoFollowFolder, path: str, write: Callable[[], bool]) -> bool:
    """Write a file; what is in its way is cleared only when something is. OSError: no room."""
    for clear in (False, True):
        try:
            if clear:
                folder.remove(path)
                folder.clear_way(path)
            return write()
        except OSError as problem:
            if problem.errno in _DISK_FULL_ERRORS:
                raise
    return False


def _write_file(repo: pygit2.Repository, folder: NoFollowFolder, path: str, file: TreeFile) -> bool:
    try:
        data = repo[file.oid].data
    except KeyError:  # a power cut took this file's content
        return False
    if file.mode == LINK_MODE:
        folder.make_link(path, data)
        return True
    mode = 0o755 if file.mode == PROGRAM_MODE else 0o644
    descriptor = folder.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as output:
        output.write(data)
        os.fchmod(output.fileno(), mode)
    return True


def _restore_large_file(
    folder: NoFollowFolder, path: str, recorded: UnstoredFile, large: Path
) -> bool:
    if not recorded.stored or not (large / recorded.stored).exists():
        return False
    target = folder.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with (large / recorded.stored).open("rb") as source, os.fdopen(target, "wb") as output:
        untrusted_files.copy_sparse(source.fileno(), output.fileno())
        os.fchmod(output.fileno(), recorded.mode & 0o777)
        os.utime(output.fileno(), ns=(recorded.mtime_ns, recorded.mtime_ns))
    return True


def _remove_emptied_folders(
    folder: NoFollowFolder, destination: Path, notes: SnapshotNotes
) -> None:
    """Remove folders that the removals left empty; those the snapshot had empty stay."""
    kept_folders = set(notes.empty)
    for path in scan_workspace(destination).empty:
        with contextlib.suppress(OSError):  # not empty, or gone
            while path and path not in kept_folders:
                folder.remove_empty(path)
                path = path.rpartition("/")[0]


def restore_snapshot(
    shadow: Path, commit: str, destination: Path, live: Path | None = None
) -> list[str]:
    """Make `destination` equal to the snapshot `commit`; returns the paths that were not restored.

    live: the workspace itself: a large file of which there is no copy is taken from there while it
    still is what it was (size and time). Raises HoustonError when there is no such snapshot, or no
    room for it; an `destination` that was not there, or empty, is so again.
    """
    before = folder_state(destination)
    try:
        check_objects(shadow)
        repo = pygit2.Repository(str(shadow))
        commit_object = repo[commit]
        lost = write_snapshot(repo, commit_object, destination, shadow / "large")
        if lost and live is not None and live.is_dir():
            lost = _copy_from_live(lost, read_notes(commit_object).beside, live, destination)
        return lost
    except OSError as problem:
        remove_begun(destination, before)
        raise HoustonError(
            f"{destination} cannot be written: {problem.strerror}.", "No workspace was made."
        ) from problem
    except (KeyError, ValueError, pygit2.GitError) as problem:
        remove_begun(destination, before)
        raise HoustonError(
            f"The snapshot {commit[:12]} in {shadow} cannot be restored: "
            f"{_snapshot_problem(problem)}.",
            "No workspace was made.",
            "Snapshots of a rollout are deleted by: houston rollout clean --snapshots",
        ) from problem


def folder_state(destination: Path) -> str:
    """What there is of a folder: `missing`, `empty`, or `full` for all else."""
    try:
        return "full" if any(destination.iterdir()) else "empty"
    except FileNotFoundError:
        return "missing"
    except OSError:
        return "full"


def remove_begun(destination: Path, before: str) -> None:
    """Remove an unfinished result, but nothing that was there before."""
    if before == "full":
        return
    with contextlib.suppress(OSError):
        untrusted_files.remove_folder(destination)
        if before == "empty":
            destination.mkdir()


def _copy_from_live(
    lost: list[str], unstored_files: Mapping[str, UnstoredFile], live: Path, destination: Path
) -> list[str]:
    """Copy what still lies in the workspace as it was recorded; the rest of `lost`."""
    live_files = {
        printable_path(path): (path, recorded) for path, recorded in unstored_files.items()
    }
    with NoFollowFolder(live) as source, NoFollowFolder(destination) as target:
        return [
            path
            for path in lost
            if path not in live_files or not _copy_if_unchanged(source, target, *live_files[path])
        ]


def _snapshot_problem(problem: Exception) -> str:
    return "it does not exist" if isinstance(problem, KeyError) else str(problem)


def _copy_if_unchanged(
    source: NoFollowFolder, target: NoFollowFolder, path: str, recorded: UnstoredFile
) -> bool:
    """Copy a large file that is still as it was recorded; whether it was, to the end."""
    try:
        old = source.open(path, os.O_RDONLY)
    except OSError:
        return False
    with os.fdopen(old, "rb") as reading:
        if not _is_as_recorded(reading.fileno(), recorded):
            return False
        target.remove(path)
        new = target.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(new, "wb") as writing:
            untrusted_files.copy_sparse(reading.fileno(), writing.fileno())
            os.fchmod(writing.fileno(), recorded.mode & 0o777)
            os.utime(writing.fileno(), ns=(recorded.mtime_ns, recorded.mtime_ns))
        if _is_as_recorded(reading.fileno(), recorded):
            return True
    target.remove(path)
    return False


def _is_as_recorded(descriptor: int, recorded: UnstoredFile) -> bool:
    status = os.fstat(descriptor)
    return (status.st_size, status.st_mtime_ns) == (recorded.size, recorded.mtime_ns)
