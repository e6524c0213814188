"""The lines of files, their history, and searches. Pure."""

from typing import NamedTuple

from houston_console.app.drawing.lines import Line, block, flow, line, span, spread
from houston_console.app.files import diffs
from houston_console.app.files.diffs import Drawn, Row
from houston_shared.clock import local
from houston_shared.store.queries.file_history import FileRow, Made, StepChange
from houston_shared.store.queries.world import Search

_GLYPHS = {"added": "+", "removed": "−"}
WIDE = 120
"""Cells from which old and new stand side by side, unless somebody says otherwise."""


class Change(NamedTuple):
    """One change of one file, its diff read and coloured."""

    made: StepChange
    rows: list[Row]


def read(made: StepChange) -> Change:
    """Read a diff; takes some milliseconds for a long one."""
    return Change(made, diffs.rows(made.change.path, made.change.diff))


def file_line(one: FileRow, width: int) -> Line:
    """One file over the rollout."""
    right = line(
        span(f" {one.changes}× ", "faint"),
        span(f"+{one.added}", "added"),
        span(f" −{one.removed} ", "removed"),
        span(f"{one.last_step:>5} ", "number"),
    )
    glyph = _GLYPHS.get(one.kind, "±")
    return spread(line(span(f" {glyph} ", "dim"), span(one.path)), right, width)


def made_line(one: Made, width: int) -> Line:
    """One change of a file: which step, by what, when."""
    right = line(
        span(f" +{one.added}", "added"),
        span(f" −{one.removed} ", "removed"),
        span(f" {local(one.at)[5:16]} ", "faint"),
    )
    left = line(
        span(f" {_GLYPHS.get(one.kind, '±')} ", "dim"),
        span(f"step {one.step:<5}", "number"),
        span(" agent ", "dim"),
        span(one.tools or "no call", "tool"),
    )
    return spread(left, right, width)


def search_line(one: Search, width: int) -> Line:
    """One search that the agent made."""
    right = line(span(f" {one.results} found ", "faint"), span(f"{one.step:>5} ", "number"))
    left = line(span(" ⌕ ", "dim"), span(f"{one.kind} ", "tool"), span(one.query))
    return spread(left, right, width)


def change_lines(one: Change, width: int, side_by_side: bool) -> list[Drawn]:
    """One change of one file: where it was made, then its diff."""
    made, change = one.made, one.made.change
    title = flow(
        [
            line(span(f"step {made.step} ", "number"), span(change.path, "key")),
            line(span(f"  {change.kind}", "dim")),
            line(span(f"  +{change.added}", "added"), span(f" −{change.removed}", "removed")),
        ],
        width,
    )
    make = diffs.split if side_by_side else diffs.unified
    body = make(one.rows, width)
    if change.note or not body:
        body += [Drawn(row) for row in block(change.note or "no text to compare", width, "dim")]
    return [*(Drawn(row) for row in title), *body, Drawn(())]


def result_lines(one: Search, text: str, width: int) -> list[Drawn]:
    """What a search asked and what it got."""
    head = [
        line(span(f"step {one.step} ", "number"), span(f"{one.kind} ", "tool")),
        line(span(one.query, "strong")),
        line(span(f"  {one.results} found", "dim")),
    ]
    found = [*flow(head, width), (), *(block(text, width) if text else [])]
    return [Drawn(row) for row in found]
