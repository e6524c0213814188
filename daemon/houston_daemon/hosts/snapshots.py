"""The shadow repository of one workspace: a commit per state, written with explicit entries.

`git add` is never used: nested clones and ignored files are files like others, and no lock is left
when this process is killed (objects appear by rename, the head is a file moved into place).
In `shadow/`: a bare git repository, `manifest` (which file had which content when last seen, a
cache that may be lost), `large/` (see large_files). The work runs in a thread of its own.
"""

import asyncio
import contextlib
import os
import stat
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec
import pygit2

from houston_daemon.hosts import large_files, snapshot_diff, snapshot_restore
from houston_daemon.hosts.beneath import Beneath
from houston_daemon.hosts.protocol import Snapshot
from houston_daemon.hosts.snapshot_diff import Side
from houston_daemon.hosts.snapshot_scan import FileMark, Scan, scan
from houston_daemon.hosts.snapshot_tree import (
    FILE,
    LINK,
    PROGRAM,
    About,
    Beside,
    TreeFile,
    about_of,
    files_of,
    nested,
    updated,
    walk,
    write_commit,
)
from houston_shared.errors import HoustonError

LARGE = 16 * 1024 * 1024
"""Bytes from which a file is recorded by size and time."""
_UNSETTLED_NS = 50_000_000
"""A file touched this shortly before a look may be touched again within the same clock tick."""
_MANIFEST_SECONDS = 20.0
_HEAD = "refs/heads/main"
_Result = TypeVar("_Result")


