"""File operations in folders that an agent has filled: they follow no link out, and do not recurse.

Removes a folder of any depth and with any modes, restores the owner's rights, copies open files by
reference or around their holes, and opens paths below a folder with O_NOFOLLOW at every step
(openat(2)), since an agent may replace any folder by a link meanwhile. The callers know what the
files are for.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Open a folder to read it, and never through a link."""


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it; nothing happens when it is not there.

    Raises OSError when something would not go.
    """
    try:
        top = open_owned_folder(os.fspath(folder), None)
    except FileNotFoundError:
        return
    try:
        empty_folder(top)
    finally:
        os.close(top)
    folder.rmdir()


def empty_folder(top: int) -> None:
    """Remove everything in an open folder. Raises OSError when something would not go."""
    waiting = _lift_subfolders(top, top)
    while waiting:
        name = waiting.pop()
        inner = open_owned_folder(name, top)
        try:
            waiting += _lift_subfolders(inner, top)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=top)


def _lift_subfolders(folder: int, top: int) -> list[str]:
    """Remove the files of a folder and move its folders to `top`; their names there."""
    folders: list[str] = []
    for name in os.listdir(folder):
        if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=folder)
            continue
        place = name
        if folder != top:
            # A folder that may not be written to cannot be moved.
            os.close(open_owned_folder(name, folder))
            place = secrets.token_hex(16)
            os.rename(name, place, src_dir_fd=folder, dst_dir_fd=top)
        folders.append(place)
    return folders


def open_owned_folder(name: str, folder: int | None) -> int:
    """A descriptor of a folder, which its owner may read and change from now on. Raises OSError.

    folder: what `name` is in, open; None for one that is named from the top.
    """
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.chmod(f"/proc/self/fd/{place}", 0o700)  # noqa: PTH101
        return os.open(".", FOLDER_FLAGS, dir_fd=place)
    finally:
        os.close(place)


def restore_owner_rights(workspace: Path) -> None:
    """Let the owner read, write and enter the folder itself; nothing where it is gone."""
    with contextlib.suppress(FileNotFoundError):
        mode = stat.S_IMODE(workspace.stat().st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            workspace.chmod(mode | stat.S_IRWXU)


_FICLONE = 0x40049409
_SENDFILE_BYTES = 1 << 26


def copy_sparse(source: int, target: int) -> None:
    """Copy one open file into another, an empty one. Raises OSError when the disk is full."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        _copy_data(source, target)


def _copy_data(source: int, target: int) -> None:
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    at = 0
    while at < size:
        try:
            start = os.lseek(source, at, os.SEEK_DATA)
            end = os.lseek(source, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                return
            start, end = at, size  # a file system that does not know holes
        os.lseek(target, start, os.SEEK_SET)
        while start < end:
            sent = os.sendfile(target, source, start, min(_SENDFILE_BYTES, end - start))
            if not sent:  # it was cut short meanwhile
                return
            start += sent
        at = end


def allocated_bytes(source: int) -> int:
    """Bytes that a copy takes where blocks are not shared: what is allocated, its size at most."""
    status = os.fstat(source)
    return min(status.st_size, status.st_blocks * 512)


class NoFollowFolder:
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
        inner = open_owned_folder(name, folder)
        try:
            empty_folder(inner)
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
            status = self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        if not stat.S_ISDIR(status.st_mode):
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
                    _make_folder(part, at)
                below = os.open(part, FOLDER_FLAGS, dir_fd=at)
            finally:
                if at != self._root:
                    os.close(at)
            at = below
        return at

    def _leave(self) -> None:
        if self._parent_fd not in (-1, self._root):
            os.close(self._parent_fd)
        self._parent, self._parent_fd = "", -1


def _make_folder(name: str, folder: int) -> None:
    try:
        os.mkdir(name, dir_fd=folder)
    except FileExistsError:
        return
