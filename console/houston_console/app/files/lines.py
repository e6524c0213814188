"""The lines of files, their changes, and searches. Pure."""

from houston_console.app.drawing.diff_lines import diff_lines
from houston_console.app.drawing.lines import Line, line, span, spread
from houston_console.app.files.plans import FileRow, StepChange
from houston_shared.store.queries.world import Search


def file_line(one: FileRow, width: int) -> Line:
    """One file over the rollout."""
    glyph = {"added": "+", "removed": "−"}.get(one.kind, "±")
    right = line(
        span(f" {one.changes}× ", "faint"),
        span(f"+{one.added}", "added"),
        span(f" −{one.removed} ", "removed"),
        span(f"{one.last_step:>5} ", "number"),
    )
    return spread(line(span(f" {glyph} ", "dim"), span(one.path)), right, width)


def search_line(one: Search, width: int) -> Line:
    """One search that the agent made."""
    right = line(span(f" {one.results} found ", "faint"), span(f"{one.step:>5} ", "number"))
    left = line(span(" ⌕ ", "dim"), span(f"{one.kind} ", "tool"), span(one.query))
    return spread(left, right, width)


def change_lines(made: StepChange, width: int) -> list[Line]:
    """One change of one file: where it was made, then its diff."""
    change = made.change
    title = line(
        span(f"step {made.step} ", "number"),
        span(change.path, "key"),
        span(f"  {change.kind}", "dim"),
        span(f"  +{change.added}", "added"),
        span(f" −{change.removed}", "removed"),
    )
    body = diff_lines(change.diff, width)
    if not body:
        body = [line(span(change.note or "no text to compare", "dim"))]
    return [title, *body, ()]
