"""The eleven file actions: edits, searches and windows, each in a thread with a time limit."""

import asyncio
import errno
import fnmatch
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import msgspec

from houston_daemon.environments import workstation_actions
from houston_daemon.environments.environment_protocol import Stop
from houston_daemon.environments.tool_arguments import Arguments
from houston_daemon.environments.typed_observation import Failed, Observation
from houston_daemon.environments.workstation import file_window
from houston_daemon.environments.workstation.confined_paths import (
    ConfinedEntry,
    ConfinedFolder,
    PathRefused,
    kind_of,
)
from houston_daemon.environments.workstation.file_observations import (
    Entry,
    FileWindow,
    FoundFiles,
    Listing,
    Match,
    Matches,
)
from houston_daemon.environments.workstation.file_window import (
    DEFAULT_LINES,
    FileView,
    reader,
    version,
)
from houston_daemon.environments.workstation.workstation_state import WorkstationState
from houston_daemon.hosts.untrusted_files import FOLDER_FLAGS
from houston_shared.faults import point
from houston_shared.times_and_counts import pluralize

_AROUND = 5
"""Lines shown before and after an edit."""
_MAX_SHOWN_LINES = 60
_SECONDS = 60.0
"""Longest edit: all the rest of the file is read and written again."""


class FileEdit:
    """Actions that write one file."""

    def __init__(
        self, confined: ConfinedFolder, state: Callable[[], WorkstationState], view: FileView
    ) -> None:
        self._confined = confined
        self._state = state
        self._view = view
        self.touched: list[str] = []
        """Paths written since the last snapshot: hints for it."""

    def create(self, call: workstation_actions.CreateFile) -> FileWindow | Failed:
        """Write a whole file, in place of an old one if there is one."""
        data = _bytes(call.content)
        with self._confined.place(call.filename, make_folders=True) as place:
            before = _stat_existing(place, call.filename)
            blind = before is not None and self._is_blind(place, before)
            mode = stat.S_IMODE(before.st_mode) if before else 0o644
            _replace(place, mode, lambda file: file.write(data))
        change = "replaced" if before else "created"
        return self._edited_window(place.path, change, 1, data.count(b"\n") + 1, blind)

    def edit(self, call: workstation_actions.EditFile) -> FileWindow | Failed:
        """Replace lines `start` to `end` by the content; show the place afterwards."""
        if call.end < call.start - 1:
            return Failed(
                error=f"end ({call.end}) may not be before start - 1 ({call.start - 1}); "
                "end = start - 1 inserts before line start."
            )
        with (
            self._confined.file(call.path) as (descriptor, place),
            reader(descriptor, _SECONDS) as file,
        ):
            before = os.fstat(descriptor)
            if file_window.is_binary(file):
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
        return self._edited_window(place.path, "edited", first, lines, blind)

    def _is_blind(self, place: ConfinedEntry, before: os.stat_result) -> bool:
        return self._state().seen.get(place.path) != version(before)

    def _edited_window(
        self, path: str, change: str, first: int, lines: int, blind: bool
    ) -> FileWindow | Failed:
        """The window after a change, which the agent has thereby seen."""
        self.touched.append(path)
        window = self._view.show(path, first, min(lines, _MAX_SHOWN_LINES), DEFAULT_LINES)
        if isinstance(window, Failed):  # the edit removed the end of the file
            window = self._view.show(path, 1, 1, DEFAULT_LINES)
        if isinstance(window, Failed):
            return window
        return msgspec.structs.replace(window, change=change, blind=blind)


def _bytes(content: str) -> bytes:
    return content.encode("utf-8", "replace")


def _stat_existing(place: ConfinedEntry, path: str) -> os.stat_result | None:
    """The regular file that a new one would replace."""
    try:
        status = os.lstat(place.name, dir_fd=place.folder)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else kind_of(status.st_mode)
        raise PathRefused(f"{path!r} is {kind} and is not replaced.")
    return status


def _span(file: BinaryIO, first: int, last: int, size: int) -> tuple[int, int] | None:
    """Bytes of lines first..last, an empty span to insert before `first`; None if not there."""
    start = file_window.offset_of(file, first)
    if last < first:
        if start is None and _exists(file, first - 1, size):
            return size, size  # after a last line without line feed
        return None if start is None else (start, start)
    if start is None or not _exists(file, last, size):
        return None
    stop = file_window.offset_of(file, last + 1)
    return start, size if stop is None else stop


def _exists(file: BinaryIO, number: int, size: int) -> bool:
    offset = file_window.offset_of(file, number)
    return offset is not None and offset < size


def _not_in_it(path: str, file: BinaryIO, call: workstation_actions.EditFile) -> str:
    total = file_window.count(file)
    length = "fewer lines than that" if total is None else pluralize(total, "line")
    append = "" if total is None else f" start={total + 1}, end={total} appends."
    return f"{path} has {length}; lines {call.start} to {call.end} are not in it.{append}"


