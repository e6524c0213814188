"""A folder of this user with a short name, for sockets: a Unix socket's path ends at 107 bytes.

Made where it is missing; refused where it belongs to somebody else.
"""

import os
import stat
from pathlib import Path

from houston_shared.errors import HoustonError

_MAX_RUNTIME_PATH = 60


def private_folder(purpose: str) -> Path:
    """The folder, made where it is missing.

    purpose: for whom, in words. Raises HoustonError when it belongs to somebody else.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and len(runtime) < _MAX_RUNTIME_PATH and Path(runtime).is_dir():
        place = Path(runtime) / "houston"
    else:
        place = Path(f"/tmp/houston-{os.getuid()}")
    place.mkdir(mode=0o700, exist_ok=True)
    found = place.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise HoustonError(
            f"The folder {place} for {purpose} is not a private folder of this user.",
            "Nothing was opened.",
            f"Remove {place}, or set XDG_RUNTIME_DIR to a folder of your own.",
        )
    return place
