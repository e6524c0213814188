"""The lines of the guidance queue, and the text as the agent reads it. Pure."""

from houston_console.app.drawing.lines import Line, Span, Tone, fit, line, plain, span, spread
from houston_console.app.speaking.entries import Entry
from houston_shared import real_user
from houston_shared.records import Delivered

ENTRIES: dict[str, tuple[str, Tone]] = {
    "unsent": ("◌", "warning"),
    "refused": ("✗", "error"),
    "queued": ("○", "guidance"),
    "delivered": ("●", "success"),
    "withdrawn": ("⊘", "faint"),
}
"""Glyph and tone of each state of guidance."""
_MODES = {"next": "", "wake": "wake ", "interrupt": "interrupt "}


def entry_line(one: Entry, width: int) -> Line:
    """One message of the queue: state, who, what."""
    glyph, tone = ENTRIES[one.state]
    state = f"step {one.step}" if one.state == "delivered" else one.state
    author = one.author if one.verified else f"{one.author}?"
    left = line(
        span(f" {glyph} ", tone),
        Span(fit(state, 11), tone),
        span(_MODES[one.mode], "warning"),
        span(f"{author}  ", "key"),
        span(one.text, "faint" if one.state == "withdrawn" else "text"),
    )
    right = line(span(f" {one.reason} ", "error")) if one.reason else ()
    return spread(left, _cut(right, width // 2), width)


def _cut(parts: Line, width: int) -> Line:
    """At most `width` cells of a line."""
    text = plain(parts)
    return parts if len(text) <= width or not parts else (Span(fit(text, width), parts[0].tone),)


def as_heard(text: str) -> str:
    """The exact text that the agent will see for a message."""
    return real_user.render([Delivered(id="", author="", text=text)]).strip("\n")
