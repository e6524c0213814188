"""Confidence intervals, each named with its method. It knows numbers only.

Wilson (1927) for a share; the percentile bootstrap (Efron 1979) for means over tasks and seeds,
resampled in two levels: tasks first, then the rollouts of each drawn task, as both vary.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from houston_shared.wilson import bounds


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its bounds."""

    value: float
    low: float
    high: float


def wilson(hits: int, total: int, confidence: float = 0.95) -> Interval:
    """The share `hits / total`, 0 to 1, with Wilson's bounds; no number without any trial."""
    return Interval(hits / total if total else math.nan, *bounds(hits, total, confidence))


def weighted(domains: Mapping[str, Mapping[str, Sequence[float]]]) -> float:
    """The mean over tasks, each with the same weight whatever its domain (APOLLO, table 1).

    domains: by domain, by task, the scores of its rollouts (0 to 100).
    """
    tasks = [fmean(found) for each in domains.values() for found in each.values()]
    return fmean(tasks) if tasks else math.nan


def bootstrap(
    tasks: Mapping[str, Sequence[float]],
    seed: int,
    draws: int = 2_000,
    confidence: float = 0.95,
) -> Interval:
    """The mean over tasks, with its two-level percentile bootstrap interval.

    tasks: by task, the scores of its rollouts (over worlds and seeds). The same seed gives the same
    bounds.
    """
    groups = [list(found) for _, found in sorted(tasks.items())]
    if not groups:
        return Interval(math.nan, math.nan, math.nan)
    source = random.Random(seed)
    means = sorted(_drawn(groups, source) for _ in range(draws))
    tail = (1 - confidence) / 2
    low = means[int(tail * (draws - 1))]
    high = means[math.ceil((1 - tail) * (draws - 1))]
    return Interval(fmean(map(fmean, groups)), low, high)


def _drawn(groups: list[list[float]], source: random.Random) -> float:
    chosen = source.choices(groups, k=len(groups))
    return fmean(fmean(source.choices(scores, k=len(scores))) for scores in chosen)


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
