"""Waiting that a person's interrupt, or the end of the time budget, breaks off."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from houston_daemon.environments.protocol import Stop

T = TypeVar("T")
_LOOK = 0.2
_WHY = {"interrupt": "a person interrupted it", "budget": "the time is spent"}


class BrokenOff(Exception):
    """The work was cancelled; the text is for the agent."""


async def unless_stopped(work: Coroutine[Any, Any, T], stop: Stop, *, wake: bool = False) -> T:
    """The result of `work`, which is cancelled when `stop` says interrupt or budget.

    A wake lets it go on, unless it is work that may be waited for long (`wake`). Raises BrokenOff.
    """
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_stopped(stop, wake))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise BrokenOff(f"It was broken off: {_WHY.get(stop.reason, 'a person spoke')}.")
    finally:
        watch.cancel()
        task.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _stopped(stop: Stop, wake: bool) -> None:
    await stop.event.wait()
    while stop.reason == "wake" and not wake:  # noqa: ASYNC110 - the event stays set after a wake
        await asyncio.sleep(_LOOK)
