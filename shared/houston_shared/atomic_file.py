"""Replaces a file atomically: after a kill or a power cut it is the old one or the new one.

Content is written next to the file, synced, then renamed: `write_atomically` for content at hand,
`open_atomically` for content in pieces, `fill_folder_atomically` for a new folder; `read_json_file`
reads one. The content is not known here.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

import msgspec

T = TypeVar("T")

Synced = Literal["nothing", "content", "name"]
"""What is on the disk when a file has been replaced. nothing: a power cut may leave it empty.
content: the old file or the new, whichever the folder names. name: the new one."""


def read_json_file(file: Path, kind: type[T], absent: type[OSError] = OSError) -> T | None:
    """What `file` holds; None where there is none, or a power cut left half of it.

    absent: the error that means there is no file; other errors of the system are raised.
    """
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (absent, msgspec.DecodeError):
        return None


def write_atomically(
    file: Path,
    data: bytes,
    *,
    mode: int | None = None,
    durable: bool = True,
    temporary_path: Path | None = None,
) -> None:
    """Write beside, sync the content, replace. Its folder must be there. Raises OSError.

    mode: permissions, whatever the umask says. durable: False where a power cut may leave it empty.
    temporary_path: where it is written; see `temporary_sibling`.
    """
    synced: Synced = "content" if durable else "nothing"
    with open_atomically(file, temporary_path=temporary_path, mode=mode, synced=synced) as handle:
        handle.write(data)


@contextlib.contextmanager
def open_atomically(
    target: Path,
    *,
    temporary_path: Path | None = None,
    mode: int | None = None,
    synced: Synced = "name",
    before_rename: Callable[[Path], None] = lambda _: None,
    after_rename: Callable[[], None] = lambda: None,
) -> Iterator[BinaryIO]:
    """A file to write, beside its place: synced and renamed at the end, gone after an exception.

    temporary_path: where it is written, by default `<name>.new`. mode: as above. before_rename:
    called with it once its content is on disk, after_rename once it has its name and before that is
    synced. Raises OSError.
    """
    temporary_path = temporary_path or target.with_name(target.name + ".new")
    try:
        with temporary_path.open("wb") as handle:
            if mode is not None:
                os.fchmod(handle.fileno(), mode)
            yield handle
            handle.flush()
            if synced != "nothing":
                os.fsync(handle.fileno())
        before_rename(temporary_path)
        temporary_path.replace(target)
    except BaseException:
        temporary_path.unlink(missing_ok=True)
        raise
    after_rename()
    if synced == "name":
        sync_to_disk(target.parent)


@contextlib.contextmanager
def fill_folder_atomically(folder: Path) -> Iterator[Path]:
    """An empty folder to fill: at the end its content moves to `folder`; after an exception it is
    gone.

    An existing folder, also one that `folder` links to, must be empty; it stays, with its mode, and
    is filled from inside, because the folder above may be on another file system or not writable.
    Nothing is synced. Raises OSError, also where something else has appeared there meanwhile.
    """
    target = folder.resolve()
    within = target.is_dir()
    filled = temporary_sibling(target / target.name if within else target)
    filled.mkdir(parents=True)
    try:
        yield filled
        if within:
            _move_up(filled)
        else:
            filled.rename(target)
    except BaseException:
        shutil.rmtree(filled, ignore_errors=True)
        raise


def _move_up(filled: Path) -> None:
    """Move a folder's content into the one that it is in, where only such as it may be."""
    target = filled.parent
    if not all(each.name.startswith(f".{target.name}.") for each in target.iterdir()):
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(target))
    for each in filled.iterdir():
        each.rename(target / each.name)
    filled.rmdir()


def temporary_sibling(file: Path) -> Path:
    """A hidden name beside a file that several processes may replace at the same time."""
    mark = os.urandom(4).hex()  # `secrets` takes OpenSSL along, which no reading command pays
    return file.with_name(f".{file.name}.{os.getpid()}.{mark}")


def sync_to_disk(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk before going on. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
