"""Waiting that a person's interrupt, or the end of the time budget, breaks off."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from houston_daemon.environments.protocol import Stop

T = TypeVar("T")
_LOOK = 0.2


class BrokenOff(Exception):
    """The work was cancelled; the text is for the agent."""


async def unless_stopped(work: Coroutine[Any, Any, T], stop: Stop) -> T:
    """The result of `work`, which is cancelled when `stop` says interrupt or budget.

    A wake lets it go on: it is work, no sleep. Raises BrokenOff.
    """
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_stopped(stop))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        why = "a person interrupted it" if stop.reason == "interrupt" else "the time is spent"
        raise BrokenOff(f"It was broken off: {why}.")
    finally:
        watch.cancel()
        task.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _stopped(stop: Stop) -> None:
    await stop.event.wait()
    while stop.reason == "wake":  # noqa: ASYNC110 - the event stays set after a wake
        await asyncio.sleep(_LOOK)
