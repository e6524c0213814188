"""The file window: numbered lines of a file of any size, and where the agent is in it.

Nothing here holds more than a window in memory.
"""

import io
import os
import sys
import time
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple, cast

from houston_daemon.environments import workstation_actions
from houston_daemon.environments.observation_boundary import numbered_lines
from houston_daemon.environments.typed_observation import Failed
from houston_daemon.environments.workstation.confined_paths import ConfinedFolder, PathRefused
from houston_daemon.environments.workstation.file_observations import FileInfo, FileWindow
from houston_daemon.environments.workstation.workstation_state import OpenFile, WorkstationState

BLOCK = 1 << 20
LINE_BYTES = 4_000
"""A line is shown up to here."""
COUNT_BYTES = 256 * BLOCK
"""Lines of larger files are not counted, and longer lines not passed over to the next."""


class Line(NamedTuple):
    """One line without its line feed."""

    data: bytes
    more: int
    """Bytes of it that were passed over; from COUNT_BYTES on there may be yet more."""


class Window(NamedTuple):
    """Consecutive lines of a file."""

    first: int
    """Number of the first line, from 1."""
    lines: list[Line]
    full: bool
    """Whether the window ended at its limit of bytes and not of lines."""


def is_binary(file: BinaryIO) -> bool:
    """Whether the first 8 KB hold a NUL byte, as git decides it."""
    file.seek(0)
    return b"\0" in file.read(8192)


def uses_crlf(file: BinaryIO) -> bool:
    """Whether the first line ends with CR LF."""
    file.seek(0)
    return file.readline(BLOCK).endswith(b"\r\n")


def count(file: BinaryIO) -> int | None:
    """Number of lines, a last one without line feed included; None for more than 256 MB."""
    if os.fstat(file.fileno()).st_size > COUNT_BYTES:
        return None
    file.seek(0)
    lines, last = 0, b"\n"
    while block := file.read(BLOCK):
        lines += block.count(b"\n")
        last = block[-1:]
    return lines + (last != b"\n")


def offset_of(file: BinaryIO, number: int) -> int | None:
    """Byte offset where line `number` begins, or would after the last line feed; None if beyond."""
    file.seek(0)
    ahead, at = number - 1, 0
    while ahead:
        block = file.read(BLOCK)
        if not block:
            return None
        feeds = block.count(b"\n")
        if feeds < ahead:
            ahead -= feeds
            at += len(block)
            continue
        place = -1
        for _ in range(ahead):
            place = block.index(b"\n", place + 1)
        return at + place + 1
    return at


def read_window(file: BinaryIO, first: int, lines: int, max_bytes: int) -> Window:
    """Up to `lines` lines from line `first` on, at most about `max_bytes` in all."""
    start = offset_of(file, first)
    read: list[Line] = []
    if start is None:
        return Window(first, read, False)
    file.seek(start)
    taken_bytes = 0
    while len(read) < lines:
        line = _line(file)
        if line is None:
            return Window(first, read, False)
        if read and taken_bytes + len(line.data) > max_bytes:
            return Window(first, read, True)
        read.append(line)
        taken_bytes += len(line.data) + 8
        if line.more >= COUNT_BYTES:
            break
    return Window(first, read, False)


def _line(file: BinaryIO) -> Line | None:
    data = file.readline(LINE_BYTES + 1)
    if not data:
        return None
    if data.endswith(b"\n"):
        return Line(data[:-1].removesuffix(b"\r"), 0)
    if len(data) <= LINE_BYTES:
        return Line(data, 0)
    return Line(data[:LINE_BYTES], 1 + _skip_line(file))


def _skip_line(file: BinaryIO) -> int:
    """Pass over the rest of a line; bytes that were passed, without the line feed."""
    passed = 0
    while passed < COUNT_BYTES and (block := file.read(BLOCK)):
        place = block.find(b"\n")
        if place >= 0:
            file.seek(place + 1 - len(block), os.SEEK_CUR)
            return passed + place
        passed += len(block)
    return passed


DEFAULT_LINES = 100
_OVERLAP = 2
"""Lines that two windows share when scrolling."""
_SECONDS = 20.0
"""Longest reading of one file: a hole can make any size in no time."""


