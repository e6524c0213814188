"""The figures of an experiment: scores by domain, obedience and time worked, each with a
confidence interval.

Wilson (1927) for a share; for means over tasks and seeds the percentile bootstrap (Efron 1979)
with both drawn anew (crossed factors: Owen 2007, the pigeonhole bootstrap). A task of the
task-weighted mean is one held-out world (APOLLO, tables 1 and 2). Takes the stages' results as
they lie on disk; writes nothing.
"""

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from houston_daemon.experiments.experiment_recipe import ExperimentRecipe
from houston_shared.wilson_interval import ConfidenceInterval, wilson_interval

ScoreCells = Mapping[str, Mapping[int, float]]
"""By task, by seed, a score: the mean where there are several rollouts."""


def bootstrap_mean(
    cells: ScoreCells, seed: int, draws: int = 2_000, confidence: float = 0.95
) -> ConfidenceInterval:
    """The mean over tasks, each the mean over its seeds, with its percentile bootstrap interval.

    Each draw takes as many tasks and as many seeds as there are, with replacement. seed: of the
    draws; the same one gives the same bounds. With few seeds no method can know how seeds vary: two
    give bounds that are too narrow, one gives the bounds of that one policy.
    """
    if not cells:
        return ConfidenceInterval(None, math.nan, math.nan)
    source = random.Random(seed)
    tasks, seeds = sorted(cells), sorted(set[int]().union(*cells.values()))
    means: list[float] = []
    while len(means) < draws:
        drawn = [cells[task] for task in source.choices(tasks, k=len(tasks))]
        if scores := _task_means(drawn, source.choices(seeds, k=len(seeds))):
            means.append(fmean(scores))
    means.sort()
    tail = (1 - confidence) / 2
    low = means[int(tail * (draws - 1))]
    high = means[math.ceil((1 - tail) * (draws - 1))]
    return ConfidenceInterval(
        fmean(fmean(by_seed.values()) for by_seed in cells.values()), low, high
    )


def _task_means(drawn: Sequence[Mapping[int, float]], seeds: Sequence[int]) -> list[float]:
    """Of each drawn task the mean over the drawn seeds that it has; none without any."""
    scores_by_task = ([by_seed[seed] for seed in seeds if seed in by_seed] for by_seed in drawn)
    return [fmean(scores) for scores in scores_by_task if scores]


def score_differences(cells: ScoreCells, other_cells: ScoreCells) -> dict[str, dict[int, float]]:
    """By task and seed the difference `cells - other`, where both have a score."""
    differences = {
        task: {
            seed: score - other_cells[task][seed]
            for seed, score in scores.items()
            if seed in other_cells[task]
        }
        for task, scores in cells.items()
        if task in other_cells
    }
    return {task: scores for task, scores in differences.items() if scores}


def scores_over_time(
    histories: Sequence[Sequence[tuple[float, float]]], at: Sequence[float]
) -> list[float]:
    """The mean score at each time: of every rollout the last score before it, 0 before any.

    histories: by rollout, (active seconds, score) in order. Source: APOLLO §4.5, figure 6.
    """
    return [
        fmean(_last_score_before(history, time) for history in histories) if histories else 0.0
        for time in at
    ]


def _last_score_before(history: Sequence[tuple[float, float]], time: float) -> float:
    score = 0.0
    for moment, value in history:
        if moment > time:
            break
        score = value
    return score


MeasuredArms = Mapping[str, Any]
TASK_WEIGHTED = "task-weighted mean"
FULL_ARM = "full"
"""The arm that the others are held against."""
TIME_POINTS = 60
"""Points of the score over active time."""


def summarize_arms(
    recipe: ExperimentRecipe, measured: Mapping[str, Sequence[MeasuredArms]]
) -> dict[str, Any]:
    """By arm: scores by domain and over all tasks, obedience, time worked, score over time.

    measured: by arm the results of `measure_stage.measure_arm`, one a seed.
    """
    longest = max(
        (world["active_seconds"] for arm in measured.values() for world in _world_rollouts(arm)),
        default=0.0,
    )
    times = [longest * place / (TIME_POINTS - 1) for place in range(TIME_POINTS)]
    return {arm: _arm_figures(recipe, results, times) for arm, results in measured.items()}


