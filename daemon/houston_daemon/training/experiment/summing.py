"""From measured rollouts to the figures of the tables: scores by domain, obedience, time worked.

A task of the task-weighted mean is one held-out world (APOLLO, tables 1 and 2). Takes the stages'
results as they lie on disk; writes nothing.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from houston_daemon.training.experiment import statistics
from houston_daemon.training.experiment.recipe import Recipe

Measured = Mapping[str, Any]
ALL = "task-weighted mean"
POINTS = 60
"""Points of the score over active time."""


def summed(recipe: Recipe, measured: Mapping[str, Sequence[Measured]]) -> dict[str, Any]:
    """By arm: scores by domain and over all tasks, obedience, time worked, score over time.

    measured: by arm the results of `measuring.measure`, one a seed.
    """
    longest = max(
        (one["active_seconds"] for each in measured.values() for one in _worlds(each)), default=0.0
    )
    times = [longest * place / (POINTS - 1) for place in range(POINTS)]
    return {arm: _arm(recipe, found, times) for arm, found in measured.items()}


def _arm(recipe: Recipe, found: Sequence[Measured], times: Sequence[float]) -> dict[str, Any]:
    worlds = list(_worlds(found))
    return {
        "rollouts": len(worlds),
        "scores": {kind: _scores(recipe, worlds, kind) for kind in ("final", "best")},
        "obedience": _obedience(recipe, found),
        "active_seconds": fmean(one["active_seconds"] for one in worlds) if worlds else None,
        "steps": fmean(one["steps"] for one in worlds) if worlds else None,
        "over_time": {
            "seconds": list(times),
            "score": statistics.over_time([one["history"] for one in worlds], times),
        },
    }


def _worlds(found: Iterable[Measured]) -> Iterable[Measured]:
    return (one for each in found for one in each["worlds"])


def _scores(recipe: Recipe, worlds: Sequence[Measured], kind: str) -> dict[str, Any]:
    """By domain, and over all tasks, the mean with its bounds."""
    domain = {one.name: one.domain for one in recipe.worlds}
    tasks: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in worlds:
        task = f"{one['worlds']}/{one['world']}"
        tasks[domain[one["worlds"]]][task].append(one[kind])
        tasks[ALL][task].append(one[kind])
    sure = recipe.statistics
    return {
        name: _bounds(statistics.bootstrap(each, sure.seed, sure.draws, sure.confidence))
        for name, each in tasks.items()
    }


def _obedience(recipe: Recipe, found: Sequence[Measured]) -> dict[str, Any]:
    """Over all seeds: followed, of how many, and Wilson's bounds."""
    counted: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for each in found:
        for name, share in (each["obedience"] or {"shares": {}})["shares"].items():
            counted[name][0] += share["followed"]
            counted[name][1] += share["of"]
    sure = recipe.statistics.confidence
    return {
        name: {"followed": hits, "of": of, **_bounds(statistics.wilson(hits, of, sure))}
        for name, (hits, of) in counted.items()
    }


def _bounds(one: statistics.Interval) -> dict[str, float | None]:
    """As JSON has it: what is not known is null there, and no NaN."""
    value = None if math.isnan(one.value) else one.value
    return {"value": value, "low": one.low, "high": one.high}
