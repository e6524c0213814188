"""Folders brought from the near machine to the far one: a tar file in pieces, unpacked once.

A parcel is named after what it holds (paths, sizes, times, modes), so the folder of a task travels
once for all rollouts of it, and again when it was changed. At the far end they lie beside the
host's root, `<root>.parcels/<name>/`: the root itself is hidden in every sandbox.
"""

import hashlib
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

PIECE = 1 << 20
"""Bytes of a tar file that travel in one message."""


ONE_FILE = "content"
"""Name, in its parcel, of a file that was brought alone."""
_FILE = "file-"


def name_of(folder: Path) -> str:
    """The name of the parcel that holds `folder`, or a single file, as it is now. OSError."""
    digest = hashlib.sha256()
    if not folder.is_dir():
        found = folder.stat()
        digest.update(repr((str(folder), found.st_size, found.st_mtime_ns)).encode())
        return _FILE + digest.hexdigest()[:32]
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


class Parcels:
    """The far end's shelf."""

    def __init__(self, root: Path) -> None:
        self.shelf = root.with_name(root.name + ".parcels")
        """Holds evaluators and their solutions, so no agent may see it."""

    def open(self) -> None:
        """Make the shelf: only what is there can be hidden from a session. Raises OSError."""
        self.shelf.mkdir(parents=True, exist_ok=True, mode=0o700)

    def place(self, name: str) -> Path:
        """Where a parcel lies, or would."""
        return self.shelf / name

    def content(self, name: str) -> Path:
        """What was brought: the folder itself, or the one file of a parcel of a file."""
        place = self.place(name)
        file = place / ONE_FILE
        return file if name.startswith(_FILE) and file.exists() else place

    def has(self, name: str) -> bool:
        """Whether it is there, whole."""
        return self.place(name).is_dir()

    def add(self, name: str, token: str, data: bytes, last: bool) -> None:
        """Keep one more piece; with the last, unpack. Raises OSError."""
        packed = self.shelf / f"{name}.{token}.tar"
        with packed.open("ab") as file:
            file.write(data)
        if not last:
            return
        beside = self.shelf / f"{name}.{token}"
        try:
            with tarfile.open(packed) as tar:
                tar.extractall(beside, filter="tar")
            self._place(beside, name)
        finally:
            packed.unlink(missing_ok=True)
            shutil.rmtree(beside, ignore_errors=True)

    def _place(self, beside: Path, name: str) -> None:
        try:
            beside.rename(self.place(name))
        except OSError:
            if not self.has(name):  # else another rollout brought it meanwhile
                raise
