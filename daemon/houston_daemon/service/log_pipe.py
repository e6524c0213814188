"""The pipe between an engine's output and its log pump: named, so that both outlive the daemon.

The engine holds the pipe open in both directions, so that it never meets a broken one. If the pump
is killed, what the engine writes waits in the pipe for the next. Which process is the pump says a
lock on the pipe's open file, inherited by the pump: never two, and none to be remembered.
"""

import fcntl
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PUMP = "houston_daemon.service.log_pump"
PIPE_BYTES = 1 << 20
"""Output that waits while there is no pump; the kernel's usual 64 KB is a moment of loading."""


class LogPipe:
    """The pipe of one engine."""

    def __init__(self, pipe: Path, log: Path, limit: int, keep: int) -> None:
        """limit: bytes of one log file; keep: older files that are kept."""
        self._pipe = pipe
        self._pump = [sys.executable, "-m", PUMP, str(log), str(limit), str(keep)]

    def open(self) -> int:
        """A descriptor for an engine's output, to be closed here once it runs; the pump runs too.

        Raises OSError.
        """
        self._pipe.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.mkfifo(self._pipe, 0o600)
        end = os.open(self._pipe, os.O_RDWR | os.O_CLOEXEC)
        try:
            with suppress(OSError):  # more than this user may have; then it stays as it is
                fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            self.keep_going()
        except OSError:
            os.close(end)
            raise
        return end

    def keep_going(self) -> None:
        """Start the pump unless it runs, or there is nothing to pump. Raises OSError."""
        fd = self._free()
        if fd is None:
            return
        try:
            subprocess.Popen(
                self._pump,
                stdin=fd,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        finally:
            os.close(fd)  # the pump has the same open file, and with it the lock

    def settle(self, seconds: float) -> None:
        """Wait until the pump has written all and ended, at most `seconds`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if (fd := self._free()) is not None:
                os.close(fd)
                return
            if not self._pipe.exists():
                return
            time.sleep(0.02)

    def _free(self) -> int | None:
        """The reading end with its lock; None where a pump has it, or there is no pipe."""
        try:
            fd = os.open(self._pipe, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd
