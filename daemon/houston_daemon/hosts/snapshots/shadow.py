"""The shadow repository of one workspace: a commit per state, written with explicit entries.

`git add` is never used: nested clones and ignored files are files like others, and no lock is left
when this process is killed (objects appear by rename, the head is a file moved into place).
In `shadow/`: a bare git repository, `manifest` and `large/` (see the modules of
these names). The work runs in a thread of its own; one call at a time, others wait.
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
from typing import TypeVar

import msgspec
import pygit2

from houston_daemon.hosts import own_rights
from houston_daemon.hosts.protocol import Snapshot
from houston_daemon.hosts.snapshots import diffs, large_files, manifest, power_cut, restoring, trees
from houston_daemon.hosts.snapshots.beneath import Beneath
from houston_daemon.hosts.snapshots.diffs import Side
from houston_daemon.hosts.snapshots.loose_objects import write_blob
from houston_daemon.hosts.snapshots.scanning import EXHAUSTED, FileMark, Scan, scan
from houston_daemon.hosts.snapshots.trees import About, Beside, TreeFile
from houston_shared.errors import HoustonError
from houston_shared.faults import point

log = logging.getLogger(__name__)

LARGE = 16 * 1024 * 1024
"""Bytes from which a file is recorded by size and time."""
_VANISHED = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.EINVAL)
"""A file is gone, or something else stands in its place: the next look sees what."""
_UNSETTLED_NS = 50_000_000
"""A file touched this shortly before a look may be touched again within the same clock tick."""
_MANIFEST_SECONDS = 20.0
_HEAD = "refs/heads/main"
_Result = TypeVar("_Result")
Change = tuple[str, Side, Side]
"""Path, before, after."""


class ShadowRepository:
    """Snapshots of `workspace`, kept in `folder`; a mark copies `most_copied` bytes at most."""

    def __init__(self, workspace: Path, folder: Path, most_copied: int = large_files.MOST) -> None:
        self.workspace = workspace
        self.folder = folder
        self._most_copied = most_copied
        self._repo: pygit2.Repository | None = None
        self._head = ""
        self._files: dict[str, TreeFile] = {}
        """Files of the last snapshot."""
        self._about = About()
        self._known: manifest.Known = {}
        """How they looked; always of the same content as in `_files`."""
        self._saved_at = 0.0
        self._unsaved = False
        self._thread = ThreadPoolExecutor(1, "snapshots")

    async def take(
        self, message: str, hints: Sequence[str] = (), mark: bool = False, since: str = ""
    ) -> Snapshot:
        """Record the workspace as it is; see `protocol.Snapshots.take`.

        Changes of `hints` come first in the list. Raises HoustonError when it cannot be written.
        """
        return await self._aside(lambda: self._take(message, frozenset(hints), mark, since))

    async def restore(self, commit: str, into: Path) -> list[str]:
        """Make `into` equal to `commit`; returns the paths that could not be brought back.

        What `into` has beyond it is removed. Raises HoustonError for an unknown commit.
        """
        return await self._aside(lambda: self._restore(commit, into))

    async def close(self) -> None:
        """Write the manifest and let go."""
        await self._aside(self._save_manifest)

    async def _aside(self, work: Callable[[], _Result]) -> _Result:
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
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            why = (why or "no reason was given").replace(str(self.folder), "[the host]")
            raise HoustonError(
                f"The shadow repository cannot be used: {why}.",
                "The workspace is untouched, but this state of it was not recorded.",
                f"Free the disk or mend {self.folder}; the next step tries again.",
            ) from error

    def _take(self, message: str, hints: frozenset[str], mark: bool, since: str) -> Snapshot:
        repo = self._open()
        told = self._untold(repo, since)
        own_rights.give_back(self.workspace)
        looked_at = time.time_ns()
        seen = scan(self.workspace)
        about = About(empty=seen.empty, skipped=seen.skipped)
        with Beneath(self.workspace) as workspace:
            files = self._read_changed(repo, workspace, seen, about)
            if mark:
                self._store_large(workspace, seen, about)
        changes = self._changes(seen, files, about)
        if changes or about != self._about or not self._head:
            self._commit(repo, message, about, changes)
        self._remember(seen, files, looked_at)
        if told is not None:
            changes = _between(told, {**self._files, **self._about.beside})
        if mark or time.monotonic() - self._saved_at > _MANIFEST_SECONDS:
            self._save_manifest()
        changes.sort(key=lambda change: (change[0] not in hints, change[0]))
        shown, more = diffs.describe(repo, changes)
        return Snapshot(self._head, shown, more)

    def _read_changed(
        self, repo: pygit2.Repository, workspace: Beneath, seen: Scan, about: About
    ) -> dict[str, TreeFile]:
        """Contents of files that look different; what is large or moving goes to `about`."""
        known = self._known
        different = [
            (path, mark)
            for path, mark in seen.files.items()
            if (last := known.get(path)) is None or last[0] != mark
        ]
        files: dict[str, TreeFile] = {}
        for path, mark in different:
            if mark[1] > LARGE and not stat.S_ISLNK(mark[0]):
                about.beside[path] = self._beside(path, mark)
                continue
            file = _read(repo, workspace, path, mark)
            if isinstance(file, TreeFile):
                files[path] = file
            elif file is not None:
                about.beside[path] = file
            else:  # it has vanished since the look
                del seen.files[path]
        return files

    def _beside(self, path: str, mark: FileMark) -> Beside:
        """The record of a large file; keeps what is known of its copy while it is untouched."""
        old = self._about.beside.get(path)
        new = _recorded(mark, "large")
        if old is not None and not _differs(msgspec.structs.replace(old, mode=new.mode), new):
            return msgspec.structs.replace(new, why=old.why, stored=old.stored)
        return new

    def _store_large(self, workspace: Beneath, seen: Scan, about: About) -> None:
        copies = large_files.Copies(workspace, self.folder / "large", self._most_copied)
        for path, recorded in sorted(about.beside.items()):
            if not (recorded.stored and (self.folder / "large" / recorded.stored).exists()):
                name, said = copies.store(path, seen.files[path])
                kind = recorded.why.partition("; ")[0]
                why = f"{kind}; {said}" if said else kind
                about.beside[path] = msgspec.structs.replace(recorded, stored=name, why=why)

    def _changes(self, seen: Scan, files: dict[str, TreeFile], about: About) -> list[Change]:
        """Every file that differs from the last snapshot."""
        old = self._about.beside
        gone = [path for known in (self._files, old) for path in known if path not in seen.files]
        changes: list[Change] = []
        for path in (*files, *about.beside, *gone):
            before: Side = self._files.get(path) or old.get(path)
            after: Side = files.get(path) or about.beside.get(path)
            if _differs(before, after):
                changes.append((path, before, after))
        return changes

    def _untold(self, repo: pygit2.Repository, since: str) -> dict[str, Side] | None:
        """The files of `since`, where a snapshot after it was never told; None as a rule."""
        if since in ("", self._head):
            return None
        try:
            commit = repo[since]
            return {**dict(trees.walk(trees.files_of(commit))), **trees.about_of(commit).beside}
        except (KeyError, ValueError, pygit2.GitError):
            log.exception("snapshot %s of %s is damaged", since, self.folder)
            return None

    def _commit(
        self, repo: pygit2.Repository, message: str, about: About, changes: list[Change]
    ) -> None:
        old = trees.files_of(repo[self._head]) if self._head else None
        contents = {path: _in_tree(after) for path, _, after in changes}
        tree = old.id if old is not None else None
        if contents:
            nested = trees.nested(contents.items())
            tree = trees.updated(repo, old, nested)
        head = trees.write_commit(repo, tree, about, message, self._head)
        point("worker.snapshot.written")
        self._point_head(head)
        point("worker.snapshot.named")
        self._head, self._about = head, about
        for path, file in contents.items():
            self._known.pop(path, None)
            if file is not None:
                self._files[path] = file
            else:
                self._files.pop(path, None)

    def _remember(self, seen: Scan, files: dict[str, TreeFile], looked_at: int) -> None:
        """Note how the files looked whose content was read, unless they may still change unseen."""
        for path, file in files.items():
            mark = seen.files[path]
            if max(mark[2], mark[3]) < looked_at - _UNSETTLED_NS:
                self._known[path] = (mark, file)
                self._unsaved = True

    def _point_head(self, commit: str) -> None:
        head = self.folder / _HEAD
        head.parent.mkdir(parents=True, exist_ok=True)
        beside = self.folder / "head.new"
        beside.write_text(commit + "\n")
        beside.replace(head)

    def _open(self) -> pygit2.Repository:
        if self._repo is not None:
            return self._repo
        _ignore_settings()
        if not (self.folder / "HEAD").exists():
            _make_repository(self.folder)
        power_cut.settle(self.folder, self.folder / "manifest")
        repo = pygit2.Repository(str(self.folder))
        with contextlib.suppress(FileNotFoundError):
            self._head = (self.folder / _HEAD).read_text().strip()
        if self._head:
            self._recall(repo)
        self._known = manifest.load(self.folder / "manifest", self._files)
        self._repo = repo
        return repo

    def _recall(self, repo: pygit2.Repository) -> None:
        """Read the last snapshot; one that a power cut has damaged is followed by a whole one."""
        try:
            commit = repo[self._head]
            self._files = dict(trees.walk(trees.files_of(commit)))
            self._about = trees.about_of(commit)
        except (KeyError, ValueError, pygit2.GitError):
            log.exception("snapshot %s of %s is damaged", self._head, self.folder)
            self._head, self._files, self._about = "", {}, About()

    def _save_manifest(self) -> None:
        if self._unsaved:
            manifest.save(self.folder / "manifest", self._known)
            self._saved_at, self._unsaved = time.monotonic(), False

    def _restore(self, commit: str, into: Path) -> list[str]:
        repo = self._open()
        try:
            found = repo[commit]
        except (KeyError, ValueError) as error:
            raise HoustonError(
                f"The shadow repository {self.folder} has no snapshot {commit!r}.",
                "Nothing was restored.",
            ) from error
        known = self._known if into == self.workspace else {}
        return restoring.restore(repo, found, into, self.folder / "large", known)


def _make_repository(folder: Path) -> None:
    """Make it beside and move it into place: libgit2 locks the configuration while it writes it."""
    beside = folder.with_name(folder.name + ".new")
    if beside.exists():
        shutil.rmtree(beside)
    beside.mkdir(parents=True)
    pygit2.init_repository(str(beside), bare=True, initial_head="main")
    point("worker.shadow.made")
    beside.rename(folder)


def _ignore_settings() -> None:
    """The user's and the machine's git settings change nothing here (and may be unreadable)."""
    level = pygit2.enums.ConfigLevel
    for one in (level.GLOBAL, level.XDG, level.SYSTEM, level.PROGRAMDATA):
        pygit2.settings.search_path[one] = ""


def _read(
    repo: pygit2.Repository, workspace: Beneath, path: str, mark: FileMark
) -> TreeFile | Beside | None:
    """Store a file's content; Beside when it changes under our hands, None when it is gone."""
    try:
        if stat.S_ISLNK(mark[0]):
            return TreeFile(trees.LINK, repo.create_blob(workspace.read_link(path)))
        with os.fdopen(workspace.open(path, os.O_RDONLY), "rb") as file:
            data = file.read(LARGE + 1)
            after = os.fstat(file.fileno())
    except OSError as problem:
        if problem.errno in _VANISHED:
            return None
        if problem.errno in EXHAUSTED:
            raise
        return _recorded(mark, "cannot be read")
    if (after.st_size, after.st_mtime_ns) != (len(data), mark[2]):
        now = (mark[0], after.st_size, after.st_mtime_ns, after.st_ctime_ns, after.st_ino)
        return _recorded(now, "still being written")
    mode = trees.PROGRAM if mark[0] & 0o100 else trees.FILE
    return TreeFile(mode, write_blob(repo, data))


def _recorded(mark: FileMark, why: str) -> Beside:
    """A file by its looks alone."""
    return Beside(mark[1], mark[2], mark[0] & 0o777, why, ctime_ns=mark[3])


def _in_tree(side: Side) -> TreeFile | None:
    return side if isinstance(side, TreeFile) else None


def _between(before: Mapping[str, Side], after: Mapping[str, Side]) -> list[Change]:
    """Every file that differs between two states."""
    sides = ((path, before.get(path), after.get(path)) for path in before.keys() | after.keys())
    return [change for change in sides if _differs(*change[1:])]


def _differs(before: Side, after: Side) -> bool:
    if isinstance(before, Beside) and isinstance(after, Beside):
        touched = 0 not in (old := before.ctime_ns, new := after.ctime_ns) and old != new
        looks = (before.size, before.mtime_ns, before.mode)
        return touched or looks != (after.size, after.mtime_ns, after.mode)
    return before != after
