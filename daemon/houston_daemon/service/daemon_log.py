"""The logs of a daemon: its own, the fork server's and the workers'; written, rotated and followed.

A line has UTC time, level and text. Stray output of the daemon goes into the same file. A worker's
log that has grown too long is moved aside and the worker is told to open it again (SIGHUP); a log
that somebody moved away is replaced by a new one within ten seconds. Reading follows a log across
rotations and misses no line. Engines' logs have separate pumps (`log_rotation`).
"""

import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import BinaryIO

from houston_daemon.service.log_rotation import is_moved, rotate_log, rotated_logs
from houston_shared import command_output
from houston_shared.home import Home
from houston_shared.redacted_logging import RedactingFormatter
from houston_shared.safe_text import safe
from houston_shared.times_and_counts import iso_time

LOGGER = logging.getLogger("houston")


class _LogFormatter(RedactingFormatter):
    """Safe to look at with any program: messages quote what agents, engines and people said."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as a line, control characters as glyphs."""
        return safe(super().format(record))

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return iso_time(int(record.created * 1_000_000))


class LogFile(RotatingFileHandler):
    """`daemon.log` with its rotated predecessors `.1`, `.2`, … (the higher, the older)."""

    def __init__(self, path: Path, megabytes: float, files: int, capture: bool) -> None:
        self._capture = capture
        super().__init__(
            path, maxBytes=int(megabytes * 1_000_000), backupCount=files, encoding="utf-8"
        )
        self.setFormatter(_LogFormatter("%(asctime)s %(levelname)s %(message)s"))

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
            rotate_log(Path(self.baseFilename), self.backupCount)
        self.stream = self._open()

    def reopen(self) -> None:
        """Continue in a new file of the same name, after somebody moved the old one away.

        Raises OSError if it cannot be created; the old one is then still written.
        """
        self.acquire()
        try:
            _ensure_log_folder(Path(self.baseFilename).parent)
            old, self.stream = self.stream, self._open()
            if old:
                old.close()
        finally:
            self.release()

    @property
    def moved(self) -> bool:
        """Whether the file of that name is no longer the one that is written."""
        return self.stream is None or is_moved(Path(self.baseFilename), self.stream.fileno())


def _ensure_log_folder(path: Path) -> None:
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


def worker_log_path(home: Home, rollout: str) -> Path:
    """Where the output of a rollout's workers goes."""
    return home.logs / "workers" / f"{rollout}.log"


def describe_exit(code: int) -> str:
    """How a process ended, in words. code: minus the number of the signal that ended it."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def read_last_line(path: Path, reach: int = 16_384) -> str:
    """The last line of a log that is not empty; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - reach))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


LOG_CHECK_SECONDS = 10.0
FORK_SERVER_LOG = "fork_server"
"""Stands for the fork server among rollouts."""


class DaemonLogs:
    """Used from the supervisor's thread only."""

    def __init__(self, own: LogFile, log_of: Callable[[str], Path], limit: int, keep: int) -> None:
        """log_of: log of a rollout's workers; limit: bytes of one file; keep: older files kept."""
        self._own = own
        self._log_of = log_of
        self._limit = limit
        self._keep = keep
        self._due = 0.0
        self._logging: set[tuple[str, int]] = set()
        """Processes that had a log: only those hear a SIGHUP, others may not listen for it yet."""

    def rotate_long_logs(self, now: float, pids: Mapping[str, int]) -> None:
        """Turn over what has grown too long; pids: living processes by whose log it is."""
        if now < self._due:
            return
        self._due = now + LOG_CHECK_SECONDS
        self._logging &= set(pids.items())
        if self._own.moved and self._reopen_own():
            LOGGER.warning("the log was removed or moved away: this is a new one")
        for name, pid in pids.items():
            log = self._log_of(name)
            try:
                if not log.exists():
                    if (name, pid) in self._logging:
                        _send_hangup(pid)  # it begins a new one
                    continue
                self._logging.add((name, pid))
                if log.stat().st_size > self._limit:
                    rotate_log(log, self._keep)
                    _send_hangup(pid)
            except OSError as problem:  # a full disk: it grows on
                LOGGER.warning("the log %s could not be rotated: %s", log, problem)

    def reopen(self, pids: Mapping[str, int]) -> None:
        """Somebody moved logs away: begin new ones of the same names."""
        if self._reopen_own():
            LOGGER.info("the log was opened again")
        for pid in pids.values():
            _send_hangup(pid)

    def _reopen_own(self) -> bool:
        try:
            self._own.reopen()
        except OSError as problem:  # heard on in the old file, and in systemd's journal
            LOGGER.warning("the log cannot be opened again: %s", problem)
            return False
        return True


