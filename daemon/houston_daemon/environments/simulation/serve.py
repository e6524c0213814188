"""The simulator's side: answers questions from stdin until it ends, or until its parent does.

Runs in the child process. Whatever a simulator prints goes to stderr: stdout is for answers.
"""

import os
import sys
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from houston_daemon.environments.simulation import messages as said
from houston_daemon.service.tether import tie


class World(Protocol):
    """One world of a simulator."""

    def opened(self) -> said.Opened:
        """The world at its beginning."""
        ...

    def do(self, action: str) -> said.Seen:
        """One turn."""
        ...

    def show(self, what: str) -> list[str]:
        """A look, which changes nothing."""
        ...


class Impossible(Exception):
    """The settings name no world that can be made; the text says why."""


def serve(make: Callable[[dict[str, Any]], World]) -> None:
    """Answer until stdin ends. make: a world of the settings; may raise Impossible."""
    if not tie(int(sys.argv[1])):
        return
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    decoder = msgspec.json.Decoder(said.Question)
    encoder = msgspec.json.Encoder()
    world: World | None = None
    for line in sys.stdin.buffer:
        answer: said.Answer
        try:
            question = decoder.decode(line)
            if isinstance(question, said.Open):
                world = make(question.settings)
                answer = world.opened()
            elif world is None:
                answer = said.Refused("no world is open")
            elif isinstance(question, said.Do):
                answer = world.do(question.action)
            else:
                answer = said.Lines(world.show(question.what))
        except Impossible as problem:
            answer = said.Refused(str(problem))
        answers.write(encoder.encode(answer) + b"\n")
