"""What a worker and its simulator say to each other, and the simulator's side of it.

Each message is one JSON object a line, a question each. The simulator answers from stdin until it
ends, or until its parent does.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

from houston_daemon.service.parent_death import end_with_parent

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


class World(Protocol):
    """One world of a simulator."""

    def opened(self) -> Opened:
        """The world at its beginning."""
        ...

    def do(self, action: str) -> Seen:
        """One turn."""
        ...

    def show(self, aspect: str) -> list[str]:
        """A look, which changes nothing."""
        ...


class Impossible(Exception):
    """The settings name no world that can be made; the text says why."""


def serve(make: Callable[[dict[str, Any]], World]) -> None:
    """Answer until stdin ends. make: a world of the settings; may raise Impossible."""
    if not end_with_parent(int(sys.argv[1])):
        return
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    decoder = msgspec.json.Decoder(Question)
    encoder = msgspec.json.Encoder()
    world: World | None = None
    for line in sys.stdin.buffer:
        answer: Answer
        try:
            question = decoder.decode(line)
            if isinstance(question, Open):
                world = make(question.settings)
                answer = world.opened()
            elif world is None:
                answer = Refused("no world is open")
            elif isinstance(question, Do):
                answer = world.do(question.action)
            else:
                answer = Lines(world.show(question.what))
        except Impossible as problem:
            answer = Refused(str(problem))
        answers.write(encoder.encode(answer) + b"\n")
