"""One worker of a host at a time: long work that all of them want is done once."""

import contextlib
import fcntl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_LOOK_SECONDS = 0.1


class Cancelled(Exception):
    """Nobody waits for it any more."""


@contextlib.contextmanager
def turn(lock: Path, cancelled: Callable[[], bool]) -> Iterator[None]:
    """Hold the lock, a lock of the kernel's that a killed worker gives back.

    The file stays, so that everybody always locks the same one. Raises OSError, and Cancelled when
    `cancelled()` comes true meanwhile.
    """
    with lock.open("wb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if cancelled():
                    raise Cancelled from None
                time.sleep(_LOOK_SECONDS)
        yield
