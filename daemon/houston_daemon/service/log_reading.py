"""Read a log that is being written and rotated (`log`, `log.1`, `log.2`, …): no line is missed."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from houston_daemon.service.rotation import rotated

POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Place:
    """A position in one file of a rotated log."""

    inode: int
    offset: int


def tail(path: Path, count: int) -> tuple[list[str], Place]:
    """The last `count` lines, from rotated files too where needed, and the place after them."""
    while True:
        before = _inodes(path)
        try:
            lines, place = _tail(path, count)
        except FileNotFoundError:
            if not path.exists() and not rotated(path):
                raise
            continue  # it is being rotated this moment
        if before == _inodes(path):
            return (lines[-count:] if count else []), place


def _tail(path: Path, count: int) -> tuple[list[str], Place]:
    with path.open("rb") as file:
        data = file.read()
        place = Place(os.fstat(file.fileno()).st_ino, len(data))
    lines = _lines(data)
    for older in rotated(path):
        if len(lines) >= count:
            break
        lines = _lines(older.read_bytes()) + lines
    return lines, place


def follow(path: Path, place: Place) -> Iterator[str]:
    """Lines written after `place`, for ever. A rotated file is read to its end, then the next."""
    file = _open_at(path, place)
    unfinished = b""
    while True:
        newer = _newer(path, file)  # looked up first: what is read below is then all there is
        *whole, unfinished = (unfinished + file.read()).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace")
        if newer:
            file.close()
            file = newer
        else:
            time.sleep(POLL_SECONDS)


def _open_at(path: Path, place: Place) -> BinaryIO:
    """The file of `place`, wherever it was rotated to; the oldest from its start if it is gone.

    A rotation between listing and opening would hide the file, so the list must not have changed.
    """
    while True:
        before = _inodes(path)
        oldest: BinaryIO | None = None
        for name in (path, *rotated(path)):
            try:
                file = name.open("rb")
            except FileNotFoundError:
                continue
            if oldest:
                oldest.close()
            if os.fstat(file.fileno()).st_ino == place.inode:
                file.seek(place.offset)
                return file
            oldest = file
        if oldest and before == _inodes(path):
            return oldest
        if not oldest:
            return path.open("rb")


def _newer(path: Path, file: BinaryIO) -> BinaryIO | None:
    """The file that follows `file`, open; None while `file` is the newest."""
    mine = os.fstat(file.fileno()).st_ino
    while True:
        files = [path, *rotated(path)]
        before = [_inode(one) for one in files]
        place = before.index(mine) if mine in before else len(before)
        if place == 0:
            return None
        try:
            next_file = files[place - 1].open("rb")
        except FileNotFoundError:
            return None  # it is being rotated this moment, or was removed: looked for again later
        if before == _inodes(path) and os.fstat(next_file.fileno()).st_ino == before[place - 1]:
            return next_file
        next_file.close()


def _inodes(path: Path) -> list[int]:
    """Inodes of the log and its rotated files, the newest first."""
    return [_inode(one) for one in (path, *rotated(path))]


def _inode(file: Path) -> int:
    try:
        return file.stat().st_ino
    except FileNotFoundError:
        return -1


def _lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").splitlines()
