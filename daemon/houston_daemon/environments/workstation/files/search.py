"""Looking through the workspace: search, find and list, bounded in time and in results.

Runs in a thread, walks by descriptors and follows no link below the folder it was given. Folders
named `.git` are not searched. A search that hits a limit says so (`complete`).
"""

import errno
import fnmatch
import os
import stat
import threading
import time
from collections.abc import Iterator
from typing import BinaryIO

from houston_daemon.environments.workstation.files import actions as act
from houston_daemon.environments.workstation.files import lines as file_lines
from houston_daemon.environments.workstation.files.confine import Confined
from houston_daemon.environments.workstation.files.observations import (
    Entry,
    Found,
    Listing,
    Match,
    Matches,
)
from houston_daemon.environments.workstation.files.window import reader

SECONDS = 10.0
"""Longest search."""
_MOST_RESULTS = 100
_MOST_ENTRIES = 500
_MOST_COUNTED = 100_000
_LARGE = 64 * file_lines.BLOCK
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

    def __init__(self, confined: Confined) -> None:
        self._confined = confined

    def search_dir(self, call: act.SearchDir, limit: Limit) -> Matches:
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
                    total += _collect(file, term, _joined(place.path, path), matches, limit)
        note = f"{passed_over} files were not read (large or not readable)." * bool(passed_over)
        return Matches(
            query=call.search_term,
            path=place.path,
            total_results=total,
            complete=not limit.reached,
            matches=tuple(matches),
            note=note,
        )

    def search_file(self, call: act.SearchFile, limit: Limit) -> Matches:
        """Lines with the term in one file."""
        matches: list[Match] = []
        with (
            self._confined.file(call.file_path) as (found, place),
            reader(found) as file,
        ):
            binary = file_lines.is_binary(file)
            term = call.search_term.encode("utf-8", "replace")
            total = _collect(file, term, place.path, matches, limit)
        return Matches(
            query=call.search_term,
            path=place.path,
            total_results=total,
            complete=not limit.reached,
            matches=tuple(matches),
            note="The file is binary and was not searched." if binary else "",
        )

    def find_file(self, call: act.FindFile, limit: Limit) -> Found:
        """Files whose name, or path where the pattern has a slash, fits a pattern."""
        found: list[str] = []
        total = 0
        with self._confined.folder(call.dir_path) as (folder, place):
            for path, name, _ in _files(folder, limit):
                if fnmatch.fnmatchcase(path if "/" in call.file_name else name, call.file_name):
                    total += 1
                    if len(found) < _MOST_RESULTS:
                        found.append(_joined(place.path, path))
        return Found(
            query=call.file_name,
            path=place.path,
            total_results=total,
            complete=not limit.reached,
            paths=tuple(sorted(found)),
        )

    def list_files(self, call: act.ListFiles, limit: Limit) -> Listing:
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
                    if len(names) >= _MOST_COUNTED or limit.over():
                        break
            listed = [_entry(folder, name) for name in sorted(names)[:_MOST_ENTRIES]]
        return Listing(path=place.path, total=len(names), hidden=hidden, entries=tuple(listed))


def _files(folder: int, limit: Limit) -> Iterator[tuple[str, str, int]]:
    """Files below a folder, links left out: relative path, name, descriptor of their folder."""
    for path, folders, names, here in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        if limit.over():
            return
        depth = path.count("/")
        folders[:] = sorted(name for name in folders if name != ".git" and depth < _DEPTH)
        below = path.removeprefix(".").removeprefix("/")
        for name in sorted(names):
            if limit.over():
                return
            yield _joined(below, name), name, here


def _joined(folder: str, path: str) -> str:
    return path if folder in ("", ".") else f"{folder}/{path}"


def _collect(file: BinaryIO, term: bytes, path: str, matches: list[Match], limit: Limit) -> int:
    """Count lines with the term; keep the first of them. Binary files hold none."""
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode) or file_lines.is_binary(file):
        return 0
    file.seek(0)
    count, number, pieces = 0, 1, 0
    rest, hit = b"", False  # of the current line: the end of its last piece, whether it counted
    while piece := file.readline(_PIECE):
        pieces += 1
        joined = rest + piece
        if not hit and term in joined:
            hit, count = True, count + 1
            if len(matches) < _MOST_RESULTS:
                matches.append(Match(path=path, line=number, text=_around(joined, term)))
        if piece.endswith(b"\n"):
            number, rest, hit = number + 1, b"", False
        else:
            rest = piece[-len(term) :]
        if pieces % 1_000 == 0 and limit.over():
            break
    return count


def _around(piece: bytes, term: bytes) -> str:
    """A line, or the part of a long one that holds the term."""
    at = max(0, piece.index(term) - _LINE_SHOWN // 2) if len(piece) > _LINE_SHOWN else 0
    text = piece[at : at + _LINE_SHOWN].decode("utf-8", "replace").rstrip("\r\n")
    return f"{'…' * bool(at)}{text}{'…' * (at + _LINE_SHOWN < len(piece))}"


def _entry(folder: int, name: str) -> Entry:
    try:
        found = os.lstat(name, dir_fd=folder)
    except OSError:
        return Entry(name=name, type="other", size=0)
    if stat.S_ISLNK(found.st_mode):
        return Entry(name=name, type="link", size=0, target=os.readlink(name, dir_fd=folder))
    if stat.S_ISDIR(found.st_mode):
        return Entry(name=name, type="folder", size=0)
    kind = "file" if stat.S_ISREG(found.st_mode) else "other"
    return Entry(name=name, type=kind, size=found.st_size)
