"""Scores over active time, drawn with characters: one mark for each evaluation.

Pure. Series differ by glyph and by tone, so that they can be told apart without colours.
"""

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from houston_console.app.drawing.lines import Line, Span, Tone, span

AXIS = 5
"""Cells left of the plot."""
TOP = 100.0
BOTH = "◈"
"""Where two evaluations fall into one cell."""


class Series(NamedTuple):
    """One rollout's scores."""

    points: Sequence[tuple[float, float]]
    """(active time in hours, score), in order of time."""
    glyph: str
    held: str
    """Drawn between two evaluations."""
    tone: Tone
    marks: Sequence[float] = ()
    """Hours at which it heard guidance."""


_Cell = tuple[str, Tone]


def plot(series: Sequence[Series], hours: float, width: int, height: int) -> list[Line]:
    """`height` lines for the scores, two for the axis, one for the guidance of each series.

    hours: active time at the right edge.
    """
    columns, hours = max(8, width - AXIS), max(hours, 1e-6)
    top = max([TOP, *(score for one in series for _, score in one.points)])
    grid: list[list[_Cell]] = [[(" ", "text")] * columns for _ in range(height)]
    for one in series:
        _draw(grid, one, hours, top)
    rows = [_row(grid[y], _label(y, height, top)) for y in range(height)]
    rows += [_axis(columns), _times(columns, hours)]
    return rows + [_marks(one, columns, hours) for one in series if one.marks]


def _column(at: float, hours: float, columns: int) -> int:
    return min(columns - 1, int(at / hours * columns))


def _draw(grid: list[list[_Cell]], one: Series, hours: float, top: float) -> None:
    height, columns = len(grid), len(grid[0])
    places = [
        (_column(at, hours, columns), height - 1 - min(height - 1, int(score / top * height)))
        for at, score in one.points
    ]
    for (x, y), (end, _) in pairwise([*places, (columns, 0)]):
        for between in range(x + 1, end):
            if grid[y][between][0] == " ":
                grid[y][between] = (one.held, one.tone)
    for x, y in places:
        taken = grid[y][x][0] not in (" ", one.held, one.glyph, "─", "┄")
        grid[y][x] = (BOTH, "strong") if taken else (one.glyph, one.tone)


def _row(cells: Sequence[_Cell], label: str) -> Line:
    found: list[Span] = [span(f"{label:>{AXIS - 1}}", "faint"), span("│", "faint")]
    for tone, run in groupby(cells, key=lambda cell: cell[1]):
        found.append(span("".join(character for character, _ in run), tone))
    return tuple(found)


def _label(y: int, height: int, top: float) -> str:
    if y == 0:
        return f"{top:g}"
    if y == height // 2:
        return f"{top / 2:g}"
    return "0" if y == height - 1 else ""


def _axis(columns: int) -> Line:
    return (span(f"{'':>{AXIS - 1}}└{'─' * columns}", "faint"),)


def _times(columns: int, hours: float) -> Line:
    """Active time at the start, in the middle and at the right edge."""
    texts = ["0", _hours(hours / 2), f"{_hours(hours)} active"]
    left = columns // 2 - len(texts[0]) - len(texts[1]) // 2
    right = columns - len(texts[0]) - left - len(texts[1]) - len(texts[2])
    if right < 1:  # no room for the one in the middle
        texts[1], left, right = "", 0, columns - len(texts[0]) - len(texts[2])
    text = texts[0] + " " * left + texts[1] + " " * right + texts[2]
    return (span(" " * AXIS + text[:columns], "faint"),)


def _hours(hours: float) -> str:
    minutes = round(hours * 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02}"


def _marks(one: Series, columns: int, hours: float) -> Line:
    """Where guidance was heard."""
    cells = [" "] * columns
    for at in one.marks:
        cells[_column(at, hours, columns)] = "✎"
    return (span(f"{one.glyph:>{AXIS - 1}} ", one.tone), span("".join(cells), "guidance"))
