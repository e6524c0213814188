"""What `make test` runs of all scenarios: those that docs/promises.md names, and of a long table
some cases; the others are marked `slow`."""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROMISES = [
    line
    for line in (ROOT / "docs/promises.md").read_text().splitlines()
    if line.startswith("| ") and "`tests/" in line
]
"""Lines of the table that name a test."""


def promise_tests(line: str) -> list[Path]:
    """Files that a line of the promises names, those of a named folder too; a bare name is beside
    the one before it."""
    places: list[Path] = []
    for name in re.findall(r"`((?:tests/)?[\w/]*(?:test_\w+\.py|/))`", line):
        places.append(ROOT / name if "/" in name else places[-1].parent / name)
    return [
        file
        for place in places
        for file in (sorted(place.rglob("test_*.py")) if place.is_dir() else [place])
    ]


def promise_scenarios(line: str) -> list[str]:
    """Functions that a line of the promises names for `make test`."""
    return re.findall(r"`(test_\w+)`", line)


@cache
def promised_scenarios() -> frozenset[tuple[Path, str]]:
    """Files and functions that any line of the promises names for `make test`."""
    return frozenset(
        (file, name)
        for line in PROMISES
        for name in promise_scenarios(line)
        for file in promise_tests(line)
        if f"def {name}(" in file.read_text()
    )


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
