"""A typed observation becomes a stored result: rendered, through the door, with its fields."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

from houston_daemon.environments import door
from houston_daemon.environments.observation import Observation, render
from houston_daemon.hosts.limits import Hit
from houston_shared.records import Call, Result


def result(
    call: Call, observation: Observation, limit: int, seconds: float, met: Sequence[Hit] = ()
) -> Result:
    """The result of `call`, its text within `limit` characters.

    met: limits that the rollout's processes met meanwhile, which the head says in words.
    What is cut is the body; the head, which says what happened, always stays.
    """
    text = render(observation)
    fields = observation.fields()
    if met:
        text = replace(text, head="\n".join([text.head, *(f"[{hit.words}]" for hit in met)]))
        fields["limits"] = [hit.kind for hit in met]
    shown = door.through(text.body, limit, text.how, text.head)
    return Result(
        call=call,
        kind=observation.kind,
        success=observation.success,
        text=shown.text,
        fields=fields,
        seconds=seconds,
        forged_tags=shown.forged_tags,
    )


async def result_since(
    begun: float, call: Call, observation: Observation, limit: int, met: Sequence[Hit] = ()
) -> Result:
    """The same, made in a thread. begun: monotonic time at which the call began."""
    seconds = round(time.monotonic() - begun, 6)
    return await asyncio.to_thread(result, call, observation, limit, seconds, met)
