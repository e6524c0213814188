"""Unified diffs as lines: each says by its first glyph and by its tone what happened to it."""

from houston_console.app.lines import Line, Span, Tone, block, line, span
from houston_console.app.records import StepChange
from houston_shared.safe_text import safe

_TONES: dict[str, Tone] = {"+": "added", "-": "removed", "@": "hunk"}


def diff_lines(diff: str, width: int, edge: Span | None = None) -> list[Line]:
    """A unified diff without its two file lines, wrapped to `width`."""
    found: list[Line] = []
    for text in safe(diff).split("\n"):
        if text.startswith(("--- ", "+++ ", "diff ", "index ")) or not text:
            continue
        glyph = "−" if text[0] == "-" else text[0]
        found += block(glyph + text[1:], width, _TONES.get(text[0], "dim"), edge)
    return found


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
