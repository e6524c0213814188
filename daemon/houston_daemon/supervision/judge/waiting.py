"""Says how far a rollout's windows are: as each is done, and while an answer takes long.

A model on a CPU writes for minutes on one window; without a word that looks like a hang.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from houston_daemon.supervision.judge.asking import Decided
from houston_shared.plural import many

EVERY = 15.0
"""Seconds without a word after which one is said."""


@contextlib.asynccontextmanager
async def told(
    rollout: str, of: int, note: Callable[[str], None], every: float = EVERY
) -> AsyncIterator[Callable[[Decided], None]]:
    """Around asking about `of` windows; what it gives is to be told of each that is done.

    note: takes a line for people. every: seconds.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    done = 0

    def one(_: Decided) -> None:
        nonlocal done
        done += 1
        if of > 1:
            note(f"{rollout}: {done} of {many(of, 'window')}")

    async def repeat() -> None:
        while True:
            await asyncio.sleep(every)
            seconds = loop.time() - begun
            note(f"{rollout}: asking, {done} of {many(of, 'window')} after {seconds:.0f} s")

    beating = asyncio.create_task(repeat())
    try:
        yield one
    finally:
        beating.cancel()
