"""A unified diff as rows, and these as lines: below each other, or old and new side by side. Pure.

Every line says by its first glyph what happened to it; the ground behind it says it again.
"""

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import Literal, NamedTuple

from rich.cells import cell_len, chop_cells

from houston_console.app.drawing.lines import (
    TAB,
    Ground,
    Line,
    Span,
    fit,
    line,
    span,
    spread,
    width_of,
)
from houston_console.app.files.syntax import coloured
from houston_shared.safe_text import SafeText, safe, safe_line

Kind = Literal[" ", "+", "-", "@", "!"]
"""Unchanged, added, removed, where a part of the file begins, said by git."""
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d{1,9})? \+(\d{1,9})(?:,\d{1,9})? @@")
_HEADS = ("--- ", "+++ ", "diff ", "index ")
GLYPHS: dict[Kind, str] = {" ": " ", "+": "+", "-": "−", "@": "@", "!": " "}
WIDEST = 500
"""Cells that a ground takes at most: what is copied is as wide as its longest line."""
NUMBER = 5
"""Cells of a line's number."""


class Row(NamedTuple):
    """One line of a diff."""

    kind: Kind
    code: Line
    number: int | None
    """Its number in the file: the old one for what was removed, else the new one."""
    old: int | None = None
    """Of an unchanged line, its number in the old file."""


class Stretch(NamedTuple):
    """A stretch of a drawn line, in cells, with what happened there."""

    start: int
    end: int
    kind: Kind


class Drawn(NamedTuple):
    """A line of the screen."""

    line: Line
    grounds: tuple[Stretch, ...] = ()


def rows(path: str, diff: str) -> list[Row]:
    """The rows of a diff, in the colours of its file's kind."""
    found: list[tuple[Kind, SafeText, int | None, int | None]] = []
    old = new = 0
    for text in safe(diff).expandtabs(TAB).split("\n"):
        if not text or (text.startswith(_HEADS) and not old + new):
            continue
        hunk = _HUNK.match(text)
        if hunk:
            old, new = int(hunk[1]), int(hunk[2])
            found.append(("@", safe_line(text), None, None))
        elif text[0] in "+- ":
            kind: Kind = "+" if text[0] == "+" else "-" if text[0] == "-" else " "
            found.append((kind, safe_line(text[1:]), old if kind == "-" else new, old))
            old, new = old + (kind != "+"), new + (kind != "-")
        else:
            found.append(("!", safe_line(text), None, None))
    return _coloured(path, found)


def _coloured(
    path: str, found: Sequence[tuple[Kind, SafeText, int | None, int | None]]
) -> list[Row]:
    """Each side is coloured as a text of its own: a quote that was removed ends nothing."""
    before = [at for at, one in enumerate(found) if one[0] in " -"]
    after = [at for at, one in enumerate(found) if one[0] in " +"]
    code: dict[int, Line] = {}
    for side in (before, after):
        code.update(zip(side, coloured(path, [found[at][1] for at in side]), strict=True))
    return [
        Row(kind, code.get(at, (Span(text, "hunk" if kind == "@" else "dim"),)), number, old)
        for at, (kind, text, number, old) in enumerate(found)
    ]


def unified(found: Sequence[Row], width: int) -> list[Drawn]:
    """One below the other."""
    drawn: list[Drawn] = []
    for row in found:
        for part in _half(row, row.number, width):
            grounds = (Stretch(NUMBER, width, row.kind),) if row.kind in "+-" else ()
            drawn.append(Drawn(part, grounds))
    return drawn


def grounded(found: Sequence[Row], width: int) -> list[Line]:
    """As `unified`, the grounds in the lines themselves."""
    return [_on_ground(one, min(width, WIDEST)) for one in unified(found, width)]


def _on_ground(drawn: Drawn, width: int) -> Line:
    if not drawn.grounds:
        return drawn.line
    kind: Ground = "+" if drawn.grounds[0].kind == "+" else "-"
    number, *code = spread(drawn.line, (), width)
    return (number, *(part._replace(ground=kind) for part in code))


def split(found: Sequence[Row], width: int) -> list[Drawn]:
    """The old file at the left, the new one at the right."""
    half = (width - 1) // 2
    drawn: list[Drawn] = []
    for left, right in _pairs(found):
        if left is not None and left.kind in "@!":
            drawn += [Drawn(part) for part in _half(left, None, width)]
            continue
        one = _half(left, left.old if left.kind == " " else left.number, half) if left else []
        two = _half(right, right.number, half) if right else []
        grounds = (
            *((Stretch(NUMBER, half, "-"),) if left and left.kind == "-" else ()),
            *(
                (Stretch(half + 1 + NUMBER, 2 * half + 1, "+"),)
                if right and right.kind == "+"
                else ()
            ),
        )
        for a, b in zip_longest(one, two, fillvalue=()):
            gap = Span(SafeText(" " * (half - width_of(a))))
            drawn.append(Drawn((*a, gap, span("│", "faint"), *b), grounds))
    return drawn


def _pairs(found: Sequence[Row]) -> list[tuple[Row | None, Row | None]]:
    """What stands side by side: removed lines beside those that were added after them."""
    pairs: list[tuple[Row | None, Row | None]] = []
    removed: list[Row] = []
    added: list[Row] = []
    for row in [*found, Row("!", (), None)]:
        if row.kind == "+":
            added.append(row)
            continue
        if row.kind == "-" and not added:
            removed.append(row)
            continue
        pairs += zip_longest(removed, added)
        removed, added = ([row] if row.kind == "-" else []), []
        if row.kind != "-":
            pairs.append((row, row))
    return pairs[:-1]


def _half(row: Row, number: int | None, width: int) -> list[Line]:
    """One row in as many lines as it needs."""
    if row.kind in "@!":
        return folded(row.code, width)
    shown = fit(f"{number:>{NUMBER - 1}}" if number else "", NUMBER)
    glyph = span(GLYPHS[row.kind], {"+": "added", "-": "removed"}.get(row.kind, "text"))  # type: ignore[arg-type]
    parts = folded(row.code, width - NUMBER - 1)
    edges = [line(Span(shown, "faint"), glyph), line(span(" " * NUMBER), glyph)]
    return [(*edges[min(at, 1)], *part) for at, part in enumerate(parts)]


def folded(parts: Line, width: int) -> list[Line]:
    """Spans in lines of at most `width` cells, broken anywhere: code means its spaces."""
    width = max(4, width)
    found: list[list[Span]] = [[]]
    room = width
    for part in parts:
        text: str = part.text
        while cell_len(text) > room:
            cut = len(chop_cells(text, room)[0]) if room > 1 or cell_len(text[0]) <= room else 0
            if cut:
                found[-1].append(Span(SafeText(text[:cut]), part.tone))
            text = text[cut:]
            found.append([])
            room = width
        if text:
            found[-1].append(Span(SafeText(text), part.tone))
            room -= cell_len(text)
    return [tuple(one) for one in found]
