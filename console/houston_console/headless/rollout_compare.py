"""`houston rollout compare A B`: two rollouts side by side, scores over active time among it."""

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

from houston_console.headless import options
from houston_console.headless.page import Page, span
from houston_console.headless.spoken import duration, score, standing
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.store import views
from houston_shared.store.plan import Plan
from houston_shared.store.queries import cost, rollouts, scores
from houston_shared.store.queries.cost import Spent
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.queries.scores import Score
from houston_shared.store.reader import Reader

ALL = 1_000_000
"""Scores of a rollout: every one."""


class Side(NamedTuple):
    """One of the two."""

    rollout: Rollout
    scores: list[Score]
    people: list[Spent]

    @property
    def minutes(self) -> float:
        """Of people with a key pressed in the last minute."""
        return sum(one.active_us for one in self.people) / 60e6

    @property
    def words(self) -> int:
        """Said to it."""
        return sum(one.words for one in self.people)


def arguments(parser: argparse.ArgumentParser) -> None:
    """`A`, `B`, `--json`."""
    for name in ("a", "b"):
        parser.add_argument(
            name, metavar=name.upper(), help="rollout: its id, or a unique beginning or ending"
        )
    options.as_json(parser, "one JSON object with both")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Show both."""
    with Reader(loaded.home) as reader:
        sides = reader.run(_read((arguments.a, arguments.b)))
    if arguments.json:
        out.json_line({"rollouts": [_json(one) for one in sides]})
    else:
        _show(Page(), sides)
    return int(ExitCode.DONE)


def _read(names: tuple[str, str]) -> Plan[list[Side]]:
    found = []
    for name in names:
        found.append((yield from rollouts.rollout(name)))
    ids = [one.id for one in found]
    scored = yield from scores.history(ids, ALL)
    spent = yield from cost.of(ids)
    return [Side(one, scored[one.id], spent[one.id]) for one in found]


def _json(one: Side) -> dict[str, Any]:
    return {
        **views.rollout(one.rollout),
        "scores": [
            {"step": each.step, "active_seconds": each.active_us / 1e6, "score": each.score}
            for each in one.scores
        ],
        "minutes": one.minutes,
        "words": one.words,
        "people": [views.spent(one.rollout.id, each) for each in one.people],
    }


def _show(page: Page, sides: list[Side]) -> None:
    rows: list[tuple[str, Sequence[object]]] = [
        ("task", [one.rollout.task for one in sides]),
        ("state", [standing(one.rollout, 40).text for one in sides]),
        ("engine", [f"{one.rollout.engine} {one.rollout.policy}".strip() for one in sides]),
        ("steps", [one.rollout.steps for one in sides]),
        ("with errors", [one.rollout.errors for one in sides]),
        ("active", [duration(one.rollout.active_us / 1e6) for one in sides]),
        ("evaluations", [one.rollout.evaluations for one in sides]),
        ("best score", [score(one.rollout.best_score) for one in sides]),
        ("last score", [score(one.rollout.last_score) for one in sides]),
        ("minutes of people", [f"{one.minutes:.1f}" for one in sides]),
        ("words of people", [one.words for one in sides]),
        *_over_time(sides),
    ]
    titles = ("", *(one.rollout.id for one in sides))
    table = [(span(name, "dim"), *(span(value) for value in values)) for name, values in rows]
    page.table(titles, table)


def _over_time(sides: list[Side]) -> list[tuple[str, Sequence[object]]]:
    """A line for each time at which one of them was scored: the score that each had by then."""
    seconds = sorted({each.active_us // 1_000_000 for one in sides for each in one.scores})
    return [
        (f"score at {duration(second)}", [_by(one.scores, second) for one in sides])
        for second in seconds
    ]


def _by(found: list[Score], second: int) -> str:
    """The newest score in a second of active time; in brackets where it is older."""
    had = [one for one in found if one.active_us // 1_000_000 <= second]
    if not had:
        return "–"
    said = score(had[-1].score)
    return said if had[-1].active_us // 1_000_000 == second else f"({said})"
