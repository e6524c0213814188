"""The stage that judges what was sampled: rules, and a scripted judge that knows the solution.

What the scripted judge says is a person's verdict, of `simulated-judge`: it masks steps that are
not on the way of the solution. It judges rollouts with and without guidance alike.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from houston_daemon.training.experiment.progress import progress
from houston_daemon.training.experiment.run import Run
from houston_daemon.training.experiment.solutions import Solutions
from houston_daemon.training.experiment.stages import Begun
from houston_daemon.training.experiment.watching import acted
from houston_shared.store.queries import rollouts, verdicts

AUTHOR = "simulated-judge"
REASON = "not on the way of the solution"
_AT_ONCE = 50
"""Rollouts of one command."""


def judge(run: Run, some: Mapping[str, str], solutions: Solutions, begun: Begun) -> dict[str, Any]:
    """Judge the rollouts `some` (what each was for); how many steps were masked by whom."""
    ids = sorted(some)
    if run.recipe.masks.rules:
        for start in range(0, len(ids), _AT_ONCE):
            run.ground.run("judge", *ids[start : start + _AT_ONCE], "--rules-only")
    if run.recipe.masks.solution:
        for rollout in (one for one in ids if some[one] != "orders"):
            begun.get(rollout, partial(_by_solution, run, rollout, solutions))
    return {"steps": _counted(run, ids)}


def _by_solution(run: Run, rollout: str, solutions: Solutions) -> list[int]:
    """Mask what is not on the way; the masked steps."""
    spec = run.ground.read(rollouts.spec(run.ground.read(rollouts.rollout(rollout))))
    steps = run.ground.steps(rollout)
    stands = progress(solutions.of(rollout, spec), acted(steps))
    off = [step.step for step, good in zip(steps, stands.on_the_way, strict=True) if not good]
    run.ground.mask(rollout, ranges(off), REASON, AUTHOR)
    return off


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Runs of numbers that follow each other: (first, last) of each."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _counted(run: Run, ids: Iterable[str]) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for rollout in ids:
        stands = run.ground.read(verdicts.standing(rollout))
        masked = {
            step: given[0].source for step, given in stands.items() if given[0].verdict == "mask"
        }
        counted["all"] += len(run.ground.steps(rollout))
        counted.update(f"masked by {source}" for source in masked.values())
    return dict(counted)
