"""Terminal bytes as the lines a person would see.

Knows carriage return, backspace, tab, line and cursor movement, erase in line, and drops every
other control sequence (ECMA-48 §5.4, xterm's OSC). It is not an emulator: lines never wrap, and
a program that paints a whole screen leaves its pages one below the other.
Invalid UTF-8 becomes U+FFFD. Text without control characters takes a path without a loop over
characters, so that 20 MB of a log render in well under a second.
"""

import re

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


def render(data: bytes) -> list[str]:
    """Lines of `data` as they stand after all of it was printed.

    A last line without its line feed counts as a line; an empty one does not.
    """
    text = data.decode("utf-8", "replace").replace("\r\n", "\n")
    if not _CONTROL.search(text):
        lines = text.split("\n")
    else:
        text = _ESCAPE.sub("", text)
        text = text[:-_TAIL] + _UNFINISHED.sub("", text[-_TAIL:])
        screen = _Screen()
        for line in text.split("\n"):
            screen.feed(line)
        lines = screen.lines()
    while lines and not lines[-1]:
        lines.pop()
    return lines


class _Screen:
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

    def _erase(self, what: int) -> None:
        if self.row >= len(self.rows):
            return
        cells = self._cells()
        if what == 0:
            del cells[self.column :]
        elif what == 1:
            end = min(self.column, len(cells))
            begin = max(0, end - _MAX_COLUMN)  # a longer row has wrapped: what is left of it stays
            cells[begin:end] = " " * (end - begin)
        elif what == 2:
            cells.clear()
