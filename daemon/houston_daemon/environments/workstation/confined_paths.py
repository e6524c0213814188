"""Paths of the agent, opened so that no link leads out of the workspace.

The walk goes one component at a time from a descriptor of the workspace, each opened with
O_NOFOLLOW; links are read and walked by the same rules (after openat2(2), RESOLVE_BENEATH, which
Python 3.11 does not offer). What the agent swaps meanwhile can make an open fail or reach another
file of the workspace, never one outside it. A folder that someone outside the sandbox moves out of
the workspace during the walk is the one case that is not covered.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from houston_daemon.hosts.sandbox.sandbox_profile import WORKSPACE_INSIDE

_MAX_LINKS = 40
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a block device",
    stat.S_IFCHR: "a character device",
    stat.S_IFLNK: "a link",
}
GONE = "The workspace is gone: its folder was removed from outside."
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PathRefused(Exception):
    """A path that the file actions do not reach; its text is for the agent."""


class ConfinedEntry(NamedTuple):
    """A folder's descriptor and a name in it that is no link (when looked at)."""

    folder: int
    name: str
    """`.` for the folder itself."""
    path: str
    """The place relative to the workspace, `.` for the workspace; where a link on the way leads to
    names that are no text, the path as it was asked for."""


class ConfinedFolder:
    """Opens paths in one workspace."""

    def __init__(self, root: Path, inside: str = WORKSPACE_INSIDE) -> None:
        """inside: the workspace's path as the agent sees it."""
        self._root = root
        names = (WORKSPACE_INSIDE, inside, str(root), str(root.resolve()))
        self._prefixes = tuple(dict.fromkeys(names))

    @contextlib.contextmanager
    def place(self, path: str, make_folders: bool = False) -> Iterator[ConfinedEntry]:
        """Walk to `path`; its folder is open inside the block.

        make_folders: create missing folders on the way. Raises PathRefused.
        """
        try:
            walk = _Walk(self._root, self._prefixes, make_folders)
        except (FileNotFoundError, NotADirectoryError):
            raise PathRefused(GONE) from None
        try:
            yield walk.to(path)
        except FileNotFoundError:
            raise PathRefused(f"There is no {path!r} in the workspace.") from None
        except NotADirectoryError:
            raise PathRefused(f"{path!r} leads through something that is no folder.") from None
        except PermissionError:
            raise PathRefused(f"{path!r} may not be accessed.") from None
        except OSError as problem:
            raise PathRefused(f"{path!r}: {problem.strerror or problem}.") from None
        finally:
            walk.close()

    @contextlib.contextmanager
    def file(self, path: str) -> Iterator[tuple[int, ConfinedEntry]]:
        """Open a regular file for reading. Raises PathRefused for anything else."""
        with self.place(path) as place:
            # Before it is opened: a socket cannot be, and opening a device may do something.
            _regular(os.lstat(place.name, dir_fd=place.folder), path)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(place.name, flags, dir_fd=place.folder)
            try:
                _regular(os.fstat(descriptor), path)
                yield descriptor, place
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def folder(self, path: str) -> Iterator[tuple[int, ConfinedEntry]]:
        """Open a folder. Raises PathRefused for anything else."""
        with self.place(path) as place:
            descriptor = os.open(place.name, _FOLDER, dir_fd=place.folder)
            try:
                yield descriptor, place
            finally:
                os.close(descriptor)


def _regular(status: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise PathRefused(f"{path!r} is a folder; list_files shows it.")
    if not stat.S_ISREG(status.st_mode):
        raise PathRefused(f"{path!r} is {kind_of(status.st_mode)}, no regular file.")


def kind_of(mode: int) -> str:
    """What a special file is, with its article."""
    return _KINDS.get(stat.S_IFMT(mode), "a special file")


class _Walk:
    """One walk from the workspace's root; holds a descriptor for each folder on the way."""

    def __init__(self, root: Path, prefixes: tuple[str, ...], make_folders: bool) -> None:
        self._prefixes = prefixes
        self._make_folders = make_folders
        self._folders = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        self._names: list[str] = []

    def close(self) -> None:
        for folder in self._folders:
            os.close(folder)

    def to(self, path: str) -> ConfinedEntry:
        """The place of `path`, every link on the way resolved."""
        if "\0" in path:
            raise PathRefused("A path cannot hold a NUL character.")
        ahead = self._parts(path)
        links = 0
        while ahead:
            name = ahead.pop(0)
            if name == "..":
                self._up(path)
                continue
            target = self._link(name)
            if target is not None:
                links += 1
                if links > _MAX_LINKS:
                    raise PathRefused(f"{path!r} has too many links.")
                ahead = self._parts(target) + ahead
            elif ahead:
                self._enter_folder(name)
            else:
                return ConfinedEntry(
                    self._folders[-1], name, self._text([*self._names, name], path)
                )
        return ConfinedEntry(self._folders[-1], ".", self._text(self._names, path))

    @staticmethod
    def _text(names: list[str], asked_path: str) -> str:
        """The names as a path that can be written down, and that leads there again."""
        path = "/".join(names) or "."
        return asked_path if any("\ud800" <= c <= "\udfff" for c in path) else path

    def _parts(self, path: str) -> list[str]:
        """Components still to walk; an absolute path starts again at the root."""
        if path.startswith("/"):
            path = self._relative_path(path)
            while len(self._folders) > 1:
                os.close(self._folders.pop())
            self._names.clear()
        return [part for part in path.split("/") if part not in ("", ".")]

    def _relative_path(self, path: str) -> str:
        for prefix in self._prefixes:
            if path == prefix or path.startswith(prefix + "/"):
                return path[len(prefix) :]
        raise PathRefused(
            f"{path!r} is outside the workspace; file actions reach {WORKSPACE_INSIDE} only. "
            "run_command can read what else the sandbox shows."
        )

    def _up(self, path: str) -> None:
        if len(self._folders) == 1:
            raise PathRefused(f"{path!r} leads out of the workspace.")
        os.close(self._folders.pop())
        self._names.pop()

    def _enter_folder(self, name: str) -> None:
        folder = self._folders[-1]
        try:
            below = os.open(name, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            if not self._make_folders:
                raise
            os.mkdir(name, dir_fd=folder)
            below = os.open(name, _FOLDER, dir_fd=folder)
        self._folders.append(below)
        self._names.append(name)

    def _link(self, name: str) -> str | None:
        """Where a link leads; None when `name` is no link (or is not there)."""
        try:
            if not stat.S_ISLNK(os.lstat(name, dir_fd=self._folders[-1]).st_mode):
                return None
            return os.readlink(name, dir_fd=self._folders[-1])
        except FileNotFoundError:
            return None
