"""One judge at a time over a rollout: two would ask and pay twice, and what stood in the end would
be some steps by the one and some by the other.

The kernel takes the turn back with the process, however that ends.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home


@contextlib.contextmanager
def taken(home: Home, rollout: str) -> Iterator[None]:
    """Around the judging of a rollout (a whole id). Raises HoustonError where another is at it."""
    held = _open(home.run / f"judge-{rollout}.lock")
    if held is None:
        yield
        return
    try:
        _lock(held, rollout)
        yield
    finally:
        os.close(held)


def _lock(held: int, rollout: str) -> None:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise HoustonError(
            f"{rollout} is being judged already, by another `houston judge`.",
            "It was left to that.",
            f"houston judge {rollout}, when that has ended: what it was told is not asked again",
            ExitCode.BUSY,
        ) from None


def _open(file: Path) -> int | None:
    """The lock's file; None for a member of the group, who may write none, where there is none."""
    try:
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:
        pass
    try:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
