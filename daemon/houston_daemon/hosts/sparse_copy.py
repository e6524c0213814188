"""Copies an open file at the cost of what it holds: by reference, or around its holes.

Blocks are shared where the file system can (FICLONE, ioctl_ficlone(2)); elsewhere only the data
between holes is read and written (SEEK_DATA, SEEK_HOLE, lseek(2)).
"""

import errno
import fcntl
import os

_FICLONE = 0x40049409
_PIECE = 1 << 26


def copy(source: int, target: int) -> None:
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
            sent = os.sendfile(target, source, start, min(_PIECE, end - start))
            if not sent:  # it was cut short meanwhile
                return
            start += sent
        at = end


def data_bytes(source: int) -> int:
    """Bytes that a copy takes where blocks are not shared: what is allocated, its size at most."""
    known = os.fstat(source)
    return min(known.st_size, known.st_blocks * 512)
