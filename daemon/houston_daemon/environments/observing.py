"""What environments do alike around a call: whatever goes wrong in it is an observation."""

import logging
from collections.abc import Awaitable, Callable

from houston_daemon.environments.observation import Failed, Observation
from houston_daemon.environments.protocol import Standing
from houston_shared.errors import HoustonError
from houston_shared.records import Call

Words = Callable[[Exception], str]
"""What an environment says of an error that it knows; empty for any other."""


async def observed(
    call: Call, do: Callable[[], Awaitable[Observation]], words: Words, log: logging.Logger
) -> Observation:
    """What `do` found, unless the call was wrong already or something went wrong in it."""
    if call.error:
        return Failed(error=call.error)
    try:
        return await do()
    except Exception as problem:  # noqa: BLE001 an exception in a tool is an observation
        return Failed(error=words(problem) or inside(call, log))


def failed(call: Call, problem: HoustonError) -> str:
    """The words for an error that was named where it arose."""
    return f"{call.name} failed: {problem.cause} {problem.effect}".rstrip()


def inside(call: Call, log: logging.Logger) -> str:
    """The words for an error of our own, called where it was caught: the log has the rest."""
    log.exception("%s", call.name)
    return f"{call.name} failed inside Houston; the log of the rollout says why."


def too_early(standing: Standing, least: int) -> str:
    """Why `finish` is refused in this step; empty from step `least` on."""
    if standing.step >= least:
        return ""
    return f"finish is refused before step {least}; this is step {standing.step}."
