"""Diffs as lines: unified or side by side, with syntax colours; also lines of files and searches.

Pure. Pygments is asked for tokens only, of text that is safe already. Every line says by its
first glyph what happened to it; the background behind it says it again.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from rich.cells import cell_len, chop_cells

from houston_console.widgets.styled_text import (
    TAB_COLUMNS,
    DiffBackground,
    TextLine,
    TextSpan,
    Tone,
    fit_text,
    flow_groups,
    justify_line,
    line,
    line_width,
    span,
    text_block,
)
from houston_shared.safe_text import SafeText, safe, safe_line
from houston_shared.store.workspace_queries import (
    FileEditRow,
    FileHistoryRow,
    RecordedFileEdit,
    SearchRow,
)
from houston_shared.times_and_counts import local_time

MAX_COLOURED_CHARACTERS = 64 * 1024
"""Characters of one side of a diff that are coloured; more is shown plain."""
_TOKEN_TONES: tuple[tuple[str, Tone], ...] = (
    ("Token.Comment", "code_comment"),
    ("Token.Literal.String", "code_string"),
    ("Token.Literal.Number", "code_number"),
    ("Token.Keyword", "code_keyword"),
    ("Token.Operator.Word", "code_keyword"),
    ("Token.Name.Function", "code_name"),
    ("Token.Name.Class", "code_name"),
    ("Token.Name.Decorator", "code_name"),
    ("Token.Name.Tag", "code_keyword"),
    ("Token.Generic.Heading", "code_name"),
)


def highlight_code(path: str, rows: Sequence[SafeText]) -> list[TextLine]:
    """Lines of one file, each as spans; plain where the kind of file is not known."""
    text = "\n".join(rows)
    lexer = _find_lexer(path.rpartition("/")[2]) if len(text) <= MAX_COLOURED_CHARACTERS else None
    lines = _token_lines(lexer, text) if lexer is not None else []
    # A lexer that changes what it reads is not believed.
    if [("".join(part.text for part in row)) for row in lines] != list(rows):
        return [(TextSpan(row),) for row in rows]
    return lines


def _token_lines(lexer: Any, text: str) -> list[TextLine]:
    rows: list[list[TextSpan]] = [[]]
    for kind, value in lexer.get_tokens(text):
        tone = _token_tone(str(kind))
        for number, piece in enumerate(value.split("\n")):
            if number:
                rows.append([])
            if piece and rows[-1] and rows[-1][-1].tone == tone:
                piece = rows[-1].pop().text + piece
            if piece:
                rows[-1].append(TextSpan(safe_line(piece), tone))
    return [tuple(row) for row in rows]


@lru_cache(maxsize=512)
def _token_tone(kind: str) -> Tone:
    return next((tone for begins, tone in _TOKEN_TONES if kind.startswith(begins)), "text")


@lru_cache(maxsize=64)
def _find_lexer(name: str) -> Any:
    from pygments.lexers import get_lexer_for_filename  # only here: 30 ms that few screens need
    from pygments.util import ClassNotFound

    try:
        return get_lexer_for_filename(name, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


DiffRowKind = Literal[" ", "+", "-", "@", "!"]
"""Unchanged, added, removed, where a part of the file begins, said by git."""
_HUNK_HEADER = re.compile(r"@@ -(\d{1,9})(?:,\d{1,9})? \+(\d{1,9})(?:,\d{1,9})? @@")
_FILE_HEADERS = ("--- ", "+++ ", "diff ", "index ")
DIFF_GLYPHS: dict[DiffRowKind, str] = {" ": " ", "+": "+", "-": "−", "@": "@", "!": " "}
MAX_BACKGROUND_CELLS = 500
"""Cells that a background takes at most: what is copied is as wide as its longest line."""
LINE_NUMBER_CELLS = 5
"""Cells of a line's number."""


class DiffRow(NamedTuple):
    """One line of a diff."""

    kind: DiffRowKind
    code: TextLine
    number: int | None
    """Its number in the file: the old one for what was removed, else the new one."""
    old: int | None = None
    """Of an unchanged line, its number in the old file."""


class BackgroundRange(NamedTuple):
    """A stretch of a drawn line, in cells, with what happened there."""

    start: int
    end: int
    kind: DiffRowKind


class DrawnLine(NamedTuple):
    """A line of the screen."""

    line: TextLine
    backgrounds: tuple[BackgroundRange, ...] = ()


