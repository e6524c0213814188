"""One shared connection to a machine is made at a time on this node.

Many workers that begin at once would each make their own: none is shared before it stands, and an
sshd refuses some where many knock together (MaxStartups). The turn is the kernel's lock on a file,
so that it ends with whoever has it.
"""

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

_LONGEST_SECONDS = 15.0
_PAUSE_SECONDS = 0.05


@contextlib.asynccontextmanager
async def turn(shared: Path) -> AsyncIterator[None]:
    """Have the turn inside the block, or find that a connection is shared at `shared` already.

    After 15 s the block runs all the same: somebody may hang with the turn.
    """
    descriptor = os.open(shared.with_suffix(".turn"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + _LONGEST_SECONDS
        while not (shared.exists() or locked(descriptor)):
            if time.monotonic() > end:
                break
            await asyncio.sleep(_PAUSE_SECONDS)
        yield
    finally:
        os.close(descriptor)


def locked(descriptor: int) -> bool:
    """Whether the turn that the file stands for is ours now, or was before."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
