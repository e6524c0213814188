"""Folders into which copies of a home are written: by one at a time, and never within the home.

A copy is made under a name that ends in `.new`, and renamed when it is whole. Who was killed over
one leaves all its texts behind under that name: the next that writes there removes it. The folder
itself is locked (flock), which ends with its holder. Of what a copy holds, this knows nothing.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home


@contextlib.contextmanager
def alone(home: Home, folder: Path, own: Path, unfinished: str) -> Iterator[None]:
    """Be the only one that writes copies into `folder`, and remove what earlier ones left half.

    own: the home's own folder for them, the only one within it that is taken; unfinished: pattern
    of the names of half copies. Raises HoustonError. Where a folder cannot be locked (network
    file systems), nothing is removed.
    """
    place, inside = folder.resolve(), home.path.resolve()
    if place != own.resolve() and place.is_relative_to(inside):
        raise HoustonError(
            f"{folder} lies in the home {home.path}, which is for its own files.",
            "Nothing was copied.",
            f"Name a folder outside of it; without --to it is {own}.",
            ExitCode.USAGE,
        )
    with contextlib.suppress(OSError):  # said by who writes there
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = _locked(folder)
    try:
        if fd is not None:
            for path in folder.glob(unfinished):
                _remove(path)
        yield
    finally:
        if fd is not None:
            os.close(fd)


def left(folder: Path, unfinished: str) -> list[Path]:
    """Half copies in `folder` that nobody is making any more."""
    found = sorted(folder.glob(unfinished))
    try:
        fd = _locked(folder) if found else None
    except HoustonError:
        return []
    if fd is not None:
        os.close(fd)
    return found


def _locked(folder: Path) -> int | None:
    """The folder, locked; None where it cannot be. Raises HoustonError while another has it."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise HoustonError(
            f"Another copy is being written into {folder}.",
            "Nothing was copied.",
            "Try again when it is done.",
            ExitCode.BUSY,
        ) from None
    except OSError:
        os.close(fd)
        return None
    return fd


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
