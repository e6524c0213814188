"""The shadow repository of one workspace: a commit per state, its diffs, repair after a power cut.

`git add` is never used: nested clones and ignored files are files like others, and no lock is left
when this process is killed (objects appear by rename, the head is a file moved into place). In
`shadow/`: a bare git repository, `manifest` and `large/`. The work runs in a thread of its own; one
call at a time, others wait.
"""

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
import pygit2

from houston_daemon.hosts import untrusted_files
from houston_daemon.hosts.host_protocol import FileDiff, Snapshot
from houston_daemon.hosts.snapshots import git_objects, workspace_scan
from houston_daemon.hosts.snapshots.git_objects import (
    LINK_MODE,
    SnapshotNotes,
    TreeFile,
    UnstoredFile,
    blob_size,
    printable_path,
    write_blob,
)
from houston_daemon.hosts.snapshots.workspace_scan import (
    EXHAUSTED_ERRORS,
    FileMark,
    WorkspaceScan,
    scan_workspace,
)
from houston_daemon.hosts.untrusted_files import NoFollowFolder
from houston_shared import atomic_file
from houston_shared.errors import HoustonError
from houston_shared.faults import point

_MAX_DIFF_BYTES = 16 * 1024
MAX_DESCRIBED_FILES = 200
_COMPARED_BYTES = 1_000_000
"""A comparison holds the interpreter for as long as it takes: 0.1 s for this much."""

DiffSide = TreeFile | UnstoredFile | None
ChangeKind = Literal["added", "changed", "removed"]


def describe_changes(
    repo: pygit2.Repository, changes: Sequence[tuple[str, DiffSide, DiffSide]]
) -> tuple[tuple[FileDiff, ...], int]:
    """The first 200 changes with their diffs, and how many more there are."""
    files = tuple(
        _describe_change(repo, printable_path(path), *sides)
        for path, *sides in changes[:MAX_DESCRIBED_FILES]
    )
    return files, max(0, len(changes) - MAX_DESCRIBED_FILES)


def _describe_change(repo: pygit2.Repository, path: str, old: DiffSide, new: DiffSide) -> FileDiff:
    kind: ChangeKind = "added" if old is None else "removed" if new is None else "changed"
    for side in (new, old):
        if isinstance(side, UnstoredFile):
            return FileDiff(path, kind, 0, 0, "", side.why)
    assert not isinstance(old, UnstoredFile) and not isinstance(new, UnstoredFile)
    if old is not None and new is not None and old.oid == new.oid:
        return FileDiff(path, kind, 0, 0, "", _mode_note(old, new))
    try:
        if (
            max(blob_size(repo, side.oid) for side in (old, new) if side is not None)
            > _COMPARED_BYTES
        ):
            return FileDiff(path, kind, 0, 0, "", "too large to compare")
        before = repo[old.oid] if old is not None else None
        after = repo[new.oid] if new is not None else None
    except KeyError:
        return FileDiff(path, kind, 0, 0, "", "its content before was lost in a power cut")
    patch = pygit2.Patch.create_from(before, after, old_as_path=path, new_as_path=path)
    if patch.delta.is_binary:
        return FileDiff(path, kind, 0, 0, "", "binary")
    _, added_lines, removed = patch.line_stats
    link = any(side is not None and side.mode == LINK_MODE for side in (old, new))
    note = "symbolic link" if link else ""
    return FileDiff(
        path, kind, added_lines, removed, _cut_diff(_without_git_header(patch.data)), note
    )


def _without_git_header(data: bytes) -> bytes:
    """From `---` on: git's own two lines name object ids, which say nothing to a reader."""
    at = data.find(b"\n--- ")
    return data[at + 1 :] if at >= 0 else data


def _cut_diff(data: bytes) -> str:
    if len(data) <= _MAX_DIFF_BYTES:
        return data.decode("utf-8", "replace")
    kept_data = data[: data.rfind(b"\n", 0, _MAX_DIFF_BYTES) + 1] or data[:_MAX_DIFF_BYTES]
    left_bytes = len(data) - len(kept_data)
    return kept_data.decode("utf-8", "replace") + f"[diff cut here: {left_bytes} more bytes]\n"


def _mode_note(old: TreeFile, new: TreeFile) -> str:
    if new.mode == LINK_MODE or old.mode == LINK_MODE:
        return "now a symbolic link" if new.mode == LINK_MODE else "no longer a symbolic link"
    return "now executable" if new.mode > old.mode else "no longer executable"


