"""Think, sleep and finish: the system actions that touch no machine."""

import asyncio
import time

from houston_daemon.environments.observation import Failed, Observation
from houston_daemon.environments.observing import too_early
from houston_daemon.environments.protocol import Standing, Stop
from houston_daemon.environments.workstation.system.observations import Finish, Slept, Thought
from houston_shared.records import Intent


def think(last_action: str) -> Observation:
    """A thought; refused when the action before was one too."""
    if last_action == "think":
        return Failed(error="think may not be used twice in a row; act on the thought.")
    return Thought()


async def sleep(seconds: float, stop: Stop, running: tuple[str, ...] | None = None) -> Slept:
    """Sleep until the time is over or a person's word ends it. running: sessions that are busy."""
    begun = time.monotonic()
    ended_by = await _until_stopped(seconds, stop)
    slept = round(time.monotonic() - begun, 3)
    return Slept(asked=seconds, slept=slept, ended_by=ended_by, running=running)


async def sleep_on(intent: Intent, seconds: float, stop: Stop) -> Slept:
    """Go on with a sleep that a stop of the daemon broke off; its time ran on meanwhile.

    seconds: what was asked for, and the most that is waited: a clock that was set back meanwhile
    must not make it longer. The deadline is the one that was recorded before it began.
    """
    begun, waits = time.monotonic(), min(seconds, intent.deadline - time.time())
    ended_by = await _until_stopped(waits, stop)
    left = max(0.0, waits - (time.monotonic() - begun)) if ended_by != "time" else 0.0
    slept = round(max(0.0, seconds - left), 3)
    return Slept(asked=seconds, slept=slept, ended_by=ended_by, away=True)


def finish(standing: Standing, minimum_steps: int) -> Finish:
    """The end of the task; refused before the step that the task asks for."""
    if why := too_early(standing, minimum_steps):
        error = f"{why} Go on with the task, check and improve the result."
        return Finish(success=False, error=error, finished=False)
    return Finish(finished=True)


async def _until_stopped(seconds: float, stop: Stop) -> str:
    if stop.event.is_set():
        return stop.reason or "wake"
    try:
        await asyncio.wait_for(stop.event.wait(), max(0.0, seconds))
    except TimeoutError:
        return "time"
    return stop.reason or "wake"
