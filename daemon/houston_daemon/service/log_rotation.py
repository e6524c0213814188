"""Rotated logs (`log`, `log.1`, `log.2`, …), and the pump that writes an engine's.

A process that has the file open keeps writing to `log.1` until it opens `log` again: no line is
lost or torn. A kill between two renames leaves a gap in the numbers, which the next rotation
closes. As a program (`python -m houston_daemon.service.log_rotation LOG BYTES FILES`, with a pipe
on standard input) it writes the input to a log that it rotates, outlives the daemon, and ends when
every writer has closed the pipe. Uses the standard library only, so it costs little; `daemon_log`
handles the daemon's own logs.
"""

import glob
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path


def rotate_log(path: Path, keep: int) -> None:
    """Move `path` aside and keep `keep` older files. Raises OSError; a missing log is none."""
    gap = (n for n in range(1, keep) if not numbered_log(path, n).exists())
    for number in range(next(gap, keep), 1, -1):
        numbered_log(path, number - 1).replace(numbered_log(path, number))
    if path.exists():
        path.replace(numbered_log(path, 1))


def rotated_logs(path: Path) -> list[Path]:
    """The older files that there are, the newest first."""
    numbered_files = []
    for file in path.parent.glob(f"{glob.escape(path.name)}.*"):
        number = file.name.removeprefix(f"{path.name}.")
        if number.isdecimal():
            numbered_files.append((int(number), file))
    return [file for _, file in sorted(numbered_files)]


def numbered_log(path: Path, number: int) -> Path:
    """`log.3` of `log`."""
    return path.with_name(f"{path.name}.{number}")


def is_moved(path: Path, fd: int) -> bool:
    """Whether the file called `path` is no longer the one that is open as `fd`."""
    try:
        return not os.path.samestat(path.stat(), os.fstat(fd))
    except OSError:
        return True


PUMP_CHUNK_BYTES = 1 << 16
FULL_DISK_SECONDS = 10.0
"""How long a full disk may hold the writer up; then its output is dropped, and counted."""


class LogPump:
    """One log; `write` writes bytes on, and turns the log over between two lines."""

    def __init__(self, path: Path, limit: int, keep: int) -> None:
        """limit: bytes of one file; keep: older files that are kept."""
        self._path = path
        self._limit = limit
        self._keep = keep
        self._fd = -1
        self._at_line_start = True
        """Whether what was written last ended its line."""
        self._dropped = 0

    def write(self, data: bytes) -> None:
        """Write `data` on; what a full disk refuses for long is dropped, and the log says so."""
        while data:
            try:
                end = self._fitting_length(data)
                self._write_all(data[:end])
            except OSError:
                self._dropped += len(data)
                return
            data = data[end:]
            if self._at_line_start and (data or self._size() >= self._limit):
                self._rotate()

    def _fitting_length(self, data: bytes) -> int:
        """How much of `data` belongs into this file: whole lines as far as they fit.

        A line that does not fit at all is not torn for it.
        """
        room = self._limit - self._size()
        if len(data) <= room:
            return len(data)
        return data.rfind(b"\n", 0, max(0, room)) + 1 or data.find(b"\n") + 1 or len(data)

    def _size(self) -> int:
        """Bytes in the log; it is opened first where that is needed."""
        if self._fd >= 0 and self._at_line_start and is_moved(self._path, self._fd):
            os.close(self._fd)
            self._fd = -1
        if self._fd < 0:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._fd = os.open(self._path, flags, 0o600)
        return os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        try:
            rotate_log(self._path, self._keep)
        except OSError:  # the file grows on
            return
        os.close(self._fd)
        self._fd = -1
        with suppress(OSError):  # tried again with the next line
            self._size()

    def _write_all(self, data: bytes) -> None:
        """Raises OSError when the disk stays full; the engine must go on then."""
        end = time.monotonic() + (0.0 if self._dropped else FULL_DISK_SECONDS)
        if self._dropped:
            note = b"[%d bytes could not be written here]\n" % self._dropped
            os.write(self._fd, note if self._at_line_start else b"\n" + note)
            self._dropped = 0
        self._at_line_start = data.endswith(b"\n")
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
    pump = LogPump(Path(path), int(limit), int(keep))
    while data := os.read(0, PUMP_CHUNK_BYTES):
        pump.write(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
