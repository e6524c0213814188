"""A small file that is replaced whole: after a kill or a power cut it is the old one or the new.

Written beside, synced, then renamed. What lies in the file is not known here.
"""

import os
from pathlib import Path


def write_atomically(
    file: Path, data: bytes, *, mode: int | None = None, durable: bool = True
) -> None:
    """Write beside, sync, replace. Its folder must be there. Raises OSError.

    mode: permissions, whatever the umask says. durable: False where a power cut may leave it empty.
    """
    new_file = file.with_suffix(".new")
    fd = os.open(new_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    with os.fdopen(fd, "wb") as written:
        written.write(data)
        written.flush()
        if mode is not None:
            os.fchmod(fd, mode)
        if durable:
            os.fsync(fd)
    new_file.replace(file)


def sync_to_disk(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk before going on. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