def _lines_of(data: bytes, file: BinaryIO, start: int, stop: int, size: int) -> bytes:
    """`data` as lines of this file: with its line ends, and whole lines where more follows."""
    feed = b"\n"
    if file_window.uses_crlf(file):
        feed = b"\r\n"
        data = data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    more_follows = stop < size or _ends_with_feed(file, size)
    if data and more_follows and not data.endswith(b"\n"):
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
    while start < stop and (block := source.read(min(file_window.BLOCK, stop - start))):
        if block.count(0) == len(block):
            into.seek(len(block), os.SEEK_CUR)
        else:
            into.write(block)
        start += len(block)


def _replace(place: ConfinedEntry, mode: int, write: Callable[[BinaryIO], object]) -> None:
    """Write beside, then rename over the old file."""
    temp_name = f".houston-{secrets.token_hex(6)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temp_name, flags, 0o600, dir_fd=place.folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.truncate()  # it may end with a hole
            os.fchmod(file.fileno(), mode)
        point("worker.file.before")
        os.rename(temp_name, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
    except BaseException:
        os.unlink(temp_name, dir_fd=place.folder)
        raise


SECONDS = 10.0
"""Longest search."""
_MAX_RESULTS = 100
_MAX_ENTRIES = 500
_MAX_COUNTED_BYTES = 100_000
_LARGE = 64 * file_window.BLOCK
"""Larger files are passed over by search_dir."""
_LINE_SHOWN = 200
_DEPTH = 64
_PIECE = 65_536
"""Longer lines are read in pieces of this many bytes."""
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Limit:
    """How long a search may go on: its time, or until it is no longer wanted."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._deadline = time.monotonic() + seconds
        self.cancelled = threading.Event()
        self.reached = False

    def over(self) -> bool:
        """Whether to stop now."""
        if self.cancelled.is_set() or time.monotonic() > self._deadline:
            self.reached = True
        return self.reached


class FileSearch:
    """Actions that look through folders."""

    def __init__(self, confined: ConfinedFolder) -> None:
        self._confined = confined

    def search_dir(self, call: workstation_actions.SearchDir, limit: Limit) -> Matches:
        """Lines with the term in all text files below a folder."""
        term = call.search_term.encode("utf-8", "replace")
        matches: list[Match] = []
        total = passed_over = 0
        with self._confined.folder(call.dir_path) as (folder, place):
            for path, name, parent in _files(folder, limit):
                try:
                    descriptor = os.open(name, _OPEN, dir_fd=parent)
                except OSError as problem:
                    passed_over += problem.errno != errno.ELOOP  # a link is not read at all
                    continue
                with os.fdopen(descriptor, "rb") as file:
                    if os.fstat(descriptor).st_size > _LARGE:
                        passed_over += 1
                        continue
                    total += _collect(file, term, _join_path(place.path, path), matches, limit)
        note = f"{passed_over} files were not read (large or not readable)." * bool(passed_over)
        return _matches(call.search_term, place, total, matches, limit, note)

    def search_file(self, call: workstation_actions.SearchFile, limit: Limit) -> Matches:
        """Lines with the term in one file."""
        matches: list[Match] = []
        with (
            self._confined.file(call.file_path) as (descriptor, place),
            reader(descriptor) as file,
        ):
            binary = file_window.is_binary(file)
            term = call.search_term.encode("utf-8", "replace")
            total = _collect(file, term, place.path, matches, limit)
        note = "The file is binary and was not searched." if binary else ""
        return _matches(call.search_term, place, total, matches, limit, note)

    def find_file(self, call: workstation_actions.FindFile, limit: Limit) -> FoundFiles:
        """Files whose name, or path where the pattern has a slash, fits a pattern."""
        paths: list[str] = []
        total = 0
        with self._confined.folder(call.dir_path) as (folder, place):
            for path, name, _ in _files(folder, limit):
                if fnmatch.fnmatchcase(path if "/" in call.file_name else name, call.file_name):
                    total += 1
                    if len(paths) < _MAX_RESULTS:
                        paths.append(_join_path(place.path, path))
        return FoundFiles(
            query=call.file_name,
            path=place.path,
            total_results=total,
            complete=not limit.reached,
            paths=tuple(sorted(paths)),
        )

    def list_files(self, call: workstation_actions.ListFiles, limit: Limit) -> Listing:
        """The entries of one folder, by name, the first 500."""
        names: list[str] = []
        hidden = 0
        with self._confined.folder(call.path) as (folder, place):
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith(".") and not call.show_hidden:
                        hidden += 1
                    else:
                        names.append(entry.name)
                    if len(names) >= _MAX_COUNTED_BYTES or limit.over():
                        break
            listed = [_entry(folder, name) for name in sorted(names)[:_MAX_ENTRIES]]
        return Listing(path=place.path, total=len(names), hidden=hidden, entries=tuple(listed))


def _matches(
    term: str, place: ConfinedEntry, total: int, matches: list[Match], limit: Limit, note: str
) -> Matches:
    return Matches(
        query=term,
        path=place.path,
        total_results=total,
        complete=not limit.reached,
        matches=tuple(matches),
        note=note,
    )


def _files(
    folder: int, limit: Limit, below: str = "", depth: int = 0
) -> Iterator[tuple[str, str, int]]:
    """Files below a folder, links not followed: relative path, name, descriptor of their folder.

    An agent's processes swap folders for links and pipes meanwhile: none is followed or waited for.
    """
    folders: list[str] = []
    names: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if limit.over():
                return
            (folders if entry.is_dir(follow_symlinks=False) else names).append(entry.name)
    for name in sorted(names):
        if limit.over():
            return
        yield _join_path(below, name), name, folder
    for name in sorted(folders) if depth < _DEPTH else ():
        if name == ".git":
            continue
        try:
            inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
        except OSError:  # it may not be read, or is no folder any more
            continue
        try:
            yield from _files(inner, limit, _join_path(below, name), depth + 1)
        finally:
            os.close(inner)


def _join_path(folder: str, path: str) -> str:
    return path if folder in ("", ".") else f"{folder}/{path}"


def _collect(file: BinaryIO, term: bytes, path: str, matches: list[Match], limit: Limit) -> int:
    """Count lines with the term; keep the first of them. Binary files hold none."""
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or file_window.is_binary(file):
        return 0
    file.seek(0)
    count, number, pieces = 0, 1, 0
    rest, hit = b"", False  # of the current line: the end of its last piece, whether it counted
    while piece := file.readline(_PIECE):
        pieces += 1
        joined = rest + piece
        if not hit and term in joined:
            hit, count = True, count + 1
            if len(matches) < _MAX_RESULTS:
                matches.append(Match(path=path, line=number, text=_excerpt(joined, term)))
        if piece.endswith(b"\n"):
            number, rest, hit = number + 1, b"", False
        else:
            rest = piece[-len(term) :]
        if pieces % 1_000 == 0 and limit.over():
            break
    return count


def _excerpt(piece: bytes, term: bytes) -> str:
    """A line, or the part of a long one that holds the term."""
    at = max(0, piece.index(term) - _LINE_SHOWN // 2) if len(piece) > _LINE_SHOWN else 0
    text = piece[at : at + _LINE_SHOWN].decode("utf-8", "replace").rstrip("\r\n")
    return f"{'…' * bool(at)}{text}{'…' * (at + _LINE_SHOWN < len(piece))}"


def _entry(folder: int, name: str) -> Entry:
    try:
        status = os.lstat(name, dir_fd=folder)
    except OSError:
        return Entry(name=name, type="other", size=0)
    if stat.S_ISLNK(status.st_mode):
        return Entry(name=name, type="link", size=0, target=os.readlink(name, dir_fd=folder))
    if stat.S_ISDIR(status.st_mode):
        return Entry(name=name, type="folder", size=0)
    kind = "file" if stat.S_ISREG(status.st_mode) else "other"
    return Entry(name=name, type=kind, size=status.st_size)


class FileActions:
    """Actions on the files of one workspace."""

    def __init__(
        self, confined: ConfinedFolder, state: Callable[[], WorkstationState], characters: int
    ) -> None:
        view = FileView(confined, state, characters)
        self._view = view
        self._edit = FileEdit(confined, state, view)
        search = FileSearch(confined)
        self._quick: dict[type[Arguments], Callable[[Any], Observation]] = {
            workstation_actions.OpenFile: view.open_file,
            workstation_actions.FileGotoLine: view.goto,
            workstation_actions.FileScrollDown: view.scroll_down,
            workstation_actions.FileScrollUp: view.scroll_up,
            workstation_actions.GetFileInfo: view.info,
            workstation_actions.CreateFile: self._edit.create,
            workstation_actions.EditFile: self._edit.edit,
        }
        self._limited: dict[type[Arguments], Callable[[Any, Limit], Observation]] = {
            workstation_actions.SearchDir: search.search_dir,
            workstation_actions.SearchFile: search.search_file,
            workstation_actions.FindFile: search.find_file,
            workstation_actions.ListFiles: search.list_files,
        }

    async def act(self, arguments: Arguments, stop: Stop) -> Observation:
        """Run one action. Raises PathRefused, whose text is for the agent."""
        quick = self._quick.get(type(arguments))
        if quick is not None:
            return await asyncio.to_thread(quick, arguments)
        limit = Limit()
        try:
            return await asyncio.to_thread(self._limited[type(arguments)], arguments, limit)
        finally:
            limit.cancelled.set()  # a cancelled call leaves its thread nothing to do

    async def write(self, path: str, content: str) -> FileWindow | Failed:
        """Write the output of another action, as create_file does, and show its beginning."""
        return await asyncio.to_thread(
            self._edit.create, workstation_actions.CreateFile(filename=path, content=content)
        )

    def take_written_paths(self) -> list[str]:
        """Paths written since this was asked last: hints for a snapshot."""
        touched, self._edit.touched = self._edit.touched, []
        return touched

    async def budget_status(self, path: str) -> str:
        """What a file is now, for a call whose outcome is unknown."""
        try:
            return await asyncio.to_thread(self._view.facts, path)
        except PathRefused as refused:
            return str(refused)
