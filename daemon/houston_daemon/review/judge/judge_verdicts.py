"""A rollout before the judge: all of its windows asked about, and what came of it in words and as
JSON.

Where the observation of a step is an error the rule stands: the judge's keep becomes a mask whose
reason says so. Results are reported rollout by rollout. Nothing is stored here, and people's
verdicts are neither read nor touched.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeVar

from houston_daemon.review import verdict_updates
from houston_daemon.review.judge.judge_answers import JudgedStep
from houston_daemon.review.judge.judge_client import (
    JudgeClient,
    JudgeCost,
    WindowDecision,
    WindowJudge,
)
from houston_daemon.review.judge.judge_prompt import JudgeTemplate, JudgeWindow, WindowPlanner
from houston_daemon.review.rollout_trace import RolloutTrace
from houston_daemon.review.verdict_updates import StepVerdict
from houston_shared import verdict_precedence
from houston_shared.config_sections import JudgeSettings
from houston_shared.errors import HoustonError
from houston_shared.times_and_counts import number_ranges, pluralize

T = TypeVar("T")
_OVERRULED_SUFFIX = "; the judge would keep it"
"""How the reason of a keep ends that became a mask."""


@dataclass(frozen=True, slots=True)
class JudgeVerdicts:
    """What a judge says of one rollout."""

    steps: Mapping[int, JudgedStep]
    undecided: Mapping[int, str]
    """Steps without a verdict, and why."""
    overruled: int
    """Keeps that became masks because the observation is an error."""
    windows: int
    shortened: int
    """Steps that the judge did not see whole."""


def plan_windows(
    trace: RolloutTrace, template: JudgeTemplate, client: JudgeClient
) -> list[JudgeWindow]:
    """The windows of a rollout. Raises ConfigurationError where they are too small."""
    steps = verdict_updates.own_steps(trace)
    if not steps:
        return []
    return list(WindowPlanner(trace, template, client.tokens, client.token_budget).windows(steps))


async def judge_rollout(
    trace: RolloutTrace,
    asked: Sequence[JudgeWindow],
    judge: WindowJudge,
    turn: asyncio.Semaphore,
    errors: Mapping[int, str],
    done: Callable[[WindowDecision], None],
) -> JudgeVerdicts:
    """Ask about all windows, as many at once as `turn` lets through.

    errors: steps whose observation is an error, with the rule's reason. done: told of each window.
    Raises EngineUnavailable where the engine is gone; answers until then are kept in the cache.
    """

    async def one(window: JudgeWindow) -> WindowDecision:
        async with turn:
            decided = await judge.judge_window(window)
        done(decided)
        return decided

    decisions = await gather_all([one(window) for window in asked])
    steps = {step: judged for decided in decisions for step, judged in decided.steps.items()}
    kept = [step for step in errors if step in steps and steps[step].verdict == "keep"]
    steps |= {step: JudgedStep("mask", f"{errors[step]}{_OVERRULED_SUFFIX}") for step in kept}
    undecided = {step: decided.problem for decided in decisions for step in decided.undecided}
    return JudgeVerdicts(
        steps=dict(sorted(steps.items())),
        undecided=dict(sorted(undecided.items())),
        overruled=len(kept),
        windows=len(asked),
        shortened=sum(window.shortened for window in asked),
    )


def would_keep(reason: str) -> bool:
    """Whether a judge's mask with this reason is its own keep, overruled by an error."""
    return reason.endswith(_OVERRULED_SUFFIX) and verdict_precedence.names_error_rule(reason)


