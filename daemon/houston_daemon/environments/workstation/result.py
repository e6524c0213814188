"""A result of the workstation: a command that failed on the size of a file is told so."""

import errno
import os
import signal
from collections.abc import Sequence

from houston_daemon.environments import result as result_of
from houston_daemon.environments.observation import Observation
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
    """The result of `call`; see `environments.result`."""
    if isinstance(observation, Output) and not (observation.window or observation.running):
        met = (*met, *_file_size(observation))
    return result_of.result(call, observation, limit, seconds, met)


def _file_size(observation: Output) -> list[Hit]:
    """Whether a command failed on the size of a file: ended by the kernel, or told so (Python)."""
    if observation.exit_code == _TOO_LARGE:
        return [_FILE]
    return [_REFUSED] if observation.exit_code and _EFBIG in observation.output else []
