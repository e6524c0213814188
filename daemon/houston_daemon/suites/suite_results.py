"""The results of a suite's run, as a file, and its figures: pass@1, pass@k, steps, failed calls.

pass@k is the unbiased estimator of Chen et al. 2021 (arXiv:2107.03374, eq. 1). Worlds are the
independent units: intervals are Wilson's where each was tried once or all had the same result,
otherwise the percentile bootstrap over worlds. Two runs are compared world by world, with the exact
test of flipped signs (Fisher 1935, §21) on the worlds' differences. Runs nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from houston_daemon.experiments.experiment_statistics import bootstrap_mean, score_differences
from houston_shared import atomic_file
from houston_shared.errors import HoustonError, NotFound, UsageError
from houston_shared.kept_suite_runs import SOLVED as SOLVED
from houston_shared.kept_suite_runs import SuiteAttempt as SuiteAttempt
from houston_shared.kept_suite_runs import SuiteRun as SuiteRun
from houston_shared.kept_suite_runs import SuiteWorld as SuiteWorld
from houston_shared.kept_suite_runs import read_run as read_run
from houston_shared.kept_suite_runs import solved_worlds
from houston_shared.wilson_interval import ConfidenceInterval, wilson_interval

SIGNIFICANCE = 0.05
"""p below which a difference is said to be beyond chance."""
MIN_SUCCESS_RATE, MAX_SUCCESS_RATE = 0.05, 0.30
"""Share of held-out tasks that a warmed-up model solves, for rewards to teach it something."""
_BOOTSTRAP_SEED = 1


def write_run(file: Path, run: SuiteRun) -> None:
    """Keep a run. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    atomic_file.write_atomically(file, msgspec.json.format(msgspec.json.encode(run), indent=1))


def rollouts_of_run(suites: Path, name: str) -> list[str]:
    """The rollouts of a kept run. suites: the folder of the home's runs. name: `NAME` or
    `SUITE/NAME`. Raises HoustonError where there is none, and where several suites have one."""
    files = kept_runs(suites, name)
    if not files:
        problem = f"There is no run of a suite {name!r} in {suites}."
        raise NotFound(problem)
    if len(files) > 1:
        names = [f"{file.parent.name}/{name}" for file in files]
        raise UsageError(
            f"{len(files)} suites have a run {name!r}: {', '.join(names)}.",
            "None of them was used.",
            f"Name its suite, too: {names[0]}",
        )
    return [attempt.rollout for world in read_run(files[0]).worlds for attempt in world.attempts]


def kept_runs(suites: Path, name: str) -> list[Path]:
    """The files of the kept runs that `NAME` or `SUITE/NAME` may mean."""
    return sorted(suites.glob(f"{name}.json" if "/" in name else f"*/{name}.json"))


def pass_at(k: int, attempts: int, solved: int) -> float:
    """The chance that one of `k` attempts solves a world of whose `attempts` attempts `solved` did:
    1 - C(n - c, k) / C(n, k)."""
    return 1.0 - math.comb(attempts - solved, k) / math.comb(attempts, k)


def run_figures(run: SuiteRun) -> dict[str, Any]:
    """Figures of a run, each with its 95 % interval; `pass@k` for 1, 2, 4, … and all attempts."""
    sizes = _pass_sizes(run)
    passes = {f"pass@{k}": _pass_interval(run, k).as_json() for k in sizes}
    means = {name: _mean_interval(run, value).as_json() for name, value in _MEASURES.items()}
    return {
        "worlds": len(run.worlds),
        "attempts": sizes[-1] if sizes else 0,
        "unfinished": sum(
            attempt.state != "finished" for world in run.worlds for attempt in world.attempts
        ),
        "episodes_per_second": round(_episodes(run) / run.seconds, 2) if run.seconds else None,
        **passes,
        **means,
    }


_MEASURES: Mapping[str, Callable[[SuiteAttempt], float]] = {
    "score": lambda attempt: attempt.score,
    "steps": lambda attempt: attempt.steps,
    "failures": lambda attempt: attempt.failures,
    "no_action": lambda attempt: attempt.no_action,
}


def _pass_sizes(run: SuiteRun) -> list[int]:
    """1, 2, 4, … and all attempts that every world had, in order."""
    least = min((len(world.attempts) for world in run.worlds), default=0)
    return sorted({*(2**n for n in range(least.bit_length())), least} - {0})


def _episodes(run: SuiteRun) -> int:
    return sum(len(world.attempts) for world in run.worlds)


def _count_solved(world: SuiteWorld) -> int:
    return sum(attempt.solved for attempt in world.attempts)


def _pass_interval(run: SuiteRun, k: int) -> ConfidenceInterval:
    shares = [pass_at(k, len(world.attempts), _count_solved(world)) for world in run.worlds]
    tried_once = all(len(world.attempts) == 1 for world in run.worlds)
    if tried_once or len(set(shares)) == 1:  # a bootstrap of what is all alike has no width
        return wilson_interval(sum(shares), len(shares))
    return bootstrap_mean({str(n): {0: share} for n, share in enumerate(shares)}, _BOOTSTRAP_SEED)