log = logging.getLogger(__name__)

LARGE_FILE_BYTES = 16 * 1024 * 1024
"""Bytes from which a file is recorded by size and time."""
_VANISHED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.EINVAL)
"""A file is gone, or something else stands in its place: the next look sees what."""
_UNSETTLED_NS = 50_000_000
"""A file touched this shortly before a look may be touched again within the same clock tick."""
_MANIFEST_SECONDS = 20.0
HEAD_FILE = "refs/heads/main"
"""Names the newest commit."""
_Result = TypeVar("_Result")
FileChange = tuple[str, DiffSide, DiffSide]
"""Path, before, after."""


class ShadowRepository:
    """Snapshots of `workspace`, kept in `folder`; a mark copies at most `max_copied_bytes`."""

    def __init__(
        self, workspace: Path, folder: Path, max_copied_bytes: int = workspace_scan.MAX_COPIED_BYTES
    ) -> None:
        self.workspace = workspace
        self.folder = folder
        self._max_copied_bytes = max_copied_bytes
        self._repo: pygit2.Repository | None = None
        self._head = ""
        self._files: dict[str, TreeFile] = {}
        """Files of the last snapshot."""
        self._notes = SnapshotNotes()
        self._known: workspace_scan.ManifestEntries = {}
        """How they looked; always of the same content as in `_files`."""
        self._saved_at = 0.0
        self._unsaved = False
        self._thread = ThreadPoolExecutor(1, "snapshots")

    async def take(
        self, message: str, hints: Sequence[str] = (), mark: bool = False, since: str = ""
    ) -> Snapshot:
        """Record the workspace as it is; see `Snapshots.take`.

        Changes of `hints` come first in the list. Raises HoustonError when it cannot be written.
        """
        return await self._run_in_thread(lambda: self._take(message, frozenset(hints), mark, since))

    async def close(self) -> None:
        """Write the manifest and let go."""
        await self._run_in_thread(self._save_manifest)

    async def _run_in_thread(self, work: Callable[[], _Result]) -> _Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (OSError, pygit2.GitError) as error:
            if not self.workspace.is_dir():
                raise HoustonError(
                    "The workspace is gone: its folder was removed from outside.",
                    "No snapshot was taken; the last one still holds what was there.",
                    f"Its snapshots are in {self.folder}, a git repository.",
                ) from error
            # The cause may stand in an observation, so it names no place of the host.
            cause_text = (error.strerror if isinstance(error, OSError) else None) or str(error)
            cause_text = (cause_text or "no reason was given").replace(
                str(self.folder), "[the host]"
            )
            raise HoustonError(
                f"The shadow repository cannot be used: {cause_text}.",
                "The workspace is untouched, but this state of it was not recorded.",
                f"Free the disk or mend {self.folder}; the next step tries again.",
            ) from error

    def _take(self, message: str, hints: frozenset[str], mark: bool, since: str) -> Snapshot:
        repo = self._open()
        already_told = self._files_at(repo, since)
        untrusted_files.restore_owner_rights(self.workspace)
        looked_at = time.time_ns()
        scan = scan_workspace(self.workspace)
        notes = SnapshotNotes(empty=scan.empty, skipped=scan.skipped)
        with NoFollowFolder(self.workspace) as workspace:
            files = self._read_changed(repo, workspace, scan, notes)
            if mark:
                self._store_large(workspace, scan, notes)
        changes = self._find_changes(scan, files, notes)
        if changes or notes != self._notes or not self._head:
            self._commit(repo, message, notes, changes)
        self._remember(scan, files, looked_at)
        if already_told is not None:
            changes = _differing_files(already_told, {**self._files, **self._notes.beside})
        if mark or time.monotonic() - self._saved_at > _MANIFEST_SECONDS:
            self._save_manifest()
        changes.sort(key=lambda change: (change[0] not in hints, change[0]))
        diffs, more = describe_changes(repo, changes)
        return Snapshot(self._head, diffs, more)

    def _read_changed(
        self,
        repo: pygit2.Repository,
        workspace: NoFollowFolder,
        scan: WorkspaceScan,
        notes: SnapshotNotes,
    ) -> dict[str, TreeFile]:
        """Contents of files that look different; what is large or moving goes to `notes`."""
        known_files = self._known
        different = [
            (path, mark)
            for path, mark in scan.files.items()
            if (last := known_files.get(path)) is None or last[0] != mark
        ]
        files: dict[str, TreeFile] = {}
        for path, mark in different:
            if mark[1] > LARGE_FILE_BYTES and not stat.S_ISLNK(mark[0]):
                notes.beside[path] = self._record_large_file(path, mark)
                continue
            file = _store_content(repo, workspace, path, mark)
            if isinstance(file, TreeFile):
                files[path] = file
            elif file is not None:
                notes.beside[path] = file
            else:  # it has vanished since the look
                del scan.files[path]
        return files

    def _record_large_file(self, path: str, mark: FileMark) -> UnstoredFile:
        """The record of a large file; keeps what is known of its copy while it is untouched."""
        old = self._notes.beside.get(path)
        new = _record_by_looks(mark, "large")
        if old is not None and not _differs(msgspec.structs.replace(old, mode=new.mode), new):
            return msgspec.structs.replace(new, why=old.why, stored=old.stored)
        return new

    def _store_large(
        self, workspace: NoFollowFolder, scan: WorkspaceScan, notes: SnapshotNotes
    ) -> None:
        copies = workspace_scan.LargeFileCopies(
            workspace, self.folder / "large", self._max_copied_bytes
        )
        for path, recorded in sorted(notes.beside.items()):
            if not (recorded.stored and (self.folder / "large" / recorded.stored).exists()):
                name, remark = copies.store(path, scan.files[path])
                kind = recorded.why.partition("; ")[0]
                reason = f"{kind}; {remark}" if remark else kind
                notes.beside[path] = msgspec.structs.replace(recorded, stored=name, why=reason)

    def _find_changes(
        self, scan: WorkspaceScan, files: dict[str, TreeFile], notes: SnapshotNotes
    ) -> list[FileChange]:
        """Every file that differs from the last snapshot."""
        old = self._notes.beside
        gone_paths = [
            path
            for known_files in (self._files, old)
            for path in known_files
            if path not in scan.files
        ]
        changes: list[FileChange] = []
        for path in (*files, *notes.beside, *gone_paths):
            before: DiffSide = self._files.get(path) or old.get(path)
            after: DiffSide = files.get(path) or notes.beside.get(path)
            if _differs(before, after):
                changes.append((path, before, after))
        return changes

    def _files_at(self, repo: pygit2.Repository, since: str) -> dict[str, DiffSide] | None:
        """The files of `since`, where a snapshot after it was never told; None as a rule."""
        if since in ("", self._head):
            return None
        try:
            commit = repo[since]
            return {
                **dict(git_objects.walk_tree(git_objects.files_tree(commit))),
                **git_objects.read_notes(commit).beside,
            }
        except (KeyError, ValueError, pygit2.GitError):
            log.exception("snapshot %s of %s is damaged", since, self.folder)
            return None

    def _commit(
        self, repo: pygit2.Repository, message: str, notes: SnapshotNotes, changes: list[FileChange]
    ) -> None:
        old = git_objects.files_tree(repo[self._head]) if self._head else None
        contents = {
            path: after if isinstance(after, TreeFile) else None for path, _, after in changes
        }
        tree = old.id if old is not None else None
        if contents:
            nested = git_objects.nest_changes(contents.items())
            tree = git_objects.write_updated_tree(repo, old, nested)
        head = git_objects.write_commit(repo, tree, notes, message, self._head)
        point("worker.snapshot.written")
        self._point_head(head)
        point("worker.snapshot.named")
        self._head, self._notes = head, notes
        for path, file in contents.items():
            self._known.pop(path, None)
            if file is not None:
                self._files[path] = file
            else:
                self._files.pop(path, None)

    def _remember(self, scan: WorkspaceScan, files: dict[str, TreeFile], looked_at: int) -> None:
        """Note how the files looked whose content was read, unless they may still change unseen."""
        for path, file in files.items():
            mark = scan.files[path]
            if max(mark[2], mark[3]) < looked_at - _UNSETTLED_NS:
                self._known[path] = (mark, file)
                self._unsaved = True

    def _point_head(self, commit: str) -> None:
        head = self.folder / HEAD_FILE
        head.parent.mkdir(parents=True, exist_ok=True)
        temporary_file = self.folder / "head.new"  # beside it, it would be another head
        data = f"{commit}\n".encode()
        atomic_file.write_atomically(head, data, temporary_path=temporary_file, durable=False)

    def _open(self) -> pygit2.Repository:
        if self._repo is not None:
            return self._repo
        _ignore_settings()
        if not (self.folder / "HEAD").exists():
            _make_repository(self.folder)
        git_objects.remove_broken_objects(self.folder)
        repo = pygit2.Repository(str(self.folder))
        with contextlib.suppress(FileNotFoundError):
            self._head = (self.folder / HEAD_FILE).read_text().strip()
        if self._head:
            self._load_last_snapshot(repo)
        self._known = workspace_scan.load_manifest(self.folder / "manifest", self._files)
        self._repo = repo
        return repo

    def _load_last_snapshot(self, repo: pygit2.Repository) -> None:
        """Read the last snapshot; one that a power cut has damaged is followed by a whole one."""
        try:
            commit = repo[self._head]
            self._files = dict(git_objects.walk_tree(git_objects.files_tree(commit)))
            self._notes = git_objects.read_notes(commit)
        except (KeyError, ValueError, pygit2.GitError):
            log.exception("snapshot %s of %s is damaged", self._head, self.folder)
            self._head, self._files, self._notes = "", {}, SnapshotNotes()

    def _save_manifest(self) -> None:
        if self._unsaved:
            workspace_scan.save_manifest(self.folder / "manifest", self._known)
            self._saved_at, self._unsaved = time.monotonic(), False