def _send_hangup(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGHUP)


FOLLOW_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A position in one file of a rotated log."""

    inode: int
    offset: int


def read_log_tail(path: Path, count: int) -> tuple[list[str], LogPosition]:
    """The last `count` lines, from rotated files too where needed, and the place after them."""
    while True:
        before = _inodes(path)
        try:
            lines, place = _read_tail_once(path, count)
        except FileNotFoundError:
            if _is_gone(path):
                raise
            continue  # it is being rotated this moment
        if before == _inodes(path):
            return (lines[-count:] if count else []), place


def _read_tail_once(path: Path, count: int) -> tuple[list[str], LogPosition]:
    with path.open("rb") as file:
        data = file.read()
        place = LogPosition(os.fstat(file.fileno()).st_ino, len(data))
    lines = _decode_lines(data)
    for older in rotated_logs(path):
        if len(lines) >= count:
            break
        lines = _decode_lines(older.read_bytes()) + lines
    return lines, place


def follow_log(path: Path, place: LogPosition) -> Iterator[str]:
    """Lines written after `place`, until nobody reads standard output (BrokenPipeError). A rotated
    file is read to its end, then the next."""
    file = _open_at_position(path, place)
    unfinished = b""
    while True:
        newer = _open_newer_file(path, file)  # before the read below: that is then all of it
        *lines, unfinished = (unfinished + file.read()).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace")
        if newer:
            file.close()
            file = newer
        else:
            command_output.require_reader()
            time.sleep(FOLLOW_POLL_SECONDS)


def _open_at_position(path: Path, place: LogPosition) -> BinaryIO:
    """The file of `place`, wherever it was rotated to; the oldest from its start if it is gone.

    A rotation between listing and opening would hide the file, so the list must not have changed.
    """
    while True:
        before = _inodes(path)
        oldest: BinaryIO | None = None
        for name in (path, *rotated_logs(path)):
            try:
                file = name.open("rb")
            except FileNotFoundError:
                continue
            if oldest:
                oldest.close()
            if os.fstat(file.fileno()).st_ino == place.inode:
                file.seek(place.offset)
                return file
            oldest = file
        if oldest:
            if before == _inodes(path):
                return oldest
            oldest.close()
        elif _is_gone(path):
            return path.open("rb")  # raises FileNotFoundError


def _is_gone(path: Path) -> bool:
    """Whether there is neither the log nor an older file: a rotation always leaves one of them."""
    return not path.exists() and not rotated_logs(path)


def _open_newer_file(path: Path, file: BinaryIO) -> BinaryIO | None:
    """The file that follows `file`, open; None while `file` is the newest."""
    own = os.fstat(file.fileno()).st_ino
    while True:
        files = [path, *rotated_logs(path)]
        before = [_inode(path) for path in files]
        place = before.index(own) if own in before else len(before)
        if place == 0:
            return None
        try:
            next_file = files[place - 1].open("rb")
        except FileNotFoundError:
            return None  # it is being rotated this moment, or was removed: looked for again later
        if before == _inodes(path) and os.fstat(next_file.fileno()).st_ino == before[place - 1]:
            return next_file
        next_file.close()


def _inodes(path: Path) -> list[int]:
    return [_inode(file) for file in (path, *rotated_logs(path))]


def _inode(file: Path) -> int:
    try:
        return file.stat().st_ino
    except FileNotFoundError:
        return -1


def _decode_lines(data: bytes) -> list[str]:
    return data.decode("utf-8", "replace").splitlines()
