"""How far an agent is on the way of a known solution, read from what it did."""

from collections.abc import Sequence
from typing import NamedTuple

FINISH = "finish"


class Progress(NamedTuple):
    """Where an agent stands."""

    done: int
    """Commands of the solution that were done, in order; others may lie between."""
    idle: int
    """Latest steps in a row that brought it no further."""
    on_the_way: tuple[bool, ...]
    """By step, whether it was the next command of the solution, or ended a solved world."""


def progress(solution: Sequence[str], actions: Sequence[str]) -> Progress:
    """Compare.

    actions: what each step did: the command, `finish`, or another tool's name; one a step.
    """
    done, idle, on_the_way = 0, 0, []
    for action in actions:
        solved = done == len(solution)
        forward = action == FINISH if solved else plain(action) == plain(solution[done])
        done += forward and not solved
        idle = 0 if forward else idle + 1
        on_the_way.append(forward)
    return Progress(done, idle, tuple(on_the_way))


def plain(command: str) -> str:
    """A command as it is compared: small letters, single spaces."""
    return " ".join(command.lower().split())
