"""A typed observation becomes a stored result: rendered, through the door, with its fields."""

from houston_daemon.environments import door
from houston_daemon.environments.workstation.observations import Observation
from houston_daemon.environments.workstation.render import render
from houston_shared import real_user
from houston_shared.records import Call, Result


def result(call: Call, observation: Observation, limit: int, seconds: float) -> Result:
    """The result of `call`, its text within `limit` characters.

    What is cut is the body; the head, which says what happened, always stays.
    """
    text = render(observation)
    head = door.through(text.head, 2 * limit + 4_000)
    body = door.through(text.body, max(200, limit - len(head.text)), text.how)
    # Once more: the end of the head and the start of the body could be a tag together.
    joined = real_user.disarm("\n".join(part for part in (head.text, body.text) if part))
    return Result(
        call=call,
        kind=observation.kind,
        success=observation.success,
        text=joined.text,
        fields=observation.fields(),
        seconds=seconds,
        forged_tags=head.forged_tags + body.forged_tags + joined.found,
    )
