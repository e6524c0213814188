"""What people write as arguments of commands: numbers within bounds, and steps as `R@STEP`.

Types for argparse that refuse a number in words that say what is allowed. `R@STEP` names a step so
that it can be pasted into any command that takes one: the console copies it, commands print it, and
a rollout's id never holds an @. Nothing is looked up: a rollout named here may not exist.
"""

import argparse
import math
from collections.abc import Callable
from typing import NamedTuple

from houston_shared.errors import HoustonError, UsageError

LARGEST_NUMBER = 10**12
"""No number of steps, events or lines is above it; the database holds 64 bits."""


def whole_number(lowest: int = 0, highest: int = LARGEST_NUMBER) -> Callable[[str], int]:
    """A type for argparse: a whole number from `lowest` to `highest`."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = lowest - 1
        if lowest <= number <= highest:
            return number
        allowed = f"a whole number from {lowest:,} to {highest:,}"
        raise argparse.ArgumentTypeError(f"{_shorten(text)} is not {allowed}")

    return parse


def seconds_argument(text: str) -> float:
    """A type for argparse: a length of time in seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if 0 <= number <= LARGEST_NUMBER:
        return number
    raise argparse.ArgumentTypeError(f"{_shorten(text)} is not a number of seconds")


def _shorten(text: str) -> str:
    """The argument as an error quotes it."""
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


class StepReference(NamedTuple):
    """A rollout as somebody named it, and steps of it."""

    rollout: str
    first: int = 0
    """0 where no step is named."""
    last: int = 0


def format_permalink(rollout: str, step: int) -> str:
    """The permalink of a step."""
    return f"{rollout}@{step}"


def parse_permalink(text: str) -> StepReference:
    """`R`, `R@STEP` or `R@STEP-STEP`; raises HoustonError (2) where the steps are none."""
    rollout, at, numbers = text.partition("@")
    return StepReference(rollout, *parse_step_range(numbers)) if at else StepReference(rollout)


def parse_step_reference(text: str, step: int | None = None) -> tuple[str, int]:
    """The rollout and the one step that `R@STEP`, or R and a step of its own, name; 0 for none.

    Raises HoustonError (2) for a range, and for a step that is named twice.
    """
    place = parse_permalink(text)
    if place.first != place.last or (step and place.first):
        raise UsageError("Name one step, once.", "Nothing was done.", "R@STEP, or R and STEP")
    return place.rollout, step or place.first


def parse_step_range(text: str) -> tuple[int, int]:
    """`STEP` or `STEP-STEP`, both included; raises HoustonError (2)."""
    first, dash, last = text.partition("-")
    ends = [first, last] if dash else [first, first]
    if not all(end.isascii() and end.isdigit() and len(end) <= 12 for end in ends):
        raise _not_a_step(text)
    low, high = map(int, ends)
    if not 1 <= low <= high <= LARGEST_NUMBER:
        raise _not_a_step(text)
    return low, high


def _not_a_step(text: str) -> HoustonError:
    return UsageError(f"{_shorten(text)} is not a step such as 7, nor a range such as 7-12.")
