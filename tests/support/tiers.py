"""Which cases of a long table `make test` runs; the rest are marked `slow`, for `make test-all`."""

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], count: int) -> list[Any]:
    """Return all cases as parameters: `count` of them, spread evenly, run in every tier.

    The first case is always among them. Which ones run does not change from run to run, so that a
    change is judged by the same cases as the one before it.
    """
    cases = list(cases)
    kept = {index * len(cases) // count for index in range(count)}
    return [
        case if index in kept else pytest.param(case, marks=pytest.mark.slow)
        for index, case in enumerate(cases)
    ]
