"""Rows of cells as a terminal keeps them, and how text is written into them.

A row is written over, cut and padded in columns; kept rows are packed into little room. The
terminal's colours and weights (select graphic rendition) become the tones that the console draws
with. Where the cursor goes is decided in `terminal_emulator`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from rich.cells import cell_len

from houston_console.widgets.styled_text import TextLine, TextSpan, Tone
from houston_shared.safe_text import safe

_SGR_TONES: dict[str, Tone] = {
    **{"31": "error", "91": "error", "32": "success", "92": "success"},
    **{"33": "warning", "93": "warning", "34": "tool", "94": "tool", "36": "tool", "96": "tool"},
    **{"35": "key", "95": "key", "90": "faint"},
}
_EXTENDED_COLOUR = re.compile(
    r"(?<!\d)[345]8[;:](?:5[;:](\d{1,3})|2[;:]+(\d{1,3})[;:](\d{1,3})[;:](\d{1,3}))"
)
"""A colour out of 256, or by its red, green and blue; a ground is not shown."""
_MANY = "\0"
"""Begins the text of a row whose cells are not all one character, and parts them."""


@dataclass(slots=True, eq=False)
class ScreenRow:
    """One row of cells; a wide character is followed by an empty cell."""

    cells: list[str] = field(default_factory=list)
    tones: list[Tone] = field(default_factory=list)
    wrapped: bool = False
    """Whether the row below it goes on with its line."""
    command: int = -1
    """The number of the command whose prompt it is."""

    def packed(self) -> "PackedRow":
        """The same in little room."""
        text = "".join(self.cells)
        if len(text) != len(self.cells) or not all(self.cells):
            text = _MANY + _MANY.join(self.cells)
        runs = tuple((tone, sum(1 for _ in same)) for tone, same in groupby(self.tones))
        return PackedRow(text, runs, self.wrapped, self.command)

    def pad(self, columns: int) -> None:
        """Blank cells up to a column."""
        missing = columns - len(self.cells)
        if missing > 0:
            self.cells += [" "] * missing
            self.tones += ["text"] * missing

    def cut(self, column: int) -> None:
        """Nothing from a column on."""
        if 0 < column < len(self.cells) and not self.cells[column]:
            self.cells[column - 1] = " "
        del self.cells[column:], self.tones[column:]

    def put(self, column: int, cells: Sequence[str], tone: Tone) -> None:
        """Write cells over what is there; half a wide character that is left becomes a blank."""
        self.pad(column)
        if column == len(self.cells):
            self.cells += cells
            self.tones += [tone] * len(cells)
            return
        end = column + len(cells)
        if column < len(self.cells) and not self.cells[column]:
            self.cells[column - 1] = " "
        if end < len(self.cells) and not self.cells[end]:
            self.cells[end] = " "
        self.cells[column:end] = cells
        self.tones[column:end] = [tone] * len(cells)


class PackedRow(NamedTuple):
    """A row that is kept."""

    text: str
    tones: tuple[tuple[Tone, int], ...]
    wrapped: bool
    command: int

    def unpacked(self) -> ScreenRow:
        """The same, to be written on."""
        cells = self.text[1:].split(_MANY) if self.text.startswith(_MANY) else list(self.text)
        tones = [tone for tone, count in self.tones for _ in range(count)]
        return ScreenRow(cells, tones, self.wrapped, self.command)


@dataclass(frozen=True, slots=True)
class Pen:
    """How text is written."""

    colour: Tone = "text"
    weight: Tone = "text"
    draws_lines: bool = False

    @property
    def tone(self) -> Tone:
        """The colour, or else the weight."""
        return self.weight if self.colour == "text" else self.colour


Cursor = tuple[int, int, Pen]
"""Column, row from the top, and how text is written."""


class PackedScreen(NamedTuple):
    """The state of a terminal at some place of its log, to continue from there; states that are
    alike compare equal.

    The main screen is kept only from the line at its top on.
    """

    rows: tuple[PackedRow, ...]
    top: int
    main: tuple[int, int]
    alternate: tuple[PackedRow, ...] | None
    cursor: Cursor
    saved: Cursor
    saved_for_alternate: Cursor | None
    modes: frozenset[str]
    region: tuple[int, int]
    unread: str
    undecoded: bytes
    commands: int


@lru_cache(4096)
def character_cells(character: str) -> int:
    """Cells that a character takes: 0 to 2."""
    return min(2, cell_len(character))


@lru_cache(4096)
def pen_after(pen: Pen, parameters: str) -> Pen:
    """Select graphic rendition: colours and weight."""
    colour, weight = pen.colour, pen.weight
    for extended in _EXTENDED_COLOUR.finditer(parameters):
        if extended.group().startswith("38"):
            colour = _nearest_tone(*extended.groups())
    for code in _EXTENDED_COLOUR.sub("", parameters).split(";"):
        if code in ("", "0"):
            if code or not parameters:
                colour = weight = "text"
        elif code in ("1", "2", "22"):
            weight = "strong" if code == "1" else "dim" if code == "2" else "text"
        elif code == "39":
            colour = "text"
        else:
            colour = _SGR_TONES.get(code, colour)
    return replace(pen, colour=colour, weight=weight)


def _nearest_tone(index: str | None, red: str | None, green: str | None, blue: str | None) -> Tone:
    """The tone for a colour out of 256, or of red, green and blue (xterm's cube and greys)."""
    if index is not None:
        number = min(255, int(index))
        if number < 16:
            base = number + 30 if number < 8 else number + 82
            return _SGR_TONES.get(str(base), "text")
        if number >= 232:
            return "faint" if number < 244 else "dim" if number < 250 else "text"
        number -= 16
        parts = [number // 36 * 51, number // 6 % 6 * 51, number % 6 * 51]
    else:
        parts = [min(255, int(part or 0)) for part in (red, green, blue)]
    least, most = min(parts), max(parts)
    if most - least < 40:
        return "faint" if most < 130 else "dim" if most < 200 else "text"
    bright = [part > (least + most) / 2 for part in parts]
    names: dict[tuple[bool, ...], Tone] = {
        (True, False, False): "error",
        (False, True, False): "success",
        (True, True, False): "warning",
        (True, False, True): "key",
    }
    return names.get(tuple(bright), "tool")


def join_rows(rows: Sequence[ScreenRow]) -> TextLine:
    """Rows of one line as spans."""
    cells = [cell for row in rows for cell in row.cells]
    tones = [tone for row in rows for tone in row.tones]
    spans: list[TextSpan] = []
    start = 0
    for tone, group in groupby(tones):
        end = start + sum(1 for _ in group)
        spans.append(TextSpan(safe("".join(cells[start:end])), tone))
        start = end
    return tuple(spans)
