"""A typed observation becomes a stored result: rendered, through the door, with its fields."""

import errno
import os
import signal
from collections.abc import Sequence
from dataclasses import replace

from houston_daemon.environments import door
from houston_daemon.environments.observation import Observation, render
from houston_daemon.environments.workstation.command.observations import Output
from houston_daemon.hosts.limits import Hit
from houston_shared.records import Call, Result

_TOO_LARGE = 128 + signal.SIGXFSZ
"""What a shell says of a command that the kernel ended for the size of a file."""
_FILE = Hit("file size", "The command was ended: no single file may be that large.")
_REFUSED = Hit("file size", "No single file may be that large.")
_EFBIG = os.strerror(errno.EFBIG)


def result(
    call: Call, observation: Observation, limit: int, seconds: float, met: Sequence[Hit] = ()
) -> Result:
    """The result of `call`, its text within `limit` characters.

    met: limits that the rollout's processes met meanwhile, which the head says in words.
    What is cut is the body; the head, which says what happened, always stays.
    """
    text = render(observation)
    if isinstance(observation, Output) and not (observation.window or observation.running):
        met = (*met, *_file_size(observation))
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


def _file_size(observation: Output) -> list[Hit]:
    """Whether a command failed on the size of a file: ended by the kernel, or told so (Python)."""
    if observation.exit_code == _TOO_LARGE:
        return [_FILE]
    return [_REFUSED] if observation.exit_code and _EFBIG in observation.output else []
