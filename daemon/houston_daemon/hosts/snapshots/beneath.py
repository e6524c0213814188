"""Opens files below a folder without ever following a symbolic link out of it.

An agent may swap any folder of its workspace for a link while we work in it, and we run with more
rights than it has. Every step of a path is opened by itself with O_NOFOLLOW (openat(2)), so a link
on the way is an error and never a way out.
"""

import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

from houston_daemon.hosts import emptying

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Beneath:
    """File operations on paths relative to `root`, with `/` between their parts.

    Methods raise OSError as the system calls do; ELOOP or ENOTDIR where a link is in the way.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._parent = ""
        self._parent_fd = self._root

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()
        os.close(self._root)

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        """A descriptor of the file; never waits for a pipe's other end."""
        folder, name = self._enter(path, make=bool(flags & os.O_CREAT))
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(name, flags, mode, dir_fd=folder)

    def stat(self, path: str) -> os.stat_result:
        """lstat."""
        folder, name = self._enter(path)
        return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def read_link(self, path: str) -> bytes:
        """Target of a symbolic link."""
        folder, name = self._enter(path)
        return os.fsencode(os.readlink(name, dir_fd=folder))

    def make_link(self, path: str, target: bytes) -> None:
        """Make a symbolic link, and the folders above it."""
        folder, name = self._enter(path, make=True)
        os.symlink(target, name, dir_fd=folder)

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it; one that is there stays."""
        self._enter(f"{path}/.", make=True)

    def remove(self, path: str) -> None:
        """Remove a file, a link, or a folder with all that is in it; nothing when it is not there.

        A link is removed, not what it points to.
        """
        try:
            folder, name = self._enter(path)
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=folder)
                return
        except (FileNotFoundError, NotADirectoryError):
            return
        inner = os.open(name, _FOLDER, dir_fd=folder)
        try:
            emptying.empty(inner)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)

    def remove_empty(self, path: str) -> None:
        """Remove a folder in which nothing is."""
        folder, name = self._enter(path)
        os.rmdir(name, dir_fd=folder)

    def clear_way(self, path: str) -> None:
        """Remove files and links that lie where folders above `path` must be."""
        parts = path.split("/")[:-1]
        for count in range(1, len(parts) + 1):
            self.remove_unless_folder("/".join(parts[:count]))

    def remove_unless_folder(self, path: str) -> None:
        """Remove what is at `path` when it is anything but a folder."""
        try:
            known = self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        if not stat.S_ISDIR(known.st_mode):
            self.remove(path)

    def _enter(self, path: str, make: bool = False) -> tuple[int, str]:
        """The folder of `path`, kept open for the next call with the same one, and its name."""
        parent, _, name = path.rpartition("/")
        if parent != self._parent or self._parent_fd == -1:
            self._leave()
            self._parent_fd = self._walk(parent, make)
            self._parent = parent
        return self._parent_fd, name

    def _walk(self, parent: str, make: bool) -> int:
        at = self._root
        for part in parent.split("/") if parent else ():
            if part == "..":
                raise PermissionError(f"{parent} leads out of the folder")
            try:
                if make:
                    _make(part, at)
                below = os.open(part, _FOLDER, dir_fd=at)
            finally:
                if at != self._root:
                    os.close(at)
            at = below
        return at

    def _leave(self) -> None:
        if self._parent_fd not in (-1, self._root):
            os.close(self._parent_fd)
        self._parent, self._parent_fd = "", -1


def _make(name: str, folder: int) -> None:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        return