def _make_repository(folder: Path) -> None:
    """Make it beside and move it into place: libgit2 locks the configuration while it writes it."""
    staging_folder = folder.with_name(folder.name + ".new")
    if staging_folder.exists():
        shutil.rmtree(staging_folder)
    make_bare_repository(staging_folder)
    point("worker.shadow.made")
    staging_folder.rename(folder)


def make_bare_repository(folder: Path) -> None:
    """Make an empty repository in a new folder. Raises OSError, pygit2.GitError."""
    _ignore_settings()
    folder.mkdir(parents=True)
    pygit2.init_repository(str(folder), bare=True, initial_head="main")


def _ignore_settings() -> None:
    """The user's and the machine's git settings change nothing here (and may be unreadable)."""
    level = pygit2.enums.ConfigLevel
    for scope in (level.GLOBAL, level.XDG, level.SYSTEM, level.PROGRAMDATA):
        pygit2.settings.search_path[scope] = ""


def _store_content(
    repo: pygit2.Repository, workspace: NoFollowFolder, path: str, mark: FileMark
) -> TreeFile | UnstoredFile | None:
    """Store a file's content; UnstoredFile when it changes meanwhile, None when it is gone."""
    try:
        if stat.S_ISLNK(mark[0]):
            return TreeFile(git_objects.LINK_MODE, repo.create_blob(workspace.read_link(path)))
        with os.fdopen(workspace.open(path, os.O_RDONLY), "rb") as file:
            data = file.read(LARGE_FILE_BYTES + 1)
            after = os.fstat(file.fileno())
    except OSError as problem:
        if problem.errno in _VANISHED:
            return None
        if problem.errno in EXHAUSTED_ERRORS:
            raise
        return _record_by_looks(mark, "cannot be read")
    if (after.st_size, after.st_mtime_ns) != (len(data), mark[2]):
        now = (mark[0], after.st_size, after.st_mtime_ns, after.st_ctime_ns, after.st_ino)
        return _record_by_looks(now, "still being written")
    mode = git_objects.PROGRAM_MODE if mark[0] & 0o100 else git_objects.FILE_MODE
    return TreeFile(mode, write_blob(repo, data))


def _record_by_looks(mark: FileMark, reason: str) -> UnstoredFile:
    """A file by its looks alone."""
    return UnstoredFile(mark[1], mark[2], mark[0] & 0o777, reason, ctime_ns=mark[3])


def _differing_files(
    before: Mapping[str, DiffSide], after: Mapping[str, DiffSide]
) -> list[FileChange]:
    """Every file that differs between two states."""
    sides = ((path, before.get(path), after.get(path)) for path in before.keys() | after.keys())
    return [change for change in sides if _differs(*change[1:])]


def _differs(before: DiffSide, after: DiffSide) -> bool:
    if isinstance(before, UnstoredFile) and isinstance(after, UnstoredFile):
        touched = 0 not in (old := before.ctime_ns, new := after.ctime_ns) and old != new
        looks = (before.size, before.mtime_ns, before.mode)
        return touched or looks != (after.size, after.mtime_ns, after.mode)
    return before != after
