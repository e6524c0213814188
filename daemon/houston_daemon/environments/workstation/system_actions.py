"""Think and sleep: what they do and find, and how it reads."""

import asyncio
import time
from typing import ClassVar

from houston_daemon.environments.environment_protocol import Stop
from houston_daemon.environments.typed_observation import Failed, Observation, Text, render
from houston_shared.records import CallIntent


class ThoughtNoted(Observation, frozen=True, kw_only=True):
    """A thought was written down."""

    kind: ClassVar[str] = "think"


class Slept(Observation, frozen=True, kw_only=True):
    """A sleep has ended."""

    kind: ClassVar[str] = "sleep"
    asked: float
    slept: float
    ended_by: str
    """`time`, `wake`, `interrupt`, `budget`."""
    away: bool = False
    """Whether the daemon was away during the sleep."""
    running: tuple[str, ...] | None = None
    """Sessions in which a command ran as it began; None where that is not known."""


@render.register
def _(result: ThoughtNoted) -> Text:
    return Text("Noted.")


@render.register
def _(result: Slept) -> Text:
    reason = {
        "time": "",
        "wake": "; it ended because a person spoke",
        "interrupt": "; it was interrupted by a person",
        "budget": "; it ended because the time budget is spent",
    }[result.ended_by]
    away = " The daemon was away for part of it." if result.away else ""
    return Text(f"Slept {result.slept:.1f} of {result.asked:.0f} s{reason}.{away}")


def think(last_action: str) -> Observation:
    """A thought; refused when the action before was one too."""
    if last_action == "think":
        return Failed(error="think may not be used twice in a row; act on the thought.")
    return ThoughtNoted()


async def sleep(seconds: float, stop: Stop, running: tuple[str, ...] | None = None) -> Slept:
    """Sleep until the time is over or a person's word ends it. running: sessions that are busy."""
    start_time = time.monotonic()
    ended_by = await _until_stopped(seconds, stop)
    slept = round(time.monotonic() - start_time, 3)
    return Slept(asked=seconds, slept=slept, ended_by=ended_by, running=running)


async def sleep_on(intent: CallIntent, seconds: float, stop: Stop) -> Slept:
    """Continue a sleep that a stop of the daemon interrupted; its time counted on meanwhile.

    seconds: the requested time, and the longest wait: a clock that was set back meanwhile must not
    make it longer. The deadline is the one recorded before the sleep.
    """
    start_time, waits = time.monotonic(), min(seconds, intent.deadline - time.time())
    ended_by = await _until_stopped(waits, stop)
    seconds_left = max(0.0, waits - (time.monotonic() - start_time)) if ended_by != "time" else 0.0
    slept = round(max(0.0, seconds - seconds_left), 3)
    return Slept(asked=seconds, slept=slept, ended_by=ended_by, away=True)


async def _until_stopped(seconds: float, stop: Stop) -> str:
    if stop.event.is_set():
        return stop.reason or "wake"
    try:
        await asyncio.wait_for(stop.event.wait(), max(0.0, seconds))
    except TimeoutError:
        return "time"
    return stop.reason or "wake"
