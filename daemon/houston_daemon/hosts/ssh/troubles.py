"""Errors that cross the connection and stay what they are: the near end raises what the far met.

What has no kind here arrives as a HoustonError.
"""

import errno
from collections.abc import Callable

from houston_daemon.hosts.errors import NeedsPerson, TerminalBusy, TerminalDead, TerminalMissing
from houston_daemon.hosts.ssh.messages import Trouble
from houston_shared.errors import ExitCode, HoustonError

Maker = Callable[..., Exception]


def _person(cause: str, effect: str, next: str, code: int) -> NeedsPerson:
    return NeedsPerson(cause, effect, next, ExitCode(code))


def _houston(cause: str, effect: str, next: str, code: int) -> HoustonError:
    return HoustonError(cause, effect, next, ExitCode(code))


_MAKERS: dict[str, Maker] = {
    "TerminalMissing": TerminalMissing,
    "TerminalBusy": TerminalBusy,
    "TerminalDead": TerminalDead,
    "NeedsPerson": _person,
    "HoustonError": _houston,
    "OSError": OSError,
}


def told(problem: Exception) -> Trouble:
    """An error as it is sent."""
    match problem:
        case TerminalMissing() | TerminalBusy() | TerminalDead():
            return Trouble(kind=type(problem).__name__, words=problem.words)
        case HoustonError():
            kind = "NeedsPerson" if isinstance(problem, NeedsPerson) else "HoustonError"
            words = (problem.cause, problem.effect, problem.next, int(problem.code))
            return Trouble(kind=kind, words=words)
        case OSError():
            number = problem.errno or errno.EIO
            return Trouble(kind="OSError", words=(number, problem.strerror or str(problem)))
    what = f"{type(problem).__name__}: {problem}"[:500]
    return Trouble(kind="HoustonError", words=(f"The far side failed: {what}.", "", "", 1))


def raised(trouble: Trouble) -> Exception:
    """The error that was told."""
    return _MAKERS[trouble.kind](*trouble.words)
