"""Writes what comes through a pipe into a log that it rotates: for programs that cannot.

`python -m houston_daemon.service.log_pump LOG BYTES FILES`, the pipe on standard input. It is a
session of its own beside an engine and, like it, outlives the daemon; it ends when every writer
has closed the pipe. A log that somebody else moved away (logrotate) is begun anew without a
signal. Standard library only, so that it costs little.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from houston_daemon.service.rotation import rotate

CHUNK = 1 << 16
FULL_SECONDS = 10.0
"""How long a full disk may hold the writer up; then its output is dropped, and counted."""


class Pump:
    """One log; `take` writes bytes on, and turns the log over between two lines."""

    def __init__(self, path: Path, limit: int, keep: int) -> None:
        """limit: bytes of one file; keep: older files that are kept."""
        self._path = path
        self._limit = limit
        self._keep = keep
        self._fd = -1
        self._whole = True
        """Whether what was written last ended its line."""
        self._dropped = 0

    def take(self, data: bytes) -> None:
        """Write `data` on; what a full disk refuses for long is dropped, and the log says so."""
        while data:
            try:
                end = self._part(data)
                self._write(data[:end])
            except OSError:
                self._dropped += len(data)
                return
            data = data[end:]
            if self._whole and (data or self._size() >= self._limit):
                self._turn()

    def _part(self, data: bytes) -> int:
        """How much of `data` belongs into this file: whole lines as far as they fit.

        A line that does not fit at all is not torn for it.
        """
        room = self._limit - self._size()
        if len(data) <= room:
            return len(data)
        return data.rfind(b"\n", 0, max(0, room)) + 1 or data.find(b"\n") + 1 or len(data)

    def _size(self) -> int:
        """Bytes in the log; it is opened first where that is needed."""
        if self._fd >= 0 and self._whole and self._moved():
            os.close(self._fd)
            self._fd = -1
        if self._fd < 0:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._fd = os.open(self._path, flags, 0o600)
        return os.fstat(self._fd).st_size

    def _moved(self) -> bool:
        try:
            return self._path.stat().st_ino != os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return True

    def _turn(self) -> None:
        try:
            rotate(self._path, self._keep)
        except OSError:  # the file grows on
            return
        os.close(self._fd)
        self._fd = -1
        with suppress(OSError):  # tried again with the next line
            self._size()

    def _write(self, data: bytes) -> None:
        """Raises OSError when the disk stays full; the engine must go on then."""
        end = time.monotonic() + (0.0 if self._dropped else FULL_SECONDS)
        if self._dropped:
            note = b"[%d bytes could not be written here]\n" % self._dropped
            os.write(self._fd, note if self._whole else b"\n" + note)
            self._dropped = 0
        self._whole = data.endswith(b"\n")
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except OSError:
                if time.monotonic() >= end:
                    raise
                time.sleep(0.5)


def main(arguments: list[str]) -> int:
    """Until every writer has gone."""
    path, limit, keep = arguments
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # it ends when there is nothing left to write
    os.set_blocking(0, True)
    pump = Pump(Path(path), int(limit), int(keep))
    while data := os.read(0, CHUNK):
        pump.take(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
