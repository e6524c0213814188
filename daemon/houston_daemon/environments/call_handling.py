"""What environments do alike around a call: failures become observations, waits can be broken.

A typed observation becomes a stored result here, through the observation boundary.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from houston_daemon.environments import observation_boundary
from houston_daemon.environments.protocol import Standing, Stop
from houston_daemon.environments.typed_observation import Failed, Observation, render
from houston_daemon.hosts.resource_limits import LimitHit
from houston_shared.errors import HoustonError
from houston_shared.records import ToolCall, ToolResult
from houston_shared.safe_text import safe_line

ErrorWords = Callable[[Exception], str]
"""What an environment says of an error that it knows; empty for any other."""


async def observed(
    call: ToolCall, do: Callable[[], Awaitable[Observation]], words: ErrorWords, log: logging.Logger
) -> Observation:
    """What `do` found, unless the call was wrong already or something went wrong in it."""
    if call.error:
        return Failed(error=call.error)
    try:
        return await do()
    except Exception as problem:  # noqa: BLE001 an exception in a tool is an observation
        return Failed(error=words(problem) or internal_failure(call, log))


def named_failure(call: ToolCall, problem: HoustonError) -> str:
    """The words for an error that was named where it arose."""
    return f"{call.name} failed: {problem.cause} {problem.effect}".rstrip()


def internal_failure(call: ToolCall, log: logging.Logger) -> str:
    """The words for an error of our own, called where it was caught: the log has the rest."""
    log.exception("%s", call.name)
    return f"{call.name} failed inside Houston; the log of the rollout says why."


def too_early(standing: Standing, least: int) -> str:
    """Why `finish` is refused in this step; empty from step `least` on."""
    if standing.step >= least:
        return ""
    return f"finish is refused before step {least}; this is step {standing.step}."


T = TypeVar("T")
_LOOK = 0.2
_WHY = {"interrupt": "a person interrupted it", "budget": "the time is spent"}


class CallInterrupted(Exception):
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
        raise CallInterrupted(f"It was broken off: {_WHY.get(stop.reason, 'a person spoke')}.")
    finally:
        watch.cancel()
        task.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _stopped(stop: Stop, wake: bool) -> None:
    await stop.event.wait()
    while stop.reason == "wake" and not wake:  # noqa: ASYNC110 - the event stays set after a wake
        await asyncio.sleep(_LOOK)


def result(
    call: ToolCall,
    observation: Observation,
    limit: int,
    seconds: float,
    met: Sequence[LimitHit] = (),
) -> ToolResult:
    """The result of `call`, its text within `limit` characters.

    met: limits that the rollout's processes met meanwhile, which the head says in words.
    What is cut is the body; the head, which says what happened, always stays.
    """
    text = render(observation)
    fields = observation.fields()
    if met:
        text = replace(text, head="\n".join([text.head, *(f"[{hit.words}]" for hit in met)]))
        fields["limits"] = [hit.kind for hit in met]
    shown = observation_boundary.bound_text(text.body, limit, text.how, text.head)
    return ToolResult(
        call=call,
        kind=observation.kind,
        success=observation.success,
        text=shown.text,
        fields=fields,
        seconds=seconds,
        forged_tags=shown.forged_tags,
    )


async def result_since(
    begun: float, call: ToolCall, observation: Observation, limit: int, met: Sequence[LimitHit] = ()
) -> ToolResult:
    """The same, made in a thread. begun: monotonic time at which the call began."""
    seconds = round(time.monotonic() - begun, 6)
    return await asyncio.to_thread(result, call, observation, limit, seconds, met)


MAX_NAMED_FILES = 20
"""Paths that are named; the others are counted."""
_LONGEST = 120


def lost_files_text(paths: Sequence[str]) -> tuple[str, ...]:
    """The line about files that could not be brought back; nothing where there are none."""
    if not paths:
        return ()
    names = ", ".join(str(safe_line(path))[:_LONGEST] for path in paths[:MAX_NAMED_FILES])
    more = f", and {len(paths) - MAX_NAMED_FILES} more" if len(paths) > MAX_NAMED_FILES else ""
    return (f"[these files could not be brought back: {names}{more}]",)
