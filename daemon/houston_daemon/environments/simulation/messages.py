"""What a worker and its simulator say to each other: one JSON object a line, a question each.

The simulator is a program of its own; this module is all that both sides share.
"""

from typing import Any, Literal

import msgspec

Outcome = Literal["", "won", "lost"]
"""Whether the world is over, and how."""


class Open(msgspec.Struct, frozen=True, tag=True):
    """Make the world that `settings` name; first of all, once."""

    settings: dict[str, Any]


class Do(msgspec.Struct, frozen=True, tag=True):
    """Do one thing: a turn."""

    action: str


class Show(msgspec.Struct, frozen=True, tag=True):
    """Look, without a turn."""

    what: Literal["place", "inventory", "actions"]


Question = Open | Do | Show


class Opened(msgspec.Struct, frozen=True, tag=True):
    """The world as it is at its beginning."""

    goal: str
    """What is to be done in it."""
    place: str
    """What one sees first."""


class Seen(msgspec.Struct, frozen=True, tag=True):
    """What a turn gave."""

    text: str
    score: float
    """0 to 100."""
    outcome: Outcome = ""
    turns: int = 0
    """Turns that the world counts."""


class Lines(msgspec.Struct, frozen=True, tag=True):
    """What a look gave."""

    lines: list[str]


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The simulator could not do it; the world is as it was, as far as it knows."""

    why: str


Answer = Opened | Seen | Lines | Refused
