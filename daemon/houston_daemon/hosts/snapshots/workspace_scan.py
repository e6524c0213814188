"""One scan of every file of a workspace: what exists, what is unchanged, copies of large files.

Compares size, times, inode and mode (like git's index); contents are not read. The manifest
remembers which file had which content; if it is lost, files are read again. Large files are copied
at marks only, sharing blocks where the file system can. Nothing is watched:
docs/decisions.md#a-stat-scan-finds-what-changed.
"""

import errno
import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pygit2

from houston_daemon.hosts import untrusted_files
from houston_daemon.hosts.snapshots.git_objects import TreeFile
from houston_daemon.hosts.untrusted_files import NoFollowFolder
from houston_shared import atomic_file

FileMark = tuple[int, int, int, int, int]
"""mode, size in bytes, mtime and ctime in ns, inode: equal marks mean an untouched file."""


EXHAUSTED_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Says nothing of the file that was looked at: what is not seen then is not gone."""
MAX_FOLDER_DEPTH = 200
"""Folders within folders; what lies deeper is named and not recorded."""


@dataclass(slots=True)
class WorkspaceScan:
    """Paths are relative to the workspace, with `/`."""

    files: dict[str, FileMark] = field(default_factory=dict)
    """Regular files and symbolic links."""
    empty: list[str] = field(default_factory=list)
    """Folders with nothing in them, or nothing but what is skipped: no git tree can hold them."""
    skipped: dict[str, str] = field(default_factory=dict)
    """What is neither file, link nor folder, or may not be read, and why."""


def scan_workspace(root: Path) -> WorkspaceScan:
    """Look at every file below `root`; links are not followed.

    Raises OSError where this process has no descriptors or memory left to look with.
    """
    scan = WorkspaceScan()
    waiting = [""]
    top = os.fspath(root)
    while waiting:
        _scan_folder(top, waiting.pop(), scan, waiting)
    scan.empty.sort()
    return scan


def _scan_folder(top: str, folder: str, scan: WorkspaceScan, waiting: list[str]) -> None:
    if folder.count("/") >= MAX_FOLDER_DEPTH:
        scan.skipped[folder] = "nested too deeply"
        return
    prefix = f"{folder}/" if folder else ""
    files = scan.files
    is_empty = True
    try:
        with os.scandir(f"{top}/{folder}") as entries:
            for entry in entries:
                path = prefix + entry.name
                if entry.is_dir(follow_symlinks=False):
                    is_empty = False
                    waiting.append(path)
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                mode = status.st_mode
                if mode & _FILE_TYPE_MASK in _RECORDED_TYPES:
                    is_empty = False
                    files[path] = (
                        mode,
                        status.st_size,
                        status.st_mtime_ns,
                        status.st_ctime_ns,
                        status.st_ino,
                    )
                else:
                    scan.skipped[path] = _SPECIAL_TYPES.get(mode & _FILE_TYPE_MASK, "special file")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        if error.errno in EXHAUSTED_ERRORS:
            raise
        scan.skipped[folder] = f"cannot be read: {error.strerror}"
        return
    if is_empty and folder:
        scan.empty.append(folder)


_FILE_TYPE_MASK = 0o170000
_RECORDED_TYPES = (stat.S_IFREG, stat.S_IFLNK)
_SPECIAL_TYPES = {
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "block device",
    stat.S_IFCHR: "character device",
}


ManifestEntries = dict[str, tuple[FileMark, TreeFile]]
"""By path: how a file looked, and what was in it."""


def load_manifest(file: Path, files: Mapping[str, TreeFile]) -> ManifestEntries:
    """What the manifest knows of the files of the last snapshot."""
    try:
        rows = msgspec.msgpack.decode(
            file.read_bytes(), type=dict[bytes, tuple[FileMark, int, bytes]]
        )
    except (FileNotFoundError, msgspec.DecodeError):
        return {}
    entries: ManifestEntries = {}
    for name, (mark, mode, oid) in rows.items():
        path, content = os.fsdecode(name), TreeFile(mode, pygit2.Oid(raw=oid))
        if files.get(path) == content:
            entries[path] = (mark, content)
    return entries


def save_manifest(file: Path, entries: ManifestEntries) -> None:
    """Replace the manifest in one move."""
    rows = {
        os.fsencode(path): (mark, content.mode, content.oid.raw)
        for path, (mark, content) in entries.items()
    }
    atomic_file.write_atomically(file, msgspec.msgpack.encode(rows), durable=False)


MAX_COPIED_BYTES = 8 << 30
"""Bytes that one mark copies."""
_SPARE_DISK_BYTES = 1 << 30
"""Bytes of disk that stay free for the rollout itself."""


class LargeFileCopies:
    """The copies of one mark, in `folder`."""

    def __init__(
        self, workspace: NoFollowFolder, folder: Path, max_bytes: int = MAX_COPIED_BYTES
    ) -> None:
        self._workspace = workspace
        self._folder = folder
        self._bytes_left = max_bytes

    def store(self, path: str, mark: FileMark) -> tuple[str, str]:
        """Copy a file; returns the copy's name, and a note: for example why there is no copy.

        A file that changes while it is copied is stored as it was read, and the note says so.
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
            status = os.fstat(source)
            same = (status.st_size, status.st_mtime_ns) == (size, mtime)
            return name, "" if same else "it changed while it was copied"
        finally:
            os.close(source)

    def _copy(self, source: int, target: Path) -> str:
        """Make the copy; why not, where there is none."""
        taken_bytes = untrusted_files.allocated_bytes(source)
        if taken_bytes > self._bytes_left:
            return "too large to copy at this mark"
        if shutil.disk_usage(self._folder).free < taken_bytes + _SPARE_DISK_BYTES:
            return "no room on the disk for a copy"
        self._bytes_left -= taken_bytes
        temporary_file = self._folder / "copy.new"
        try:
            with atomic_file.open_atomically(
                target, temporary_path=temporary_file, synced="nothing"
            ) as file:
                untrusted_files.copy_sparse(source, file.fileno())
        except OSError as error:
            return f"could not be copied: {error.strerror}"
        return ""
