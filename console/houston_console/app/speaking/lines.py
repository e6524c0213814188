"""The lines of the guidance queue, and the text as the agent reads it. Pure."""

from datetime import UTC, datetime

from houston_console.app.drawing.lines import (
    Line,
    Span,
    Tone,
    block,
    fit,
    line,
    plain,
    span,
    spread,
)
from houston_console.app.speaking.entries import Entry
from houston_console.app.speaking.plans import Followed
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


def heard_lines(text: str, width: int, most: int, never: bool = False) -> list[Line]:
    """What the agent reads, in `most` lines; how much more there is takes the last of them.

    never: it was withdrawn or refused, so that the agent will not.
    """
    mark = span(" never heard " if never else " agent reads ", "faint")
    pad = span(" " * len(mark.text))
    wrapped = block(as_heard(text), width - len(mark.text), "guidance_text")
    lines = [(mark if not at else pad, *one) for at, one in enumerate(wrapped)]
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], line(pad, span(f"… {len(lines) - most + 1} more lines", "dim"))]


def fate_lines(one: Entry, followed: Followed | None, width: int) -> list[Line]:
    """Who said a message and when, where it was heard, and what the agent did next.

    Of what was refused: why, in full.
    """
    if one.reason:
        return block(one.reason, width, "error", span("             "))
    if not one.queued_at:
        return []
    told = f"{one.author} said it {local(one.queued_at)}"
    if one.state == "delivered":
        told += f"; heard at step {one.step}, {local(one.delivered_at)}"
    parts = [line(span("             "), span(fit(told, width - 13), "dim"))]
    if followed is None or followed.id != one.id:
        return parts
    for at, acted in enumerate(followed.steps):
        head = span("        then " if not at else "             ", "faint")
        number = span(f"{acted.step:>5} ", "number")
        parts.append(line(head, number, span(fit(acted.text, width - 19))))
    if one.state == "delivered" and not followed.steps:
        parts.append(line(span("        then ", "faint"), span("no step yet", "dim")))
    return parts


def local(at: str) -> str:
    """A time of JSON as the person's clock shows it, with the day where it is another."""
    when = datetime.fromisoformat(at).astimezone()
    today = when.date() == datetime.now(UTC).astimezone().date()
    return when.strftime("%H:%M" if today else "%d %b %H:%M")


def _cut(parts: Line, width: int) -> Line:
    """At most `width` cells of a line."""
    text = plain(parts)
    return parts if len(text) <= width or not parts else (Span(fit(text, width), parts[0].tone),)


def as_heard(text: str) -> str:
    """The exact text that the agent will see for a message."""
    return real_user.render([Delivered(id="", author="", text=text)]).strip("\n")
