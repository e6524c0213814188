"""Readiness: one JSON line on a pipe from the daemon to whoever started it.

Ready means: database open, sockets bound. The starter learns of nothing else here; that the pipe
ends without a line says that the daemon died before it could speak.
"""

import os
import select
import time

import msgspec

from houston_shared.errors import ExitCode, HoustonError
from houston_shared.lock import Owner


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the daemon says once."""

    ready: bool = False
    running: Owner | None = None
    """Somebody else holds the home."""
    before: str = ""
    """What is known of the daemon before, where it died."""
    cause: str = ""
    effect: str = ""
    next: str = ""
    code: int = 1

    def problem(self) -> HoustonError:
        """The error that kept the daemon from becoming ready."""
        return HoustonError(self.cause, self.effect, self.next, ExitCode(self.code))


def failure(problem: HoustonError) -> Report:
    """The report of a daemon that cannot start."""
    return Report(
        cause=problem.cause, effect=problem.effect, next=problem.next, code=int(problem.code)
    )


def say(fd: int | None, report: Report) -> None:
    """Write the report and close the pipe; a starter that has gone is no problem of ours."""
    if fd is None:
        return
    try:
        os.write(fd, msgspec.json.encode(report) + b"\n")
    except BrokenPipeError:
        pass
    finally:
        os.close(fd)


def hear(fd: int, seconds: float) -> Report | None:
    """Wait for the report; None when the daemon died without one. Raises TimeoutError."""
    received = b""
    end = time.monotonic() + seconds
    while not received.endswith(b"\n"):
        left = end - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            raise TimeoutError
        chunk = os.read(fd, 65_536)
        if not chunk:
            return None
        received += chunk
    return msgspec.json.decode(received, type=Report)
