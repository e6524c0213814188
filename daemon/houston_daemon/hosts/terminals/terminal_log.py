"""The byte log of one terminal, and its bytes as the lines a person would see.

Append-only segment files with one line of offsets over all of them: offsets never change, so a step
can refer to (from, to) for good. Rendering knows carriage return, backspace, tab, cursor movement
and erase in line, and drops every other control sequence; it is no emulator. Only tmux's pipe
writes the log (and this module, the sentence about a gap).
"""

import re
from pathlib import Path

from houston_daemon.hosts.terminals.shell_marks import (
    MARK_LOOK_BEHIND,
    MarkNonces,
    without_marks,
)
from houston_shared import terminal_log_files

_ESCAPE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: titles, links, our marks
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]+[0-~]"  # character sets
    r"|\x1b[0-Z\\^-~]"  # single ones (but not CSI)
    r"|\x1b\[[0-?]*[ -/]*[@H-JL-~]"  # colours and whatever else moves nothing here
)
_CSI = re.compile(r"\x1b\[([0-?]*)[ -/]*([@-~])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_PIECE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x1f\x7f]|[^\x00-\x1f\x7f]+")
_MAX_COLUMN = 1_000
"""How far right the cursor is moved: a terminal stops at its margin, and a row of spaces for every
few bytes that were printed would fill the memory (100,000 columns: 10 GB for 1 MB of output)."""
_SCREEN_ROWS = 200
_TAIL = 5000


def render_lines(data: bytes) -> list[str]:
    """Lines of `data` as they stand after all of it was printed.

    A last line without its line feed counts as a line; an empty one does not.
    """
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    if not _CONTROL.search(text):
        lines = text.split("\n")
    else:
        text = _ESCAPE.sub("", text)
        text = text[:-_TAIL] + _UNFINISHED.sub("", text[-_TAIL:])
        screen = _LineScreen()
        for line in text.split("\n"):
            screen.feed(line)
        lines = screen.lines()
    while lines and not lines[-1]:
        lines.pop()
    return lines


class _LineScreen:
    """Rows written so far and a cursor; rows grow as needed.

    A row that is written to in pieces is a list of its characters: pieces that overwrite each other
    then cost their own length, not the row's.
    """

    def __init__(self) -> None:
        self.rows: list[str | list[str]] = []
        self.row = 0
        self.column = 0

    def lines(self) -> list[str]:
        """The rows as text."""
        return [row if isinstance(row, str) else "".join(row) for row in self.rows]

    def feed(self, line: str) -> None:
        """Print one line and its line feed."""
        if self.row == len(self.rows) and not self.column and not _CONTROL.search(line):
            self.rows.append(line)
        else:
            for piece in _PIECE.findall(line):
                self._piece(piece)
            if self.row >= len(self.rows):
                self._write("")
        self.row += 1
        self.column = 0

    def _piece(self, piece: str) -> None:
        first = piece[0]
        if first >= " " and first != "\x7f":
            self._write(piece)
        elif first == "\r":
            self.column = 0
        elif first == "\b":
            self.column = max(0, self.column - 1)
        elif first == "\t":
            self._write("\t")
        elif first == "\x1b" and len(piece) > 1:
            self._control(piece)

    def _write(self, text: str) -> None:
        while self.row >= len(self.rows):
            self.rows.append("")
        cells = self._cells()
        if self.column > len(cells):
            cells.extend(" " * (self.column - len(cells)))
        end = self.column + len(text)
        cells[self.column : end] = text
        self.column = end

    def _cells(self) -> list[str]:
        row = self.rows[self.row]
        if isinstance(row, str):
            row = self.rows[self.row] = list(row)
        return row

    def _control(self, piece: str) -> None:
        match = _CSI.fullmatch(piece)
        if match is None:
            return
        parameters, final = match.groups()
        first = parameters.split(";")[0]
        count = int(first[:9]) if first.isdigit() else 0  # int() refuses thousands of digits
        step = min(max(1, count), _MAX_COLUMN)
        if final == "K":
            self._erase(count)
        elif final == "C":
            self.column = max(self.column, min(self.column + step, _MAX_COLUMN))
        elif final == "D":
            self.column = max(0, self.column - step)
        elif final == "G":
            self.column = min(step, _MAX_COLUMN) - 1
        elif final in "AF":
            self.row = max(0, len(self.rows) - _SCREEN_ROWS, self.row - step)
            self.column = 0 if final == "F" else self.column
        elif final in "BE":
            self.row = min(len(self.rows), self.row + step)
            self.column = 0 if final == "E" else self.column

    def _erase(self, mode: int) -> None:
        if self.row >= len(self.rows):
            return
        cells = self._cells()
        if mode == 0:
            del cells[self.column :]
        elif mode == 1:
            end = min(self.column, len(cells))
            begin = max(0, end - _MAX_COLUMN)  # a longer row has wrapped: what is left of it stays
            cells[begin:end] = " " * (end - begin)
        elif mode == 2:
            cells.clear()


class TerminalLog:
    """Reads the segments of one terminal's folder; safe while they grow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret: MarkNonces | None = None
        """Nonces in use, which never show."""
        self._segments: list[tuple[int, Path]] = []

    def begin_segment(self, notice: bytes = b"") -> Path:
        """Start a new segment at the end, with `notice` as its first bytes."""
        start = self.size()
        path = terminal_log_files.segment_file(self.folder, start)
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
        before = self.read(max(0, start - MARK_LOOK_BEHIND), start)
        return render_lines(without_marks(self.read(start, stop), before, self.secret))

    def _find(self) -> None:
        self._segments = terminal_log_files.list_segments(self.folder)
