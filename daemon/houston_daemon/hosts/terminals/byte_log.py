"""The byte log of one terminal: append-only segment files, one line of offsets over all of them.

A segment is named after the offset of its first byte; a new one begins whenever recording had
stopped, and its first bytes say so. Offsets never change, so a step can refer to (from, to) for
good. Only tmux's pipe writes here (and this module, the sentence about a gap).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from houston_daemon.hosts.terminals.marks import LOOK_BEHIND, Nonces, trailing_marks, without_marks
from houston_daemon.hosts.terminals.screen import render
from houston_shared import terminal_folder

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Window:
    """The first and last lines of a span, and what lies between."""

    first: list[str]
    last: list[str]
    skipped_lines: int
    """Line feeds between the two parts; 0 when they meet."""
    skipped_bytes: int


class TerminalLog:
    """Reads the segments of one terminal's folder; safe while they grow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret: Nonces | None = None
        """Nonces in use, which never show."""
        self._segments: list[tuple[int, Path]] = []

    def begin_segment(self, notice: bytes = b"") -> Path:
        """Start a new segment at the end, with `notice` as its first bytes."""
        start = self.size()
        path = terminal_folder.segment(self.folder, start)
        with path.open("ab") as file:
            file.write(notice)
        self._segments = []
        return path

    def size(self) -> int:
        """Offset just after the last byte."""
        if not self._segments:
            self._find()
        if not self._segments:
            return 0
        start, path = self._segments[-1]
        return start + path.stat().st_size

    def last_output(self) -> float:
        """Unix time of the last write, 0 before the first byte."""
        if not self.size():
            return 0.0
        return max(path.stat().st_mtime for _, path in self._segments[-2:])

    def read(self, start: int, end: int) -> bytes:
        """Bytes of [start, end), fewer where the log is shorter."""
        if not self._segments:
            self._find()
        parts: list[bytes] = []
        for at, path in self._segments:
            if at >= end:
                break
            skip = max(0, start - at)
            want = end - at - skip
            if skip >= path.stat().st_size or want <= 0:
                continue
            with path.open("rb") as file:
                file.seek(skip)
                parts.append(file.read(want))
        return b"".join(parts)

    def lines(self, start: int, end: int | None = None) -> list[str]:
        """Screen lines of [start, end); marks never show, not even halves of them."""
        stop = self.size() if end is None else end
        before = self.read(max(0, start - LOOK_BEHIND), start)
        return render(without_marks(self.read(start, stop), before, self.secret))

    def window(
        self, start: int, end: int | None, first: int, last: int, most_bytes: int = 400_000
    ) -> Window:
        """At most `first` lines from the front and `last` from the back of [start, end).

        Looks only at the bytes it returns, `most_bytes` for each part, and counts line feeds
        between. A span that is small enough comes whole in `first`.
        """
        stop = self.size() if end is None else min(end, self.size())
        head = self._after_lines(start, stop, first, most_bytes)
        tail = self._before_lines(head, stop, last, most_bytes)
        if tail <= head:
            return Window(self.lines(start, stop), [], 0, 0)
        between = sum(block.count(b"\n") for block in self._blocks(head, tail))
        return Window(
            self.lines(start, head) if first else [],
            self.lines(tail, stop) if last else [],
            between,
            tail - head,
        )

    def _after_lines(self, start: int, stop: int, count: int, most: int) -> int:
        limit = min(stop, start + most)
        at = start
        for block in self._blocks(start, limit):
            feeds = block.count(b"\n")
            if feeds >= count:
                place = -1
                for _ in range(count):
                    place = block.index(b"\n", place + 1)
                return at + place + 1
            count -= feeds
            at += len(block)
        return at

    def _before_lines(self, head: int, stop: int, count: int, most: int) -> int:
        if count <= 0:
            return stop
        low = max(head, stop - most)
        data = self.read(low, stop)
        shown = len(data) - trailing_marks(data)
        place = shown - 1 if data.endswith(b"\n", 0, shown) else shown
        for _ in range(count):
            place = data.rfind(b"\n", 0, place)
            if place < 0:
                return low
        return low + place + 1

    def _blocks(self, start: int, stop: int) -> Iterator[bytes]:
        while start < stop and (data := self.read(start, min(start + _BLOCK, stop))):
            yield data
            start += len(data)

    def _find(self) -> None:
        self._segments = terminal_folder.segments(self.folder)