def parse_diff(path: str, diff: str) -> list[DiffRow]:
    """The rows of a diff, in the colours of its file's kind."""
    rows: list[tuple[DiffRowKind, SafeText, int | None, int | None]] = []
    old = new = 0
    for text in safe(diff).expandtabs(TAB_COLUMNS).split("\n"):
        if not text or (text.startswith(_FILE_HEADERS) and not old + new):
            continue
        hunk = _HUNK_HEADER.match(text)
        if hunk:
            old, new = int(hunk[1]), int(hunk[2])
            rows.append(("@", safe_line(text), None, None))
        elif text[0] in "+- ":
            kind: DiffRowKind = "+" if text[0] == "+" else "-" if text[0] == "-" else " "
            rows.append((kind, safe_line(text[1:]), old if kind == "-" else new, old))
            old, new = old + (kind != "+"), new + (kind != "-")
        else:
            rows.append(("!", safe_line(text), None, None))
    return _highlight_sides(path, rows)


def _highlight_sides(
    path: str, rows: Sequence[tuple[DiffRowKind, SafeText, int | None, int | None]]
) -> list[DiffRow]:
    """Each side is coloured as a text of its own: a quote that was removed ends nothing."""
    before = [at for at, row in enumerate(rows) if row[0] in " -"]
    after = [at for at, row in enumerate(rows) if row[0] in " +"]
    code: dict[int, TextLine] = {}
    for side in (before, after):
        code.update(zip(side, highlight_code(path, [rows[at][1] for at in side]), strict=True))
    return [
        DiffRow(
            kind, code.get(at, (TextSpan(text, "hunk" if kind == "@" else "dim"),)), number, old
        )
        for at, (kind, text, number, old) in enumerate(rows)
    ]


def unified_diff_lines(rows: Sequence[DiffRow], width: int) -> list[DrawnLine]:
    """The lines of a diff, one below the other."""
    drawn: list[DrawnLine] = []
    for row in rows:
        for part in _half_row(row, row.number, width):
            changed = BackgroundRange(LINE_NUMBER_CELLS, width, row.kind)
            drawn.append(DrawnLine(part, (changed,) if row.kind in "+-" else ()))
    return drawn


def unified_diff_with_backgrounds(rows: Sequence[DiffRow], width: int) -> list[TextLine]:
    """As `unified_diff_lines`, the backgrounds in the lines themselves."""
    return [
        _line_with_background(drawn, min(width, MAX_BACKGROUND_CELLS))
        for drawn in unified_diff_lines(rows, width)
    ]


def _line_with_background(drawn: DrawnLine, width: int) -> TextLine:
    if not drawn.backgrounds:
        return drawn.line
    kind: DiffBackground = "+" if drawn.backgrounds[0].kind == "+" else "-"
    number, *code = justify_line(drawn.line, (), width)
    return (number, *(part._replace(background=kind) for part in code))


def side_by_side_diff_lines(rows: Sequence[DiffRow], width: int) -> list[DrawnLine]:
    """The old file at the left, the new one at the right."""
    half = (width - 1) // 2
    drawn: list[DrawnLine] = []
    for left, right in _pair_rows(rows):
        if left is not None and left.kind in "@!":
            drawn += [DrawnLine(part) for part in _half_row(left, None, width)]
            continue
        old = _half_row(left, left.old if left.kind == " " else left.number, half) if left else []
        new = _half_row(right, right.number, half) if right else []
        backgrounds: tuple[BackgroundRange, ...] = ()
        if left and left.kind == "-":
            backgrounds += (BackgroundRange(LINE_NUMBER_CELLS, half, "-"),)
        if right and right.kind == "+":
            start = half + 1 + LINE_NUMBER_CELLS
            backgrounds += (BackgroundRange(start, 2 * half + 1, "+"),)
        for a, b in zip_longest(old, new, fillvalue=()):
            gap = TextSpan(SafeText(" " * (half - line_width(a))))
            drawn.append(DrawnLine((*a, gap, span("│", "faint"), *b), backgrounds))
    return drawn


def _pair_rows(rows: Sequence[DiffRow]) -> list[tuple[DiffRow | None, DiffRow | None]]:
    """What stands side by side: removed lines beside those that were added after them."""
    pairs: list[tuple[DiffRow | None, DiffRow | None]] = []
    removed: list[DiffRow] = []
    added_rows: list[DiffRow] = []
    for row in [*rows, DiffRow("!", (), None)]:
        if row.kind == "+":
            added_rows.append(row)
            continue
        if row.kind == "-" and not added_rows:
            removed.append(row)
            continue
        pairs += zip_longest(removed, added_rows)
        removed, added_rows = ([row] if row.kind == "-" else []), []
        if row.kind != "-":
            pairs.append((row, row))
    return pairs[:-1]


