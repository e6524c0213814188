"""A curve in braille characters: two by four dots in each cell, so 4 levels a line of the screen.

Dots of a cell are bits of the characters from U+2800 on (Unicode 15.0, chapter 21.1). Points are
joined by straight lines. It knows neither scores nor colours.
"""

from collections.abc import Sequence
from itertools import pairwise

DOT_COLUMNS, DOT_ROWS = 2, 4
"""Dots of one cell."""
_BLANK = 0x2800
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bit of each dot, by its column and row in the cell."""

ChartPoint = tuple[float, float]
"""x and y, each from 0 to 1; y rises upwards."""


def draw_curve(points: Sequence[ChartPoint], width: int, height: int) -> list[str]:
    """The points in the order of x, joined, in `height` lines of `width` cells, the top first.

    A single point is one dot; what lies outside of 0 to 1 is drawn at the edge. A cell without a
    dot is a space: not every font has the empty braille character.
    """
    if width < 1 or height < 1:
        return []
    cells = [[_BLANK] * width for _ in range(height)]
    dots = [_dot_of(point, width, height) for point in points]
    for column, row in dots[:1]:
        _set_dot(cells, column, row)
    for start, end in pairwise(dots):
        _join(cells, start, end)
    return ["".join(map(chr, row)).replace(chr(_BLANK), " ") for row in cells]


def _dot_of(point: ChartPoint, width: int, height: int) -> tuple[int, int]:
    """Column and row of a point among all dots, counted from the top left."""
    x, y = (min(1.0, max(0.0, value)) for value in point)
    return round(x * (width * DOT_COLUMNS - 1)), round((1.0 - y) * (height * DOT_ROWS - 1))


def _join(cells: list[list[int]], start: tuple[int, int], end: tuple[int, int]) -> None:
    """Set every dot of a straight line, as many as its longer side has."""
    (x, y), (to_x, to_y) = start, end
    length = max(abs(to_x - x), abs(to_y - y), 1)
    for at in range(length + 1):
        share = at / length
        _set_dot(cells, round(x + (to_x - x) * share), round(y + (to_y - y) * share))


def _set_dot(cells: list[list[int]], column: int, row: int) -> None:
    bit = _DOTS[column % DOT_COLUMNS][row % DOT_ROWS]
    cells[row // DOT_ROWS][column // DOT_COLUMNS] |= bit
