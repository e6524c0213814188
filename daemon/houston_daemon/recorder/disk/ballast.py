"""A few megabytes that are given up when the disk is full, so that the database still opens.

SQLite cannot open a WAL database on a disk without a single free block, not even for reading.
"""

import os
import shutil

from houston_shared.faults import point
from houston_shared.home import Home

BYTES = 4 * 1024 * 1024
KEEP_FREE = 8 * BYTES
"""The ballast is made only where this much stays free."""


def release(home: Home) -> bool:
    """Remove the ballast; whether there was one."""
    try:
        (home.path / "ballast").unlink()
    except FileNotFoundError:
        return False
    return True


def restore(home: Home) -> None:
    """Make the ballast if it is missing or unfinished and there is room; raises OSError."""
    path = home.path / "ballast"
    if path.exists() and path.stat().st_size == BYTES:
        return
    if shutil.disk_usage(home.path).free < KEEP_FREE:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        point("recorder.ballast.made")
        os.posix_fallocate(descriptor, 0, BYTES)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(descriptor)
