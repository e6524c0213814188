"""What judging came to, rollout by rollout: for people in lines, for programs as objects."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from houston_daemon.supervision.judge.cost import Cost
from houston_daemon.supervision.judge.judging import Verdicts
from houston_daemon.supervision.storing import Said
from houston_shared.config_judge import Judge
from houston_shared.errors import HoustonError
from houston_shared.plural import many


@dataclass(slots=True)
class Outcome:
    """One rollout; parts that were not asked for are None."""

    rollout: str
    steps: int
    """Closed steps of its own."""
    rules: Mapping[int, Said] | None = None
    """What rules say, by step."""
    by_rule: Mapping[str, int] = field(default_factory=dict)
    rules_changed: int | None = None
    """Steps of which rules say something else than before; None where nothing was stored."""
    judge: Verdicts | None = None
    judge_changed: int | None = None
    taken: Mapping[int, str] = field(default_factory=dict)
    """Steps that the judge keeps although rules mask them, with the rules' reason."""
    by: str = ""
    """As the judge is named in its verdicts."""
    planned: int | None = None
    """Windows that would be asked about, of a dry run."""
    kept_before: int = 0
    """Of these, answers that are in the cache."""
    cost: Cost = field(default_factory=Cost)


def as_json(one: Outcome, settings: Judge, dry: bool) -> dict[str, Any]:
    """A line of `houston judge --json`."""
    made: dict[str, Any] = {"rollout": one.rollout, "steps": one.steps, "stored": not dry}
    if one.rules is not None:
        made["rules"] = {
            "masked": len(one.rules),
            "by_rule": dict(one.by_rule),
            "changed": one.rules_changed,
            "steps": {str(step): said.reason for step, said in sorted(one.rules.items())},
        }
    if one.judge is not None:
        verdicts = one.judge
        made["judge"] = {
            "by": one.by,
            "kept": sum(said.verdict == "keep" for said in verdicts.steps.values()),
            "masked": sum(said.verdict == "mask" for said in verdicts.steps.values()),
            "undecided": {str(step): why for step, why in verdicts.undecided.items()},
            "overruled": verdicts.overruled,
            "kept_over_rules": {str(step): why for step, why in one.taken.items()},
            "shortened": verdicts.shortened,
            "changed": one.judge_changed,
            "steps": {
                str(step): {"verdict": said.verdict, "reason": said.reason}
                for step, said in verdicts.steps.items()
            },
        }
    if one.planned is not None:
        made["judge"] = {"by": one.by, "windows": one.planned, "cached": one.kept_before}
    if one.judge is not None or one.planned is not None:
        made["cost"] = one.cost.as_json(settings)
    return made


def lines(one: Outcome, dry: bool) -> Iterator[str]:
    """The same for people."""
    yield f"{one.rollout}: {many(one.steps, 'step')}"
    if one.rules is not None:
        named = ", ".join(f"{name} {count}" for name, count in one.by_rule.items())
        changed = "" if one.rules_changed is None else f"; {one.rules_changed} changed"
        yield f"  rules mask {len(one.rules)}{f' ({named})' if named else ''}{changed}"
        if dry:
            for step, said in sorted(one.rules.items()):
                yield f"    step {step}: {said.reason}"
    if one.planned is not None:
        asked = f"about {one.cost.prompt_tokens:,} prompt tokens to ask"
        yield f"  judge: {many(one.planned, 'window')}, {one.kept_before} in the cache; {asked}"
    if one.judge is not None:
        yield from _judged(one.judge, one.judge_changed, one.taken)


def passed_over(rollouts: Sequence[str]) -> str:
    """Which rollouts were left out because their texts are gone, in a sentence; empty for none."""
    if not rollouts:
        return ""
    gone = f"{many(len(rollouts), 'rollout')} left out, archived or erased"
    return f"{gone}: {', '.join(sorted(rollouts))}."


def not_judged(rollout: str, problem: HoustonError) -> str:
    """Which rollout a rule failed on, and how, in a sentence."""
    cause = f"{problem.cause[:1].lower()}{problem.cause[1:]}"
    return f"{rollout} was not judged: {cause}{f' {problem.next}' if problem.next else ''}"


def _judged(verdicts: Verdicts, changed: int | None, taken: Mapping[int, str]) -> Iterator[str]:
    masked = sum(said.verdict == "mask" for said in verdicts.steps.values())
    kept = len(verdicts.steps) - masked
    told = [f"judge keeps {kept}, masks {masked}"]
    if verdicts.overruled:
        told.append(f"{verdicts.overruled} of them because the observation is an error")
    if verdicts.undecided:
        told.append(f"{len(verdicts.undecided)} undecided")
    if verdicts.shortened:
        told.append(f"{verdicts.shortened} not shown whole")
    if changed is not None:
        told.append(f"{changed} changed")
    yield f"  {'; '.join(told)}"
    if taken:
        yield f"    {len(taken)} of those kept are masked by rules: {_steps(list(taken))}"
    for why, steps in groupby(verdicts.undecided.items(), key=lambda one: one[1]):
        yield f"    undecided {_steps([step for step, _ in steps])}: {why}"


def _steps(steps: Sequence[int]) -> str:
    """`step 4` or `steps 4, 6–9`."""
    runs: list[list[int]] = []
    for step in steps:
        if runs and step == runs[-1][-1] + 1:
            runs[-1].append(step)
        else:
            runs.append([step])
    told = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
    return f"{'step' if len(steps) == 1 else 'steps'} {told}"
