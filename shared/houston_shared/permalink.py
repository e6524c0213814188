"""`R@STEP`: how a step is named so that it can be pasted into any command that takes one.

The console copies it, commands print it; a rollout's id never holds an @.
"""

from typing import NamedTuple

from houston_shared.errors import ExitCode, HoustonError
from houston_shared.flags import LARGEST


class Place(NamedTuple):
    """A rollout as somebody named it, and steps of it."""

    rollout: str
    first: int = 0
    """0 where no step is named."""
    last: int = 0


def made(rollout: str, step: int) -> str:
    """The permalink of a step."""
    return f"{rollout}@{step}"


def split(text: str) -> Place:
    """`R`, `R@STEP` or `R@STEP-STEP`; raises HoustonError (2) where the steps are none."""
    rollout, at, numbers = text.partition("@")
    return Place(rollout, *span(numbers)) if at else Place(rollout)


def one(text: str, step: int | None = None) -> tuple[str, int]:
    """The rollout and the one step that `R@STEP`, or R and a step of its own, name; 0 for none.

    Raises HoustonError (2) for a range, and for a step that is named twice.
    """
    place = split(text)
    if place.first != place.last or (step and place.first):
        raise HoustonError(
            "Name one step, once.", "Nothing was done.", "R@STEP, or R and STEP", ExitCode.USAGE
        )
    return place.rollout, step or place.first


def span(text: str) -> tuple[int, int]:
    """`STEP` or `STEP-STEP`, both included; raises HoustonError (2)."""
    first, dash, last = text.partition("-")
    ends = [first, last] if dash else [first, first]
    if not all(one.isascii() and one.isdigit() and len(one) <= 12 for one in ends):
        raise _none(text)
    low, high = map(int, ends)
    if not 1 <= low <= high <= LARGEST:
        raise _none(text)
    return low, high


def _none(text: str) -> HoustonError:
    said = text if len(text) <= 40 else f"{text[:40]}…"
    return HoustonError(
        f"{said!r} is not a step such as 7, nor a range such as 7-12.", code=ExitCode.USAGE
    )
