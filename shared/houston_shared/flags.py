"""Numbers as commands take them: within bounds, and refused in words that say what is allowed."""

import argparse
import math
from collections.abc import Callable

LARGEST = 10**12
"""No number of steps, events or lines is above it; the database holds 64 bits."""


def whole(lowest: int = 0, highest: int = LARGEST) -> Callable[[str], int]:
    """A type for argparse: a whole number from `lowest` to `highest`."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = lowest - 1
        if lowest <= number <= highest:
            return number
        allowed = f"a whole number from {lowest:,} to {highest:,}"
        raise argparse.ArgumentTypeError(f"{_short(text)} is not {allowed}")

    return read


def seconds(text: str) -> float:
    """A type for argparse: a length of time in seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if 0 <= number <= LARGEST:
        return number
    raise argparse.ArgumentTypeError(f"{_short(text)} is not a number of seconds")


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")
