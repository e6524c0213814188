"""One trainer at a time in the folder of a run: two would write over each other's checkpoints.

The kernel takes the turn back with the process, however that ends. It imports no torch.
"""

import fcntl
import os
import time
from pathlib import Path

from houston_shared.errors import ExitCode, HoustonError

NAME = "trainer.lock"
PATIENCE_SECONDS = 2.0
"""A killed trainer may be a moment from being gone, and who only looks holds it as briefly."""


def take(folder: Path, patience: float = PATIENCE_SECONDS) -> int:
    """Have the folder for as long as the descriptor that this returns is open.

    Raises HoustonError where somebody else has it.
    """
    end = time.monotonic() + patience
    held = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    while True:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return held
        except BlockingIOError:
            if time.monotonic() >= end:
                os.close(held)
                raise HoustonError(
                    f"A trainer is at work in {folder} already.",
                    "Nothing was changed in it.",
                    f"houston train show {folder.name}",
                    ExitCode.BUSY,
                ) from None
        time.sleep(0.05)


def check(folder: Path) -> None:
    """Raise HoustonError where a trainer is at work in the folder."""
    if (folder / NAME).exists():
        os.close(take(folder, 0.0))
