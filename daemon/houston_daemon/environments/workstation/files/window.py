"""The file window: numbered lines of one file of the workspace, and where the agent is in it.

Runs in a thread; touches the workspace through `Confined` only; holds no more than a window.
"""

import io
import os
import time
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from houston_daemon.environments.observation import Failed
from houston_daemon.environments.workstation.files import actions as act
from houston_daemon.environments.workstation.files import lines as file_lines
from houston_daemon.environments.workstation.files.confine import Confined, PathRefused
from houston_daemon.environments.workstation.files.observations import FileWindow, Info
from houston_daemon.environments.workstation.state import OpenFile, State

DEFAULT_LINES = 100
_OVERLAP = 2
"""Lines that two windows share when scrolling."""
_SECONDS = 20.0
"""Longest reading of one file: a hole can make any size in no time."""


class FileView:
    """Actions that look at one file."""

    def __init__(self, confined: Confined, state: Callable[[], State], limit: int) -> None:
        self._confined = confined
        self._state = state
        self._limit = limit

    def open_file(self, call: act.OpenFile) -> FileWindow | Failed:
        """Show a window that begins at a line."""
        return self.show(call.path, call.line_number, call.context_lines)

    def goto(self, call: act.FileGotoLine) -> FileWindow | Failed:
        """Show the open file from another line on."""
        window = self._state().open_file
        return self.show(window.path, call.line_number, window.lines) if window else _none_open()

    def scroll_down(self, _: act.FileScrollDown) -> FileWindow | Failed:
        """Show what follows the window."""
        window = self._state().open_file
        if window is None:
            return _none_open()
        return self.show(window.path, max(1, window.last - _OVERLAP + 1), window.lines)

    def scroll_up(self, _: act.FileScrollUp) -> FileWindow | Failed:
        """Show what precedes the window."""
        window = self._state().open_file
        if window is None:
            return _none_open()
        return self.show(window.path, max(1, window.first - window.lines + _OVERLAP), window.lines)

    def info(self, _: act.GetFileInfo) -> Info:
        """Say which file is open and how it stands now."""
        window = self._state().open_file
        if window is None:
            return Info(path="")
        with self._confined.file(window.path) as (found, place), reader(found) as file:
            status = os.fstat(found)
            return Info(
                path=place.path,
                first_line=window.first,
                last_line=window.last,
                total_lines=file_lines.count(file),
                size=status.st_size,
                modified=status.st_mtime,
            )

    def facts(self, path: str) -> str:
        """One line about a file: its size, lines and age."""
        with self._confined.file(path) as (found, place), reader(found) as file:
            status, total = os.fstat(found), file_lines.count(file)
        clock = time.strftime("%H:%M:%SZ", time.gmtime(status.st_mtime))
        return f"{place.path} has {status.st_size} bytes, {total} lines, last written {clock}."

    def show(
        self, path: str, first: int, lines: int, remembered: int | None = None
    ) -> FileWindow | Failed:
        """The window of `lines` lines from line `first` on; becomes the open file.

        remembered: lines that later scrolling shows, when that differs from `lines`.
        """
        with self._confined.file(path) as (found, place), reader(found) as file:
            status = os.fstat(found)
            state = self._state()
            state.seen.pop(place.path, None)
            state.seen[place.path] = version(status)
            if file_lines.is_binary(file):
                return FileWindow(path=place.path, size=status.st_size, binary=True)
            window = file_lines.window(file, first, lines, self._limit - 200)
            total = file_lines.count(file)
        if not window.lines and first > 1:
            length = "fewer lines than that" if total is None else f"{total} lines"
            return Failed(error=f"{place.path} has {length}; there is no line {first}.")
        last = first + len(window.lines) - 1
        kept = remembered or lines
        state.open_file = OpenFile(path=place.path, first=first, last=last, lines=kept)
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


def version(found: os.stat_result) -> str:
    """What changes whenever a file is written."""
    return f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"


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


def _none_open() -> Failed:
    return Failed(error="No file is open; open_file opens one.")


def _numbered(window: file_lines.Window) -> str:
    width = len(str(window.first + len(window.lines)))
    return "\n".join(
        f"{number:>{width}} {_text(line)}" for number, line in enumerate(window.lines, window.first)
    )


def _text(line: file_lines.Line) -> str:
    text = line.data.decode("utf-8", "replace")
    if not line.more:
        return text
    least = "at least " if line.more >= file_lines.COUNT_BYTES else ""
    return f"{text} [… {least}{line.more} more bytes in this line]"


def _is_utf8(data: bytes) -> bool:
    # A line that was cut may end inside a character, which is no flaw of the file.
    try:
        data.decode()
    except UnicodeDecodeError as problem:
        return len(data) >= file_lines.LINE_BYTES and problem.start >= len(data) - 3
    return True
