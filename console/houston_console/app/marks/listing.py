"""Bookmarks and notes of a rollout as one list, by step. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from houston_console.app.drawing.lines import Line, fit, line, span, spread
from houston_console.app.transcript.margin import BOOKMARK, NOTE
from houston_shared.clock import local
from houston_shared.store.queries.people import Bookmark, Note


class Mark(NamedTuple):
    """One line of the list."""

    step: int
    at: int
    author: str
    text: str
    """A note's; empty for a bookmark alone."""


def marks(bookmarks: Sequence[Bookmark], notes: Sequence[Note]) -> list[Mark]:
    """Everything that people left, by step and time; a bookmark with its note is one line."""
    noted = {(one.step, one.author) for one in notes}
    found = [Mark(one.step, one.at, one.author, one.text) for one in notes]
    found += [
        Mark(one.step, one.at, one.author, "")
        for one in bookmarks
        if (one.step, one.author) not in noted
    ]
    return sorted(found)


def mark_line(one: Mark, width: int) -> Line:
    """Step, author, the note's words; the time on the right."""
    glyph = NOTE if one.text else BOOKMARK
    left = line(
        span(f" {one.step:>6} ", "number"),
        span(f"{glyph} ", "key"),
        span(f"{fit(one.author, 10)} ", "tool"),
        span(" ".join(one.text.split())),
    )
    when = local(one.at)[5:16]  # month, day, hour, minute
    return spread(left, line(span(f"  {when} ", "faint")), width)
