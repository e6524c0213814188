"""Writing one file of the workspace: a whole new one, or a range of its lines.

Runs in a thread. Contents are bytes throughout, so that an edit leaves every other line as it was,
and a file is replaced by renaming, so that nobody ever reads half of it.
"""

import os
import secrets
import stat
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from houston_daemon.environments.observation import Failed
from houston_daemon.environments.workstation.files import actions as act
from houston_daemon.environments.workstation.files import lines as file_lines
from houston_daemon.environments.workstation.files.confine import (
    Confined,
    PathRefused,
    Place,
    kind_of,
)
from houston_daemon.environments.workstation.files.observations import FileWindow
from houston_daemon.environments.workstation.files.window import (
    DEFAULT_LINES,
    FileView,
    reader,
    version,
)
from houston_daemon.environments.workstation.state import State
from houston_shared.faults import point

_AROUND = 5
"""Lines shown before and after an edit."""
_MOST_SHOWN = 60
_SECONDS = 60.0
"""Longest edit: all the rest of the file is read and written again."""


class FileEdit:
    """Actions that write one file."""

    def __init__(self, confined: Confined, state: Callable[[], State], view: FileView) -> None:
        self._confined = confined
        self._state = state
        self._view = view
        self.touched: list[str] = []
        """Paths written since the last snapshot: hints for it."""

    def create(self, call: act.CreateFile) -> FileWindow | Failed:
        """Write a whole file, in place of an old one if there is one."""
        data = _bytes(call.content)
        with self._confined.place(call.filename, make_folders=True) as place:
            before = _existing(place, call.filename)
            blind = before is not None and self._is_blind(place, before)
            mode = stat.S_IMODE(before.st_mode) if before else 0o644
            _replace(place, mode, lambda file: _write(file, data))
        change = "replaced" if before else "created"
        return self._written(place.path, change, 1, data.count(b"\n") + 1, blind)

    def edit(self, call: act.EditFile) -> FileWindow | Failed:
        """Replace lines `start` to `end` by the content; show the place afterwards."""
        if call.end < call.start - 1:
            return Failed(
                error=f"end ({call.end}) may not be before start - 1 ({call.start - 1}); "
                "end = start - 1 inserts before line start."
            )
        with self._confined.file(call.path) as (found, place), reader(found, _SECONDS) as file:
            before = os.fstat(found)
            if file_lines.is_binary(file):
                return Failed(error=f"{place.path} is binary; lines of it cannot be edited.")
            span = _span(file, call.start, call.end, before.st_size)
            if span is None:
                return Failed(error=_not_in_it(place.path, file, call))
            start, stop = span
            data = _lines_of(_bytes(call.content), file, start, stop, before.st_size)

            def write(out: BinaryIO) -> None:
                _copy(file, out, 0, start)
                out.write(data)
                _copy(file, out, stop, before.st_size)

            blind = self._is_blind(place, before)
            _replace(place, stat.S_IMODE(before.st_mode), write)
        first = max(1, call.start - _AROUND)
        lines = call.start - first + data.count(b"\n") + _AROUND
        return self._written(place.path, "edited", first, lines, blind)

    def _is_blind(self, place: Place, before: os.stat_result) -> bool:
        return self._state().seen.get(place.path) != version(before)

    def _written(
        self, path: str, change: str, first: int, lines: int, blind: bool
    ) -> FileWindow | Failed:
        """The window after a change, which the agent has thereby seen."""
        self.touched.append(path)
        shown = self._view.show(path, first, min(lines, _MOST_SHOWN), DEFAULT_LINES)
        if isinstance(shown, Failed):  # the edit removed the end of the file
            shown = self._view.show(path, 1, 1, DEFAULT_LINES)
        if isinstance(shown, Failed):
            return shown
        return msgspec.structs.replace(shown, change=change, blind=blind)


def _bytes(content: str) -> bytes:
    return content.encode("utf-8", "replace")


def _existing(place: Place, path: str) -> os.stat_result | None:
    """The regular file that a new one would replace."""
    try:
        found = os.lstat(place.name, dir_fd=place.folder)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else kind_of(found.st_mode)
        raise PathRefused(f"{path!r} is {kind} and is not replaced.")
    return found


def _span(file: BinaryIO, first: int, last: int, size: int) -> tuple[int, int] | None:
    """Bytes of lines first..last, an empty span to insert before `first`; None if not there."""
    start = file_lines.offset_of(file, first)
    if last < first:
        if start is None and _exists(file, first - 1, size):
            return size, size  # after a last line without line feed
        return None if start is None else (start, start)
    if start is None or not _exists(file, last, size):
        return None
    stop = file_lines.offset_of(file, last + 1)
    return start, size if stop is None else stop


def _exists(file: BinaryIO, number: int, size: int) -> bool:
    offset = file_lines.offset_of(file, number)
    return offset is not None and offset < size


def _not_in_it(path: str, file: BinaryIO, call: act.EditFile) -> str:
    total = file_lines.count(file)
    length = "fewer lines than that" if total is None else f"{total} line{'s' * (total != 1)}"
    append = "" if total is None else f" start={total + 1}, end={total} appends."
    return f"{path} has {length}; lines {call.start} to {call.end} are not in it.{append}"


def _lines_of(data: bytes, file: BinaryIO, start: int, stop: int, size: int) -> bytes:
    """`data` as lines of this file: with its line ends, and whole lines where more follows."""
    feed = b"\n"
    if file_lines.uses_crlf(file):
        feed = b"\r\n"
        data = data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    whole = stop < size or _ends_with_feed(file, size)
    if data and whole and not data.endswith(b"\n"):
        data += feed
    if data and start == size and not _ends_with_feed(file, size):
        data = feed + data
    return data


def _ends_with_feed(file: BinaryIO, size: int) -> bool:
    """Whether the file ends with a line feed; an empty one counts as such."""
    file.seek(max(0, size - 1))
    return file.read(1) in (b"\n", b"")


def _copy(source: BinaryIO, into: BinaryIO, start: int, stop: int) -> None:
    """Copy a span of bytes; a block of zeros becomes a hole, as most of them were."""
    source.seek(start)
    while start < stop and (block := source.read(min(file_lines.BLOCK, stop - start))):
        if block.count(0) == len(block):
            into.seek(len(block), os.SEEK_CUR)
        else:
            into.write(block)
        start += len(block)


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)


def _replace(place: Place, mode: int, write: Callable[[BinaryIO], None]) -> None:
    """Write beside, then rename over the old file."""
    beside = f".houston-{secrets.token_hex(6)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(beside, flags, 0o600, dir_fd=place.folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.truncate()  # it may end with a hole
            os.fchmod(file.fileno(), mode)
        point("worker.file.before")
        os.rename(beside, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except BaseException:
        os.unlink(beside, dir_fd=place.folder)
        raise
