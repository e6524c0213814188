"""A typed observation becomes a stored result: rendered, through the door, with its fields."""

from houston_daemon.environments import door
from houston_daemon.environments.workstation.observations import Observation
from houston_daemon.environments.workstation.render import render
from houston_shared.records import Call, Result


def result(call: Call, observation: Observation, limit: int, seconds: float) -> Result:
    """The result of `call`, its text within `limit` characters.

    What is cut is the body; the head, which says what happened, always stays.
    """
    text = render(observation)
    shown = door.through(text.body, limit, text.how, text.head)
    return Result(
        call=call,
        kind=observation.kind,
        success=observation.success,
        text=shown.text,
        fields=observation.fields(),
        seconds=seconds,
        forged_tags=shown.forged_tags,
    )
