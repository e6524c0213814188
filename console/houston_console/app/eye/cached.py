"""How far into a request the engine's cache reached: a place in its text, in a message. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from houston_console.app.drawing.lines import Line, line, span
from houston_shared.records import Message


class Reach(NamedTuple):
    """Where what the engine had already ends."""

    tokens: int
    of: int
    """Tokens of the whole prompt."""
    characters: int | None
    """Of the rendered text; None where that cannot be told."""


class Place(NamedTuple):
    """A place in the messages."""

    number: int
    """Of the message, from 0; one behind the last for the end."""
    offset: int
    """Characters of its content before the place; 0 for before the message."""


def place(rendered: str, messages: Sequence[Message], characters: int) -> Place:
    """Where so many characters of the rendered text end in the messages that it was made from."""
    at = 0
    for index, one in enumerate(messages):
        begins = rendered.find(one.content, at) if one.content else -1
        if begins < 0:
            continue
        if characters <= begins:
            return Place(index, 0)
        if characters < begins + len(one.content):
            return Place(index, characters - begins)
        at = begins + len(one.content)
    return Place(len(messages), 0)


def rule(reach: Reach, width: int) -> Line:
    """The line between what was there and what was not."""
    words = f" ↑ from the engine's cache: {reach.tokens:,} of {reach.of:,} tokens "
    return line(span(f"──{words}".ljust(width, "─")[:width], "hunk"))


def before_line(text: str, characters: int) -> int:
    """The start of the line that a place is in: rules stand between lines."""
    return text.rfind("\n", 0, characters) + 1
