"""A small file that is replaced whole: after a kill or a power cut it is the old one or the new.

Written beside, synced, then renamed. What lies in the file is not known here.
"""

import os
from pathlib import Path


def write_atomically(file: Path, data: bytes) -> None:
    """Write beside, sync, replace. Its folder must be there. Raises OSError."""
    beside = file.with_suffix(".new")
    with beside.open("wb") as written:
        written.write(data)
        written.flush()
        os.fsync(written.fileno())
    beside.replace(file)


def sync_to_disk(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk before going on. Raises OSError."""
    held = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(held)
    finally:
        os.close(held)