Cells = Mapping[str, Mapping[int, float]]


def _cells(run: SuiteRun, value: Callable[[SuiteAttempt], float]) -> Cells:
    """By world the mean of its attempts."""
    return {
        str(world.index): {0: fmean(map(value, world.attempts))}
        for world in run.worlds
        if world.attempts
    }


def _mean_interval(run: SuiteRun, value: Callable[[SuiteAttempt], float]) -> ConfidenceInterval:
    return bootstrap_mean(_cells(run, value), _BOOTSTRAP_SEED)


def compare_runs(before: SuiteRun, after: SuiteRun) -> dict[str, Any]:
    """How `after` does in the worlds of both, minus how `before` does.

    Each difference with its paired 95 % interval; `flips` by name where a world's solved share
    moved across one half; `p` of the difference in pass@1. `beyond_chance`: whether the interval of
    that leaves zero out, and p is below 0.05. Raises HoustonError for runs of other tasks, or
    without a world in common.
    """
    tasks = [(run.suite, run.version, run.split) for run in (before, after)]
    both = {world.index for world in before.worlds} & {world.index for world in after.worlds}
    if tasks[0] != tasks[1] or not both:
        named = " and ".join(f"{suite} {version}, {split}" for suite, version, split in tasks)
        raise HoustonError(f"The runs have no world in common: {named}.", "Nothing was compared.")
    cells = [_all_cells(run) for run in (before, after)]
    differences = {
        name: bootstrap_mean(score_differences(cells[1][name], cells[0][name]), _BOOTSTRAP_SEED)
        for name in cells[1]
        if name in cells[0]
    }
    gained, lost = _flips(before, after)
    shares = [_solved_shares(run) for run in (before, after)]
    p = sign_flip_p([shares[1][index] - shares[0][index] for index in both])
    solved = differences["pass@1"]
    return {
        "worlds": len(both),
        **{name: each.as_json() for name, each in differences.items()},
        "flips": {"gained": gained, "lost": lost},
        "p": p,
        "beyond_chance": not solved.low <= 0.0 <= solved.high and p < SIGNIFICANCE,
    }


def _solved_shares(run: SuiteRun) -> dict[int, Fraction]:
    return {
        world.index: Fraction(_count_solved(world), len(world.attempts)) for world in run.worlds
    }


def _all_cells(run: SuiteRun) -> dict[str, Cells]:
    """By name of a figure, its value in each world: every `pass@k`, and the means."""
    passes: dict[str, Cells] = {
        f"pass@{k}": {
            str(world.index): {0: pass_at(k, len(world.attempts), _count_solved(world))}
            for world in run.worlds
        }
        for k in _pass_sizes(run)
    }
    return passes | {name: _cells(run, value) for name, value in _MEASURES.items()}


def _flips(before: SuiteRun, after: SuiteRun) -> tuple[list[str], list[str]]:
    """Worlds that are solved after and were not before, and the other way round, by name."""
    solved = [solved_worlds(run) for run in (before, after)]
    both = sorted(solved[0].keys() & solved[1].keys())
    titles = {world.index: world.title for world in after.worlds}
    gained = [titles[index] for index in both if solved[1][index] and not solved[0][index]]
    return gained, [titles[index] for index in both if solved[0][index] and not solved[1][index]]


def sign_flip_p(differences: Sequence[Fraction]) -> float:
    """Two-sided p that the mean difference is as far from zero, each sign given by a fair coin.

    Exact. Of differences of 1 and -1 it is that of McNemar (1947).
    """
    scale = math.lcm(*(each.denominator for each in differences))
    steps = [int(each * scale) for each in differences if each]
    ways = [1]
    """By sum of the steps whose coin says minus, in how many ways that comes."""
    for step in map(abs, steps):
        gap = [0] * step
        ways = [kept + flipped for kept, flipped in zip(ways + gap, gap + ways, strict=True)]
    less = min(sum(step for step in steps if step > 0), -sum(step for step in steps if step < 0))
    return min(1.0, 2 * sum(ways[: less + 1]) / (1 << len(steps)))


def figure_lines(figures: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Figures for people, a line each: value and bounds."""
    return [
        f"{name:>10} {each['value']:.3f}  [{each['low']:.3f}, {each['high']:.3f}]"
        for name in names
        if (each := figures.get(name)) and each["value"] is not None
    ]


def check_can_learn(who: str, success: float, tasks: str, advice: str) -> None:
    """Raise HoustonError for a warmed-up model that solves too few or too many held-out tasks.

    who: the subject of the sentence. tasks: their name. advice: the alternative.
    """
    if not MIN_SUCCESS_RATE <= success <= MAX_SUCCESS_RATE:
        raise HoustonError(
            f"{who} solves {success:.0%} of {tasks} that it has not seen.",
            "Below 5 % hardly anything is learned; above 30 % little is left to learn.",
            advice,
        )
