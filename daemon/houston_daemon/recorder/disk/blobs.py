"""Writing bodies over 64 KB: compressed, synced, and only then named by a transaction.

A blob's name is the SHA-256 of its file, so that every bit of the file is covered; the body's own
hash stands in its event. A blob that no event names (a crash in between) is harmless and stays.
"""

import hashlib
import os
import threading
from pathlib import Path

import zstandard

from houston_daemon.recorder.steps.journal import INLINE_LIMIT, Body
from houston_shared import synced_file
from houston_shared.faults import point
from houston_shared.home import Home
from houston_shared.records import Record
from houston_shared.store import blobs, chain
from houston_shared.wire import encode

LEVEL = 3
"""zstd level: 300 MB/s and more, a quarter of the size for logs."""


def stored(home: Home, record: Record) -> Body:
    """A record as a body; a large one is on disk when this returns. Raises OSError."""
    data = encode(record)
    name = write(home, data) if len(data) > INLINE_LIMIT else None
    return Body(record, data, chain.body_hash(data), name)


def write(home: Home, data: bytes) -> str:
    """Write one blob durably and return its name (hex); raises OSError. Any thread may call it."""
    packed = zstandard.ZstdCompressor(level=LEVEL).compress(data)
    name = hashlib.sha256(packed).hexdigest()
    path = blobs.place(home, name)
    if not (path.exists() and path.read_bytes() == packed):
        _replace(home, path, packed)
    # Also where both were found: a process killed before it synced them left them so.
    synced_file.sync(path.parent)
    synced_file.sync(home.blobs)
    return name


def _replace(home: Home, path: Path, packed: bytes) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    beside = path.with_name(f"{path.stem}.{threading.get_ident()}.new")
    try:
        point("recorder.blob.before")
        with beside.open("wb") as file:
            file.write(packed)
            file.flush()
            point("recorder.blob.written")
            os.fsync(file.fileno())
        _share(home, path.parent, beside)
        point("recorder.blob.synced")
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    point("recorder.blob.named")


def _share(home: Home, folder: os.PathLike[str], file: os.PathLike[str]) -> None:
    """Give folder and file the mode of `blobs/`: the annotators' group may read, or nobody."""
    mode = home.blobs.stat().st_mode & 0o7777
    os.chmod(folder, mode)  # noqa: PTH101
    os.chmod(file, 0o640 if mode & 0o050 else 0o600)  # noqa: PTH101