def compare_arms(
    recipe: ExperimentRecipe, measured: Mapping[str, Sequence[MeasuredArms]]
) -> dict[str, Any]:
    """By every other arm, how much higher `full` scores in the same worlds with the same seeds.

    Over all tasks, final and best, with bounds of the difference.
    """
    if FULL_ARM not in measured:
        return {}
    return {
        arm: {
            kind: _estimate_scores(
                recipe,
                score_differences(
                    _score_cells(recipe, measured[FULL_ARM], kind)[TASK_WEIGHTED],
                    theirs[TASK_WEIGHTED],
                ),
            )
            for kind in ("final", "best")
            if TASK_WEIGHTED in (theirs := _score_cells(recipe, results, kind))
        }
        for arm, results in measured.items()
        if arm != FULL_ARM
    }


def _arm_figures(
    recipe: ExperimentRecipe, results: Sequence[MeasuredArms], times: Sequence[float]
) -> dict[str, Any]:
    worlds = list(_world_rollouts(results))
    return {
        "rollouts": len(worlds),
        "scores": {
            kind: {
                name: {**_estimate_scores(recipe, cells), "seeds": _means_by_seed(cells)}
                for name, cells in _score_cells(recipe, results, kind).items()
            }
            for kind in ("final", "best")
        },
        "obedience": _obedience_figures(recipe, results),
        "active_seconds": fmean(world["active_seconds"] for world in worlds) if worlds else None,
        "steps": fmean(world["steps"] for world in worlds) if worlds else None,
        "over_time": {
            "seconds": list(times),
            "score": scores_over_time([world["history"] for world in worlds], times),
        },
    }


def _world_rollouts(results: Iterable[MeasuredArms]) -> Iterable[MeasuredArms]:
    return (world for result in results for world in result["worlds"])


def _score_cells(
    recipe: ExperimentRecipe, results: Sequence[MeasuredArms], kind: str
) -> dict[str, dict[str, dict[int, float]]]:
    """By domain, and over all, the score of each task and seed."""
    domain = {worlds.name: worlds.domain for worlds in recipe.worlds}
    scores: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for result in results:
        for world in result["worlds"]:
            task = f"{world['worlds']}/{world['world']}"
            scores[domain[world["worlds"]], task, result["seed"]].append(world[kind])
    cells: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for (name, task, seed), values in scores.items():
        cells[name][task][seed] = cells[TASK_WEIGHTED][task][seed] = fmean(values)
    return cells


def _means_by_seed(cells: ScoreCells) -> dict[str, float]:
    """The mean over tasks of each seed alone."""
    seeds = sorted(set[int]().union(*cells.values()))
    return {
        str(seed): fmean(scores[seed] for scores in cells.values() if seed in scores)
        for seed in seeds
    }


def _estimate_scores(recipe: ExperimentRecipe, cells: ScoreCells) -> dict[str, float | None]:
    sure = recipe.statistics
    return bootstrap_mean(cells, sure.seed, sure.draws, sure.confidence).as_json(None)


def _obedience_figures(recipe: ExperimentRecipe, results: Sequence[MeasuredArms]) -> dict[str, Any]:
    """By kind of orders, over all seeds: followed, of how many, and Wilson's bounds."""
    shares: dict[str, dict[int, Mapping[str, int]]] = defaultdict(dict)
    for result in results:
        for name, share in (result["obedience"] or {"shares": {}})["shares"].items():
            shares[name][result["seed"]] = share
    return {name: _obedience_share(recipe, by_seed) for name, by_seed in shares.items()}


def _obedience_share(
    recipe: ExperimentRecipe, by_seed: Mapping[int, Mapping[str, int]]
) -> dict[str, Any]:
    hits, of, untested = (
        sum(share.get(key, 0) for share in by_seed.values())
        for key in ("followed", "of", "untested")
    )
    return {
        "followed": hits,
        "of": of,
        "untested": untested,
        **wilson_interval(hits, of, recipe.statistics.confidence).as_json(None),
        "seeds": {
            str(seed): f"{share['followed']} of {share['of']}" for seed, share in by_seed.items()
        },
    }
