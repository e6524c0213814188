"""A terminal's whole log as lines, however long: pages of it are read when they are looked at.

An index says how many lines every page of about 32 KB has; the bytes stay in the files. Segments of
the log are the host's (`terminal_folder`). Nothing is written.
"""

from bisect import bisect_right
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from houston_console.app.drawing.lines import Line
from houston_console.app.terminals.text import all_lines, count_lines, line_of
from houston_shared import terminal_folder

PAGE = 32 * 1024
"""Bytes of a page, to the end of its last line."""
LONGEST = 8 * PAGE
"""Bytes after which a page ends also within a line."""
BLOCK = 4 * LONGEST
"""Bytes that are looked through at once."""
KEPT = 24
"""Pages that are kept as lines: a few screens."""


class Page(NamedTuple):
    """A stretch of the log."""

    start: int
    end: int
    first: int
    """Number of its first line."""
    lines: int


class Index(NamedTuple):
    """The pages of a log as long as it was."""

    folder: Path
    pages: tuple[Page, ...] = ()

    @property
    def start(self) -> int:
        """The first byte there is: older segments may be gone."""
        return self.pages[0].start if self.pages else 0

    @property
    def end(self) -> int:
        """One behind the last byte."""
        return self.pages[-1].end if self.pages else 0

    @property
    def lines(self) -> int:
        """All of them."""
        return self.pages[-1].first + self.pages[-1].lines if self.pages else 0

    def line(self, number: int) -> Line:
        """One line; empty where its page cannot be read any more."""
        at = bisect_right(self.pages, number, key=lambda page: page.first) - 1
        page = self.pages[at]
        lines = _lines(self.folder, page.start, page.end)
        return lines[number - page.first] if number - page.first < len(lines) else ()

    def line_of(self, byte: int) -> int:
        """The line that a byte of the log is in."""
        at = bisect_right(self.pages, byte, key=lambda page: page.start) - 1
        if at < 0:
            return 0
        page = self.pages[at]
        if byte >= page.end:
            return self.lines
        return page.first + line_of(read(self.folder, page.start, page.end), byte - page.start)

    def until(self, byte: int) -> "Index":
        """The log as it was when it ended at `byte`."""
        kept = [page for page in self.pages if page.start < byte]
        if kept and kept[-1].end > byte:
            last = kept.pop()
            data = read(self.folder, last.start, byte)
            kept.append(Page(last.start, byte, last.first, count_lines(data)))
        return self._replace(pages=tuple(kept))


def grown(index: Index) -> Index:
    """The index of the log as it is now: the same one when nothing was added.

    A log that is shorter than before is another one. Raises OSError where there is no log.
    """
    start, end = _ends(index.folder)
    if end == index.end and index.pages:
        return index
    pages = list(index.pages) if end > index.end and index.start == start else []
    if pages and _still_grows(index.folder, pages[-1]):
        pages.pop()
    at = pages[-1].end if pages else start
    while at < end:
        data = read(index.folder, at, min(end, at + BLOCK))
        if not data:
            break
        for a, b in _cuts(data, at + len(data) >= end):
            first = pages[-1].first + pages[-1].lines if pages else 0
            pages.append(Page(at + a, at + b, first, count_lines(data[a:b])))
        at = pages[-1].end
    return index._replace(pages=tuple(pages))


def _still_grows(folder: Path, last: Page) -> bool:
    """Whether what is printed next is of the last page too."""
    if last.end - last.start < PAGE:
        return True
    return last.end - last.start < LONGEST and read(folder, last.end - 1, last.end) != b"\n"


def _ends(folder: Path) -> tuple[int, int]:
    """First byte and end of the log; behind the last gap, where a segment is missing."""
    segments = terminal_folder.segments(folder)
    if not segments:
        raise FileNotFoundError(2, "no log yet", str(folder))
    start = end = segments[0][0]
    for at, path in segments:
        start = start if at <= end else at
        end = at + path.stat().st_size
    return start, end


def _cuts(data: bytes, last: bool) -> list[tuple[int, int]]:
    """Where the pages of a block begin and end; its rest is of the next, unless it is the last."""
    found: list[tuple[int, int]] = []
    at = 0
    while at < len(data):
        feed = data.find(b"\n", at + PAGE, at + LONGEST)
        if feed >= 0:
            end = feed + 1
        elif len(data) - at >= LONGEST:
            end = at + LONGEST
        elif last:
            end = len(data)
        else:
            break
        found.append((at, end))
        at = end
    return found


def read(folder: Path, start: int, end: int) -> bytes:
    """The bytes of [start, end), whatever segments they lie in; fewer where some are gone."""
    found = b""
    segments = terminal_folder.segments(folder)
    for number, (at, path) in enumerate(segments):
        after = segments[number + 1][0] if number + 1 < len(segments) else end
        if after <= start or at >= end:
            continue
        with path.open("rb") as file:
            file.seek(max(0, start - at))
            found += file.read(end - max(start, at))
    return found


@lru_cache(maxsize=KEPT)
def _lines(folder: Path, start: int, end: int) -> tuple[Line, ...]:
    try:
        return tuple(all_lines(read(folder, start, end)))
    except OSError:
        return ()
