"""Where models and engines lie on this machine, and how two processes fill the place at once.

Knows the user's cache folder and a lock on a file of it. Does not know what is put there.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """Return the cache: `HOUSTON_CACHE` when set, else the user's own cache folder."""
    override = os.environ.get("HOUSTON_CACHE")
    return Path(override) if override else Path(platformdirs.user_cache_path("houston"))


@contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock that belongs to `target`; wait for whoever else makes the same thing.

    The lock file stays: removing it would let a third process lock a file that nobody else sees.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(target.name + ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
