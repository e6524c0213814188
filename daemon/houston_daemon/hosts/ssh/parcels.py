"""Folders brought from the near machine to the far one: a tar file in pieces, unpacked once.

A parcel is named after what it holds (paths, sizes, times, modes), so the folder of a task travels
once for all rollouts of it, and again when it was changed. Where they lie there, `shelf` knows.
"""

import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

PIECE = 1 << 20
"""Bytes of a tar file that travel in one message."""


ONE_FILE = "content"
"""Name, in its parcel, of a file that was brought alone."""
FILE = "file-"
"""How the name of a parcel of a single file begins."""


def name_of(folder: Path) -> str:
    """The name of the parcel that holds `folder`, or a single file, as it is now. OSError."""
    digest = hashlib.sha256()
    if not folder.is_dir():
        found = folder.stat()
        digest.update(repr((str(folder), found.st_size, found.st_mtime_ns)).encode())
        return FILE + digest.hexdigest()[:32]
    for path in _everything(folder):
        found = path.lstat()
        about = (str(path.relative_to(folder)), found.st_mode, found.st_size, found.st_mtime_ns)
        digest.update(os.fsencode(repr(about)))
    return digest.hexdigest()[:32]


def pack(folder: Path, file: IO[bytes]) -> None:
    """Write everything in `folder` that can be copied into a tar file."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        if not folder.is_dir():
            tar.add(folder.resolve(), arcname=ONE_FILE)
            return
        for path in _everything(folder):
            tar.add(path, arcname=str(path.relative_to(folder)), recursive=False)


def _everything(folder: Path) -> Iterator[Path]:
    """Files, folders and links below `folder`, folders before what they hold, in one order."""
    for entry in sorted(folder.iterdir()):
        mode = entry.lstat().st_mode
        if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            yield entry
        elif stat.S_ISDIR(mode):
            yield entry
            yield from _everything(entry)
