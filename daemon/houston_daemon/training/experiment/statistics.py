"""Confidence intervals, each named with its method. It knows numbers only.

Wilson (1927) for a share. For means over tasks and seeds the percentile bootstrap (Efron 1979) with
both drawn anew, each for itself: a policy plays every task, so that scores of one seed hang
together as those of one task do (crossed factors: Owen 2007, the pigeonhole bootstrap).
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from houston_shared.wilson import bounds

Cells = Mapping[str, Mapping[int, float]]
"""By task, by seed, a score: the mean where there are several rollouts."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its bounds."""

    value: float
    low: float
    high: float


def wilson(hits: int, total: int, confidence: float = 0.95) -> Interval:
    """The share `hits / total`, 0 to 1, with Wilson's bounds; no number without any trial."""
    return Interval(hits / total if total else math.nan, *bounds(hits, total, confidence))


def bootstrap(cells: Cells, seed: int, draws: int = 2_000, confidence: float = 0.95) -> Interval:
    """The mean over tasks, each the mean over its seeds, with its percentile bootstrap interval.

    A draw takes as many tasks and as many seeds as there are, each with repetition. seed: of the
    draws; the same one gives the same bounds. Of few seeds no method knows how seeds vary: two give
    bounds that are too narrow, one gives the bounds of that one policy.
    """
    if not cells:
        return Interval(math.nan, math.nan, math.nan)
    source = random.Random(seed)
    tasks, seeds = sorted(cells), sorted({one for each in cells.values() for one in each})
    means: list[float] = []
    while len(means) < draws:
        drawn = [cells[task] for task in source.choices(tasks, k=len(tasks))]
        if scores := _means(drawn, source.choices(seeds, k=len(seeds))):
            means.append(fmean(scores))
    means.sort()
    tail = (1 - confidence) / 2
    low = means[int(tail * (draws - 1))]
    high = means[math.ceil((1 - tail) * (draws - 1))]
    return Interval(fmean(fmean(each.values()) for each in cells.values()), low, high)


def _means(drawn: Sequence[Mapping[int, float]], seeds: Sequence[int]) -> list[float]:
    """Of each drawn task the mean over the drawn seeds that it has; none without any."""
    found = ([each[seed] for seed in seeds if seed in each] for each in drawn)
    return [fmean(scores) for scores in found if scores]


def less(cells: Cells, other: Cells) -> dict[str, dict[int, float]]:
    """By task and seed the difference `cells - other`, where both have a score."""
    found = {
        task: {
            seed: score - other[task][seed] for seed, score in each.items() if seed in other[task]
        }
        for task, each in cells.items()
        if task in other
    }
    return {task: each for task, each in found.items() if each}


def over_time(
    histories: Sequence[Sequence[tuple[float, float]]], at: Sequence[float]
) -> list[float]:
    """The mean score at each time: of every rollout the last score before it, 0 before any.

    histories: by rollout, (active seconds, score) in order. Source: APOLLO §4.5, figure 6.
    """
    return [fmean(_before(one, time) for one in histories) if histories else 0.0 for time in at]


def _before(history: Sequence[tuple[float, float]], time: float) -> float:
    score = 0.0
    for moment, value in history:
        if moment > time:
            break
        score = value
    return score