class ShadowRepository:
    """Snapshots of `workspace`, kept in `folder`. One call at a time; others wait."""

    def __init__(self, workspace: Path, folder: Path) -> None:
        self.workspace = workspace
        self.folder = folder
        self._repo: pygit2.Repository | None = None
        self._head = ""
        self._known: dict[str, tuple[FileMark, TreeFile]] = {}
        self._files: dict[str, TreeFile] = {}
        self._about = About()
        self._saved = 0.0
        self._unsaved = False
        self._thread = ThreadPoolExecutor(1, "snapshots")

    async def take(self, message: str, hints: Sequence[str] = (), mark: bool = False) -> Snapshot:
        """Record the workspace as it is; see `protocol.Snapshots.take`.

        Changes of `hints` come first in the list. Raises HoustonError when nothing can be written.
        """
        return await self._aside(lambda: self._take(message, frozenset(hints), mark))

    async def restore(self, commit: str, into: Path) -> list[str]:
        """Make `into` equal to `commit`; returns the paths that could not be brought back.

        What `into` has beyond it is removed. Raises HoustonError for an unknown commit.
        """
        return await self._aside(lambda: self._restore(commit, into))

    async def close(self) -> None:
        """Write the manifest and let go."""
        await self._aside(self._save_manifest)

    async def _aside(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _take(self, message: str, hints: frozenset[str], mark: bool) -> Snapshot:
        repo = self._open()
        looked_at = time.time_ns()
        seen = scan(self.workspace)
        about = About(empty=seen.empty, skipped=seen.skipped)
        files = self._contents(repo, seen, about, looked_at)
        if mark:
            self._store_large(seen, about)
        changes = self._changes(files, about)
        if changes or about != self._about or not self._head:
            self._commit(repo, message, files, about, changes)
        self._save_manifest(at_most_every=0.0 if mark else _MANIFEST_SECONDS)
        changes.sort(key=lambda change: (change[0] not in hints, change[0]))
        shown, more = snapshot_diff.describe(repo, changes)
        return Snapshot(self._head, shown, more)

    def _contents(
        self, repo: pygit2.Repository, seen: Scan, about: About, looked_at: int
    ) -> dict[str, TreeFile]:
        """Content ids of all files; what is large or moving goes to `about` instead."""
        files: dict[str, TreeFile] = {}
        known: dict[str, tuple[FileMark, TreeFile]] = {}
        with Beneath(self.workspace) as workspace:
            for path, mark in seen.files.items():
                before = self._known.get(path)
                if before is not None and before[0] == mark:
                    files[path], known[path] = before[1], before
                    continue
                if mark[1] > LARGE and not stat.S_ISLNK(mark[0]):
                    about.beside[path] = self._beside(path, mark, "large")
                    continue
                file = _read(repo, workspace, path, mark)
                if isinstance(file, TreeFile):
                    files[path] = file
                    if max(mark[2], mark[3]) < looked_at - _UNSETTLED_NS:
                        known[path] = (mark, file)
                elif file is not None:
                    about.beside[path] = file
                # else: it has vanished since the look
        self._unsaved = self._unsaved or known != self._known
        self._known = known
        return files

    def _beside(self, path: str, mark: FileMark, why: str) -> Beside:
        """The record of a large file; keeps what is known of its copy while it is untouched."""
        old = self._about.beside.get(path)
        stored = ""
        if old is not None and (old.size, old.mtime_ns) == (mark[1], mark[2]):
            stored = old.stored
        return Beside(mark[1], mark[2], mark[0] & 0o777, why, stored)

    def _store_large(self, seen: Scan, about: About) -> None:
        with Beneath(self.workspace) as workspace:
            for path, recorded in about.beside.items():
                if path in seen.files and not recorded.stored:
                    name = large_files.store(
                        workspace, path, seen.files[path], self.folder / "large"
                    )
                    about.beside[path] = msgspec.structs.replace(recorded, stored=name)

    def _changes(self, files: dict[str, TreeFile], about: About) -> list[tuple[str, Side, Side]]:
        """(path, before, after) of every file that differs from the last snapshot."""
        before: dict[str, Side] = {**self._files, **self._about.beside}
        after: dict[str, Side] = {**files, **about.beside}
        return [
            (path, before.get(path), after.get(path))
            for path in before.keys() | after.keys()
            if _differs(before.get(path), after.get(path))
        ]

    def _commit(
        self,
        repo: pygit2.Repository,
        message: str,
        files: dict[str, TreeFile],
        about: About,
        changes: list[tuple[str, Side, Side]],
    ) -> None:
        old = files_of(repo[self._head]) if self._head else None
        entries = [(path, files.get(path)) for path, _, _ in changes]
        tree = updated(repo, old, nested(entries)) if entries else (old.id if old else None)
        self._head = write_commit(repo, tree, about, message, self._head)
        self._files, self._about = files, about
        self._point_head(self._head)

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
            self.folder.mkdir(parents=True, exist_ok=True)
            pygit2.init_repository(str(self.folder), bare=True, initial_head="main")
            repo = pygit2.Repository(str(self.folder))
            repo.config["core.compression"] = 1
        repo = pygit2.Repository(str(self.folder))
        with contextlib.suppress(FileNotFoundError):
            self._head = (self.folder / _HEAD).read_text().strip()
        if self._head:
            commit = repo[self._head]
            self._files, self._about = dict(walk(files_of(commit))), about_of(commit)
        self._known = self._load_manifest()
        self._repo = repo
        return repo

    def _load_manifest(self) -> dict[str, tuple[FileMark, TreeFile]]:
        try:
            data = (self.folder / "manifest").read_bytes()
            rows = msgspec.msgpack.decode(data, type=dict[bytes, tuple[FileMark, int, bytes]])
        except (FileNotFoundError, msgspec.DecodeError):
            return {}
        return {
            os.fsdecode(path): (mark, TreeFile(mode, pygit2.Oid(raw=oid)))
            for path, (mark, mode, oid) in rows.items()
        }

    def _save_manifest(self, at_most_every: float = 0.0) -> None:
        """Replace the cache; seldom, for it is large where files are many."""
        if not self._unsaved or time.monotonic() - self._saved < at_most_every:
            return
        rows = {
            os.fsencode(path): (mark, file.mode, file.oid.raw)
            for path, (mark, file) in self._known.items()
        }
        beside = self.folder / "manifest.new"
        beside.write_bytes(msgspec.msgpack.encode(rows))
        beside.replace(self.folder / "manifest")
        self._saved, self._unsaved = time.monotonic(), False

    def _restore(self, commit: str, into: Path) -> list[str]:
        repo = self._open()
        try:
            found = repo[commit]
        except (KeyError, ValueError) as error:
            raise HoustonError(
                f"The shadow repository {self.folder} has no snapshot {commit}.",
                "Nothing was restored.",
            ) from error
        known = self._known if into == self.workspace else {}
        return snapshot_restore.restore(repo, found, into, self.folder / "large", known)


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
            return TreeFile(LINK, repo.create_blob(workspace.read_link(path)))
        with os.fdopen(workspace.open(path, os.O_RDONLY), "rb") as file:
            data = file.read(LARGE + 1)
            after = os.fstat(file.fileno())
    except PermissionError:
        return Beside(mark[1], mark[2], mark[0] & 0o777, "cannot be read")
    except OSError:
        return None
    if (after.st_size, after.st_mtime_ns) != (len(data), mark[2]):
        return Beside(after.st_size, after.st_mtime_ns, mark[0] & 0o777, "still being written")
    return TreeFile(PROGRAM if mark[0] & 0o100 else FILE, repo.create_blob(data))


def _differs(before: Side, after: Side) -> bool:
    if isinstance(before, Beside) and isinstance(after, Beside):
        return (before.size, before.mtime_ns, before.mode) != (
            after.size, after.mtime_ns, after.mode,
        )  # fmt: skip
    return before != after
