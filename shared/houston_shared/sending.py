"""Tell the daemon something that it must hear once: sent again where no answer came.

For messages that carry an id, a key or a revision of their own (or ask for a state), so that the
daemon knows one that it has already. It knows nothing of what they mean.
"""

import time

from houston_shared.control_client import ControlClient
from houston_shared.control_socket import TIMEOUT_SECONDS, no_answer
from houston_shared.errors import (
    AnswerLost,
    DaemonNotRunning,
    ExitCode,
    Frozen,
    HoustonError,
    NoAnswer,
)
from houston_shared.home import Home
from houston_shared.lock import holder
from houston_shared.wire import ControlRequest, Done

RETURN_SECONDS = 1.5
"""How long a daemon that ended may take to be back (a restart) before the sender gives up."""
_LOOK_SECONDS = 0.05


def send(home: Home, message: ControlRequest, maybe: str, look: str) -> Done:
    """Send `message`, and once more where no answer came.

    maybe: one sentence on what may have been done; look: the command that shows whether it was.
    Raises DaemonNotRunning when none runs, HoustonError with the daemon's words when it denies,
    and AnswerLost with `maybe` and `look` when it ended and nobody knows.
    """
    with ControlClient(home, TIMEOUT_SECONDS / 2) as client:  # twice, where it is silent
        try:
            answer = client.ask(message)
        except AnswerLost:
            if not _back(home):
                raise _unknown(home, maybe, look) from None
        except Frozen:
            raise
        except HoustonError as problem:
            if problem.code is not ExitCode.BUSY:
                raise
        else:
            assert isinstance(answer, Done)
            return answer
        try:
            answer = client.ask(message)
        except DaemonNotRunning:
            raise _unknown(home, maybe, look) from None
        except Frozen:
            raise
        except NoAnswer:
            raise no_answer(home, TIMEOUT_SECONDS) from None
        assert isinstance(answer, Done)
        return answer


def _back(home: Home) -> bool:
    """Whether a daemon holds the home again soon."""
    end = time.monotonic() + RETURN_SECONDS
    while holder(home) is None:
        if time.monotonic() > end:
            return False
        time.sleep(_LOOK_SECONDS)
    return True


def _unknown(home: Home, maybe: str, look: str) -> AnswerLost:
    return AnswerLost(f"The daemon on {home.path} ended before it answered.", maybe, look)
