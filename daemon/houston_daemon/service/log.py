"""The daemon's log: lines of UTC time, level and text, rotated by size, none lost.

The running daemon is the only writer. Its stray output (a crash of the interpreter, a library that
prints) is pointed at the same file, so that the log holds everything there is to know.
"""

import contextlib
import logging
import os
import sys
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from houston_daemon.service.rotation import rotate
from houston_shared.clean_log import CleanFormatter
from houston_shared.clock import iso
from houston_shared.safe_text import safe

LOGGER = logging.getLogger("houston")


class _Line(CleanFormatter):
    """Safe to look at with any program: messages quote what agents, engines and people said."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as a line, control characters as glyphs."""
        return safe(super().format(record))

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return iso(int(record.created * 1_000_000))


class LogFile(RotatingFileHandler):
    """`daemon.log` with its rotated predecessors `.1`, `.2`, … (the higher, the older)."""

    def __init__(self, path: Path, megabytes: float, files: int, capture: bool) -> None:
        self._capture = capture
        super().__init__(
            path, maxBytes=int(megabytes * 1_000_000), backupCount=files, encoding="utf-8"
        )
        self.setFormatter(_Line("%(asctime)s %(levelname)s %(message)s"))

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        group = Path(self.baseFilename).parent.stat().st_mode & 0o050
        os.fchmod(stream.fileno(), 0o640 if group else 0o600)
        if self._capture:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        return stream

    def doRollover(self) -> None:
        """Turn over; where that is not possible (a full disk) the file grows on."""
        if self.stream:
            self.stream.close()
            self.stream = None  # opened by the next line, if not here
        with contextlib.suppress(OSError):
            rotate(Path(self.baseFilename), self.backupCount)
        self.stream = self._open()

    def reopen(self) -> None:
        """Go on in a new file of the same name, after somebody moved the old one away.

        Raises OSError where there can be none; the old one is written on then.
        """
        self.acquire()
        try:
            _folder(Path(self.baseFilename).parent)
            old, self.stream = self.stream, self._open()
            if old:
                old.close()
        finally:
            self.release()

    @property
    def moved(self) -> bool:
        """Whether the file of that name is no longer the one that is written."""
        if self.stream is None:
            return True
        try:
            there = Path(self.baseFilename).stat()
        except OSError:
            return True
        here = os.fstat(self.stream.fileno())
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)


def _folder(path: Path) -> None:
    """The logs' folder, made again if it is gone, as open as the home that it is in."""
    if not path.is_dir():
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(path.parent.stat().st_mode & 0o2750)


def open_log(path: Path, megabytes: float, files: int, foreground: bool) -> LogFile:
    """Begin logging to `path`; in the foreground also to stderr. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = LogFile(path, megabytes, files, capture=not foreground)
    LOGGER.setLevel(logging.INFO)
    LOGGER.propagate = False
    LOGGER.addHandler(file)
    if foreground:
        screen = logging.StreamHandler(sys.stderr)
        screen.setFormatter(file.formatter)
        LOGGER.addHandler(screen)
    return file


def last_line(path: Path, reach: int = 16_384) -> str:
    """The last line of a log that is not empty; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - reach))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
