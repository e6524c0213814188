"""Unified diffs as lines: each says by its first glyph and by its tone what happened to it."""

from houston_console.app.drawing.lines import Line, Span, Tone, block
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
