"""Houston's own files and folders on a host: locking them, and keeping them private to its user."""

import fcntl
import os
import stat
import time
from pathlib import Path

from houston_shared.errors import HoustonError

_MAX_RUNTIME_PATH = 60
_LOCK_PAUSE_SECONDS = 0.02


def try_lock(descriptor: int, seconds: float = 0.0) -> bool:
    """Take the flock of an open file, waiting up to `seconds`; whether it is ours now."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOCK_PAUSE_SECONDS)
        else:
            return True


def private_folder(purpose: str) -> Path:
    """A folder of this user with a short name, for sockets: their paths end at 107 bytes.

    Made where it is missing. purpose: for whom, in words. Raises HoustonError when it belongs to
    somebody else.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and len(runtime) < _MAX_RUNTIME_PATH and Path(runtime).is_dir():
        place = Path(runtime) / "houston"
    else:
        place = Path(f"/tmp/houston-{os.getuid()}")
    place.mkdir(mode=0o700, exist_ok=True)
    status = place.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise HoustonError(
            f"The folder {place} for {purpose} is not a private folder of this user.",
            "Nothing was opened.",
            f"Remove {place}, or set XDG_RUNTIME_DIR to a folder of your own.",
        )
    return place
