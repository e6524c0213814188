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
FULL = "full"
"""The arm that the others are held against."""
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


def compared(recipe: Recipe, measured: Mapping[str, Sequence[Measured]]) -> dict[str, Any]:
    """By every other arm, how much higher `full` scores in the same worlds with the same seeds.

    Over all tasks, final and best, with bounds of the difference.
    """
    if FULL not in measured:
        return {}
    return {
        arm: {
            kind: _estimated(
                recipe,
                statistics.less(_cells(recipe, measured[FULL], kind)[ALL], theirs[ALL]),
            )
            for kind in ("final", "best")
            if ALL in (theirs := _cells(recipe, found, kind))
        }
        for arm, found in measured.items()
        if arm != FULL
    }


def _arm(recipe: Recipe, found: Sequence[Measured], times: Sequence[float]) -> dict[str, Any]:
    worlds = list(_worlds(found))
    return {
        "rollouts": len(worlds),
        "scores": {
            kind: {
                name: {**_estimated(recipe, cells), "seeds": _by_seed(cells)}
                for name, cells in _cells(recipe, found, kind).items()
            }
            for kind in ("final", "best")
        },
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


def _cells(
    recipe: Recipe, found: Sequence[Measured], kind: str
) -> dict[str, dict[str, dict[int, float]]]:
    """By domain, and over all, the score of each task and seed."""
    domain = {one.name: one.domain for one in recipe.worlds}
    scores: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for each in found:
        for one in each["worlds"]:
            task = f"{one['worlds']}/{one['world']}"
            scores[domain[one["worlds"]], task, each["seed"]].append(one[kind])
    cells: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for (name, task, seed), some in scores.items():
        cells[name][task][seed] = cells[ALL][task][seed] = fmean(some)
    return cells


def _by_seed(cells: statistics.Cells) -> dict[str, float]:
    """The mean over tasks of each seed alone."""
    seeds = sorted({seed for each in cells.values() for seed in each})
    return {
        str(seed): fmean(each[seed] for each in cells.values() if seed in each) for seed in seeds
    }


def _estimated(recipe: Recipe, cells: statistics.Cells) -> dict[str, float | None]:
    sure = recipe.statistics
    return _bounds(statistics.bootstrap(cells, sure.seed, sure.draws, sure.confidence))


def _obedience(recipe: Recipe, found: Sequence[Measured]) -> dict[str, Any]:
    """By kind of orders, over all seeds: followed, of how many, and Wilson's bounds."""
    shares: dict[str, dict[int, Mapping[str, int]]] = defaultdict(dict)
    for each in found:
        for name, share in (each["obedience"] or {"shares": {}})["shares"].items():
            shares[name][each["seed"]] = share
    return {name: _share(recipe, by_seed) for name, by_seed in shares.items()}


def _share(recipe: Recipe, by_seed: Mapping[int, Mapping[str, int]]) -> dict[str, Any]:
    hits, of, untested = (
        sum(each.get(key, 0) for each in by_seed.values()) for key in ("followed", "of", "untested")
    )
    return {
        "followed": hits,
        "of": of,
        "untested": untested,
        **_bounds(statistics.wilson(hits, of, recipe.statistics.confidence)),
        "seeds": {
            str(seed): f"{each['followed']} of {each['of']}" for seed, each in by_seed.items()
        },
    }


def _bounds(one: statistics.Interval) -> dict[str, float | None]:
    """As JSON has it: what is not known is null there, and no NaN."""
    kept = {"value": one.value, "low": one.low, "high": one.high}
    return {name: None if math.isnan(value) else value for name, value in kept.items()}
