"""Making names durable: a file that was synced is still lost while its folder was not.

POSIX promises nothing about a name before an fsync of the folder it stands in. What makes a name
here is also synced when it is found already made: a process killed between the two left it so.
"""

import os
from pathlib import Path

from houston_shared import synced_file


def sync_above(folder: Path) -> None:
    """Make a folder's own name durable, and the names of those above it on its file system.

    Raises OSError. A folder that this user may not read was not made by this user.
    """
    device = folder.stat().st_dev
    for above in folder.resolve().parents:
        if above.stat().st_dev != device:
            return
        if os.access(above, os.R_OK):
            synced_file.sync(above)
