"""What each tier runs.

`make check` leaves the longest tests of console and unit to `make test`, which runs all of them and
of the scenarios those that docs/promises.md names; of a long table some cases, the others are
marked `slow`. `make test-all` runs the rest, too. Which tests are the longest is measured anew by

    .venv/bin/pytest -n 1 -m "not slow" tests/console tests/unit --durations=0 -vv |
        .venv/bin/python -m tests.support.tiers
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TIERS = ("check", "fast", "promises", "rest")
FAST_FOLDERS = (ROOT / "tests/console", ROOT / "tests/unit")
"""Tests that start neither a daemon nor a model."""
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


LONG_TESTS = ROOT / "tests/long_tests.txt"
"""File and function of each test that `make check` leaves out."""
LONG_SECONDS = 3.0
"""More than that makes a test long, all rows of its table together, beside other work."""
_DURATION = re.compile(r"([\d.]+)s (?:call|setup|teardown) +([\w/]+\.py)::(?:\w+::)*(\w+)")


@cache
def long_tests() -> frozenset[tuple[Path, str]]:
    """Files and functions that take long."""
    lines = [line.split("::") for line in LONG_TESTS.read_text().splitlines()]
    return frozenset((ROOT / file, name) for file, name in lines)


def measured_long_tests(durations: Iterable[str]) -> list[str]:
    """What `LONG_TESTS` holds, from the durations that pytest prints. Tests of the repository
    itself, which lie in `tests/unit`, are for every edit."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for line in durations:
        found = _DURATION.match(line)
        if found and not found[2].startswith("tests/unit/test_"):
            seconds[f"{found[2]}::{found[3]}"] += float(found[1])
    return sorted(name for name, spent in seconds.items() if spent > LONG_SECONDS)


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


def is_fast_file(file: Path) -> bool:
    """Whether it is in one of `FAST_FOLDERS`."""
    return any(folder in file.parents for folder in FAST_FOLDERS)


def may_hold(file: Path, tier: str) -> bool:
    """Whether a file may hold a test of the tier, by its path alone."""
    if tier == "promises":
        return any(file == promised for promised, _ in promised_scenarios())
    return tier == "rest" or is_fast_file(file)


def tiers_of(item: pytest.Item) -> set[str]:
    """The tiers that run a test: `check` and `fast` are tests of `FAST_FOLDERS` that are not slow,
    `promises` the promised scenarios, `rest` what `make test` leaves out."""
    key = item.path, getattr(item, "originalname", item.name)
    rest = {"rest"} if item.get_closest_marker("every_tier") else set()
    if item.get_closest_marker("slow"):
        return {"rest"}
    if is_fast_file(item.path):
        return rest | ({"fast"} if key in long_tests() else {"check", "fast"})
    return rest | {"promises"} if key in promised_scenarios() else {"rest"}


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


if __name__ == "__main__":
    measured = measured_long_tests(sys.stdin)
    if not measured:
        sys.exit(f"No durations were read: {LONG_TESTS} is as it was.")
    LONG_TESTS.write_text("\n".join(measured) + "\n")