class FileView:
    """Actions that look at one file."""

    def __init__(
        self, confined: ConfinedFolder, state: Callable[[], WorkstationState], limit: int
    ) -> None:
        self._confined = confined
        self._state = state
        self._limit = limit

    def open_file(self, call: workstation_actions.OpenFile) -> FileWindow | Failed:
        """Show a window that begins at a line."""
        return self.show(call.path, call.line_number, call.context_lines)

    def goto(self, call: workstation_actions.FileGotoLine) -> FileWindow | Failed:
        """Show the open file from another line on."""
        return self._show_from(lambda _: call.line_number)

    def scroll_down(self, _: workstation_actions.FileScrollDown) -> FileWindow | Failed:
        """Show what follows the window."""
        return self._show_from(lambda window: window.last - _OVERLAP + 1)

    def scroll_up(self, _: workstation_actions.FileScrollUp) -> FileWindow | Failed:
        """Show what precedes the window."""
        return self._show_from(lambda window: window.first - window.lines + _OVERLAP)

    def info(self, _: workstation_actions.GetFileInfo) -> FileInfo:
        """Say which file is open and how it stands now."""
        window = self._state().open_file
        if window is None:
            return FileInfo(path="")
        with self._confined.file(window.path) as (descriptor, place), reader(descriptor) as file:
            status = os.fstat(descriptor)
            return FileInfo(
                path=place.path,
                first_line=window.first,
                last_line=window.last,
                total_lines=count(file),
                size=status.st_size,
                modified=status.st_mtime,
            )

    def facts(self, path: str) -> str:
        """One line about a file: its size, lines where they are counted, and age."""
        with self._confined.file(path) as (descriptor, place), reader(descriptor) as file:
            status, total = os.fstat(descriptor), count(file)
        clock = time.strftime("%H:%M:%SZ", time.gmtime(status.st_mtime))
        lines = "" if total is None else f", {total} lines"
        return f"{place.path} has {status.st_size} bytes{lines}, last written {clock}."

    def show(
        self, path: str, first: int, lines: int, remembered: int | None = None
    ) -> FileWindow | Failed:
        """The window of `lines` lines from line `first` on; becomes the open file.

        remembered: lines that later scrolling shows, when that differs from `lines`.
        """
        with self._confined.file(path) as (descriptor, place), reader(descriptor) as file:
            status = os.fstat(descriptor)
            state = self._state()
            state.seen.pop(place.path, None)
            state.seen[place.path] = version(status)
            if is_binary(file):
                return FileWindow(path=place.path, size=status.st_size, binary=True)
            window = read_window(file, first, lines, self._limit - 200)
            total = count(file)
        if not window.lines and first > 1:
            length = "fewer lines than that" if total is None else f"{total} lines"
            return Failed(error=f"{place.path} has {length}; there is no line {first}.")
        last = first + len(window.lines) - 1
        kept_lines = remembered or lines
        state.open_file = OpenFile(path=place.path, first=first, last=last, lines=kept_lines)
        return FileWindow(
            path=place.path,
            first_line=first if window.lines else 0,
            last_line=last if window.lines else 0,
            total_lines=total,
            size=status.st_size,
            invalid_utf8=any(not _is_utf8(line.data) for line in window.lines),
            content=_numbered(window),
            note="The window is full; file_scroll_down goes on." if window.full else "",
        )

    def _show_from(self, first_line: Callable[[OpenFile], int]) -> FileWindow | Failed:
        """The open file from another line on."""
        window = self._state().open_file
        if window is None:
            return Failed(error="No file is open; open_file opens one.")
        return self.show(window.path, max(1, first_line(window)), window.lines)


def version(status: os.stat_result) -> str:
    """What changes whenever a file is written."""
    return f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def reader(descriptor: int, seconds: float | None = None) -> BinaryIO:
    """A buffered file over a copy of `descriptor`.

    seconds: how long it may be read, `_SECONDS` where it is not said; later, that raises
    PathRefused.
    """
    seconds = _SECONDS if seconds is None else seconds
    # A BufferedReader is what open() gives for "rb"; only its type says less.
    return cast(BinaryIO, io.BufferedReader(_Bounded(os.dup(descriptor), seconds), 1 << 16))


class _Bounded(io.FileIO):
    """A file that is read until a time is over."""

    def __init__(self, descriptor: int, seconds: float) -> None:
        super().__init__(descriptor)
        self._seconds, self._end = seconds, time.monotonic() + seconds

    def readinto(self, buffer: Any, /) -> int | None:
        if time.monotonic() > self._end:
            raise PathRefused(
                f"Reading the file took longer than {self._seconds:g} s and was given up; "
                "run_command can look into a part of it."
            )
        return super().readinto(buffer)


def _numbered(window: Window) -> str:
    width = len(str(window.first + len(window.lines)))
    return "\n".join(numbered_lines(map(_text, window.lines), window.first, width, sys.maxsize))


def _text(line: Line) -> str:
    text = line.data.decode("utf-8", "replace")
    if not line.more:
        return text
    least = "at least " if line.more >= COUNT_BYTES else ""
    return f"{text} [… {least}{line.more} more bytes in this line]"


def _is_utf8(data: bytes) -> bool:
    # A line that was cut may end inside a character, which is no flaw of the file.
    try:
        data.decode()
    except UnicodeDecodeError as problem:
        return len(data) >= LINE_BYTES and problem.start >= len(data) - 3
    return True