async def gather_all(asked: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results, or the first failure once nothing runs any more."""
    tasks = [asyncio.ensure_future(one) for one in asked]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class JudgeOutcome:
    """One rollout; parts that were not asked for are None."""

    rollout: str
    steps: int
    """Closed steps of its own."""
    rules: Mapping[int, StepVerdict] | None = None
    """What rules say, by step."""
    by_rule: Mapping[str, int] = field(default_factory=dict)
    rules_changed: int | None = None
    """Steps of which rules say something else than before; None where nothing was stored."""
    judge: JudgeVerdicts | None = None
    judge_changed: int | None = None
    kept_over_rules: Mapping[int, str] = field(default_factory=dict)
    """Steps that the judge keeps although rules mask them, with the rules' reason."""
    author: str = ""
    """As the judge is named in its verdicts."""
    planned_windows: int | None = None
    """Windows that would be asked about, of a dry run."""
    cached_answers: int = 0
    """Of these, answers that are in the cache."""
    cost: JudgeCost = field(default_factory=JudgeCost)


def outcome_json(one: JudgeOutcome, settings: JudgeSettings, dry: bool) -> dict[str, Any]:
    """A line of `houston judge --json`."""
    line: dict[str, Any] = {"rollout": one.rollout, "steps": one.steps, "stored": not dry}
    if one.rules is not None:
        line["rules"] = {
            "masked": len(one.rules),
            "by_rule": dict(one.by_rule),
            "changed": one.rules_changed,
            "steps": {str(step): said.reason for step, said in sorted(one.rules.items())},
        }
    if one.judge is not None:
        verdicts = one.judge
        line["judge"] = {
            "by": one.author,
            "kept": sum(said.verdict == "keep" for said in verdicts.steps.values()),
            "masked": sum(said.verdict == "mask" for said in verdicts.steps.values()),
            "undecided": {str(step): why for step, why in verdicts.undecided.items()},
            "overruled": verdicts.overruled,
            "kept_over_rules": {str(step): why for step, why in one.kept_over_rules.items()},
            "shortened": verdicts.shortened,
            "changed": one.judge_changed,
            "steps": {
                str(step): {"verdict": said.verdict, "reason": said.reason}
                for step, said in verdicts.steps.items()
            },
        }
    if one.planned_windows is not None:
        line["judge"] = {
            "by": one.author,
            "windows": one.planned_windows,
            "cached": one.cached_answers,
        }
    if one.judge is not None or one.planned_windows is not None:
        line["cost"] = one.cost.as_json(settings)
    return line


def outcome_lines(one: JudgeOutcome, dry: bool) -> Iterator[str]:
    """The same for people."""
    yield f"{one.rollout}: {pluralize(one.steps, 'step')}"
    if one.rules is not None:
        named = ", ".join(f"{name} {count}" for name, count in one.by_rule.items())
        changed = "" if one.rules_changed is None else f"; {one.rules_changed} changed"
        yield f"  rules mask {len(one.rules)}{f' ({named})' if named else ''}{changed}"
        if dry:
            for step, said in sorted(one.rules.items()):
                yield f"    step {step}: {said.reason}"
    if one.planned_windows is not None:
        cached = f"{one.cached_answers} in the cache"
        asked = f"about {one.cost.prompt_tokens:,} prompt tokens to ask"
        yield f"  judge: {pluralize(one.planned_windows, 'window')}, {cached}; {asked}"
    if one.judge is not None:
        yield from _judge_lines(one.judge, one.judge_changed, one.kept_over_rules)


def passed_over_sentence(rollouts: Sequence[str]) -> str:
    """Which rollouts were left out because their texts are gone, in a sentence; empty for none."""
    if not rollouts:
        return ""
    gone = f"{pluralize(len(rollouts), 'rollout')} left out, archived or erased"
    return f"{gone}: {', '.join(sorted(rollouts))}."


def rule_failed_sentence(rollout: str, problem: HoustonError) -> str:
    """Which rollout a rule failed on, and how, in a sentence."""
    cause = f"{problem.cause[:1].lower()}{problem.cause[1:]}"
    return f"{rollout} was not judged: {cause}{f' {problem.next}' if problem.next else ''}"


def _judge_lines(
    verdicts: JudgeVerdicts, changed: int | None, taken: Mapping[int, str]
) -> Iterator[str]:
    masked = sum(said.verdict == "mask" for said in verdicts.steps.values())
    kept = len(verdicts.steps) - masked
    parts = [f"judge keeps {kept}, masks {masked}"]
    if verdicts.overruled:
        parts.append(f"{verdicts.overruled} of them because the observation is an error")
    if verdicts.undecided:
        parts.append(f"{len(verdicts.undecided)} undecided")
    if verdicts.shortened:
        parts.append(f"{verdicts.shortened} not shown whole")
    if changed is not None:
        parts.append(f"{changed} changed")
    yield f"  {'; '.join(parts)}"
    if taken:
        yield f"    {len(taken)} of those kept are masked by rules: {_step_numbers(list(taken))}"
    for why, steps in groupby(verdicts.undecided.items(), key=lambda one: one[1]):
        yield f"    undecided {_step_numbers([step for step, _ in steps])}: {why}"


def _step_numbers(steps: Sequence[int]) -> str:
    """`step 4` or `steps 4, 6–9`."""
    ranges = ", ".join(
        str(first) if first == last else f"{first}–{last}" for first, last in number_ranges(steps)
    )
    return f"{'step' if len(steps) == 1 else 'steps'} {ranges}"