def _half_row(row: DiffRow, number: int | None, width: int) -> list[TextLine]:
    """One row in as many lines as it needs."""
    if row.kind in "@!":
        return hard_wrap_spans(row.code, width)
    number_text = fit_text(
        f"{number:>{LINE_NUMBER_CELLS - 1}}" if number else "", LINE_NUMBER_CELLS
    )
    glyph = span(DIFF_GLYPHS[row.kind], {"+": "added", "-": "removed"}.get(row.kind, "text"))  # type: ignore[arg-type]
    parts = hard_wrap_spans(row.code, width - LINE_NUMBER_CELLS - 1)
    edges = [
        line(TextSpan(number_text, "faint"), glyph),
        line(span(" " * LINE_NUMBER_CELLS), glyph),
    ]
    return [(*edges[min(at, 1)], *part) for at, part in enumerate(parts)]


def hard_wrap_spans(parts: TextLine, width: int) -> list[TextLine]:
    """Spans in lines of at most `width` cells, broken anywhere: code means its spaces."""
    width = max(4, width)
    rows: list[list[TextSpan]] = [[]]
    room = width
    for part in parts:
        text: str = part.text
        while cell_len(text) > room:
            cut = len(chop_cells(text, room)[0]) if room > 1 or cell_len(text[0]) <= room else 0
            if cut:
                rows[-1].append(TextSpan(SafeText(text[:cut]), part.tone))
            text = text[cut:]
            rows.append([])
            room = width
        if text:
            rows[-1].append(TextSpan(SafeText(text), part.tone))
            room -= cell_len(text)
    return [tuple(row) for row in rows]


_CHANGE_GLYPHS = {"added": "+", "removed": "−"}
SIDE_BY_SIDE_MIN_CELLS = 120
"""Cells from which old and new stand side by side, unless somebody says otherwise."""


class ParsedChange(NamedTuple):
    """One change of one file, its diff read and coloured."""

    edit: RecordedFileEdit
    rows: list[DiffRow]


def parse_change(edit: RecordedFileEdit) -> ParsedChange:
    """Read a diff; takes some milliseconds for a long one."""
    return ParsedChange(edit, parse_diff(edit.change.path, edit.change.diff))


def file_line(file: FileHistoryRow, width: int) -> TextLine:
    """One file, with its changes over the whole rollout."""
    right = line(
        span(f" {file.changes}× ", "faint"),
        span(f"+{file.added}", "added"),
        span(f" −{file.removed} ", "removed"),
        span(f"{file.last_step:>5} ", "number"),
    )
    glyph = _CHANGE_GLYPHS.get(file.kind, "±")
    return justify_line(line(span(f" {glyph} ", "dim"), span(file.path)), right, width)


def file_change_line(edit: FileEditRow, width: int) -> TextLine:
    """One change of a file: which step, by what, when."""
    right = line(
        span(f" +{edit.added}", "added"),
        span(f" −{edit.removed} ", "removed"),
        span(f" {local_time(edit.at)[5:16]} ", "faint"),
    )
    left = line(
        span(f" {_CHANGE_GLYPHS.get(edit.kind, '±')} ", "dim"),
        span(f"step {edit.step:<5}", "number"),
        span(" agent ", "dim"),
        span(edit.tools or "no call", "tool"),
    )
    return justify_line(left, right, width)


def agent_search_line(search: SearchRow, width: int) -> TextLine:
    """One search that the agent made."""
    right = line(span(f" {search.results} found ", "faint"), span(f"{search.step:>5} ", "number"))
    left = line(span(" ⌕ ", "dim"), span(f"{search.kind} ", "tool"), span(search.query))
    return justify_line(left, right, width)


def change_lines(parsed: ParsedChange, width: int, side_by_side: bool) -> list[DrawnLine]:
    """One change of one file: where it was made, then its diff."""
    edit, change = parsed.edit, parsed.edit.change
    title = flow_groups(
        [
            line(span(f"step {edit.step} ", "number"), span(change.path, "key")),
            line(span(f"  {change.kind}", "dim")),
            line(span(f"  +{change.added}", "added"), span(f" −{change.removed}", "removed")),
        ],
        width,
    )
    make = side_by_side_diff_lines if side_by_side else unified_diff_lines
    body = make(parsed.rows, width)
    if change.note or not body:
        body += [
            DrawnLine(row) for row in text_block(change.note or "no text to compare", width, "dim")
        ]
    return [*(DrawnLine(row) for row in title), *body, DrawnLine(())]


def result_lines(search: SearchRow, text: str, width: int) -> list[DrawnLine]:
    """What a search asked and what it got."""
    head = [
        line(span(f"step {search.step} ", "number"), span(f"{search.kind} ", "tool")),
        line(span(search.query, "strong")),
        line(span(f"  {search.results} found", "dim")),
    ]
    lines = [*flow_groups(head, width), (), *(text_block(text, width) if text else [])]
    return [DrawnLine(row) for row in lines]
