"""Judges one rollout: asks about all of its windows, and gives the outcome in words and as JSON.

If the observation of a step is an error, the rule prevails: the judge's keep becomes a mask whose
reason says so. Results are reported rollout by rollout. Nothing is stored here, and people's
verdicts are neither read nor changed.
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
from houston_daemon.review.judge.judge_prompt import JudgeWindow, WindowPlanner
from houston_daemon.review.judge.judge_template import JudgeTemplate
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
    windows: Sequence[JudgeWindow],
    judge: WindowJudge,
    turn: asyncio.Semaphore,
    errors: Mapping[int, str],
    report: Callable[[WindowDecision], None],
) -> JudgeVerdicts:
    """Ask about all windows, as many at once as `turn` lets through.

    errors: steps whose observation is an error, with the rule's reason. report: told each window.
    Raises EngineUnavailable where the engine is gone; answers until then are kept in the cache.
    """

    async def judge_one(window: JudgeWindow) -> WindowDecision:
        async with turn:
            decided = await judge.judge_window(window)
        report(decided)
        return decided

    decisions = await gather_all([judge_one(window) for window in windows])
    steps = {step: judged for decided in decisions for step, judged in decided.steps.items()}
    overruled = [step for step in errors if step in steps and steps[step].verdict == "keep"]
    steps |= {step: JudgedStep("mask", f"{errors[step]}{_OVERRULED_SUFFIX}") for step in overruled}
    undecided = {step: decided.problem for decided in decisions for step in decided.undecided}
    return JudgeVerdicts(
        steps=dict(sorted(steps.items())),
        undecided=dict(sorted(undecided.items())),
        overruled=len(overruled),
        windows=len(windows),
        shortened=sum(window.shortened for window in windows),
    )


def would_keep(reason: str) -> bool:
    """Whether a mask with this reason was the judge's keep, overruled by an error."""
    return reason.endswith(_OVERRULED_SUFFIX) and verdict_precedence.names_error_rule(reason)


async def gather_all(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results, or the first failure once nothing runs any more."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
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


def outcome_json(outcome: JudgeOutcome, settings: JudgeSettings, dry: bool) -> dict[str, Any]:
    """A line of `houston judge --json`."""
    line: dict[str, Any] = {"rollout": outcome.rollout, "steps": outcome.steps, "stored": not dry}
    if outcome.rules is not None:
        line["rules"] = {
            "masked": len(outcome.rules),
            "by_rule": dict(outcome.by_rule),
            "changed": outcome.rules_changed,
            "steps": {str(step): verdict.reason for step, verdict in sorted(outcome.rules.items())},
        }
    if outcome.judge is not None:
        verdicts = outcome.judge
        line["judge"] = {
            "by": outcome.author,
            "kept": sum(judged.verdict == "keep" for judged in verdicts.steps.values()),
            "masked": sum(judged.verdict == "mask" for judged in verdicts.steps.values()),
            "undecided": {str(step): reason for step, reason in verdicts.undecided.items()},
            "overruled": verdicts.overruled,
            "kept_over_rules": {
                str(step): reason for step, reason in outcome.kept_over_rules.items()
            },
            "shortened": verdicts.shortened,
            "changed": outcome.judge_changed,
            "steps": {
                str(step): {"verdict": judged.verdict, "reason": judged.reason}
                for step, judged in verdicts.steps.items()
            },
        }
    if outcome.planned_windows is not None:
        line["judge"] = {
            "by": outcome.author,
            "windows": outcome.planned_windows,
            "cached": outcome.cached_answers,
        }
    if outcome.judge is not None or outcome.planned_windows is not None:
        line["cost"] = outcome.cost.as_json(settings)
    return line


def outcome_lines(outcome: JudgeOutcome, dry: bool) -> Iterator[str]:
    """The same for people."""
    yield f"{outcome.rollout}: {pluralize(outcome.steps, 'step')}"
    if outcome.rules is not None:
        named = ", ".join(f"{name} {count}" for name, count in outcome.by_rule.items())
        changed = "" if outcome.rules_changed is None else f"; {outcome.rules_changed} changed"
        yield f"  rules mask {len(outcome.rules)}{f' ({named})' if named else ''}{changed}"
        if dry:
            for step, verdict in sorted(outcome.rules.items()):
                yield f"    step {step}: {verdict.reason}"
    if outcome.planned_windows is not None:
        cached = f"{outcome.cached_answers} in the cache"
        cost = f"about {outcome.cost.prompt_tokens:,} prompt tokens to ask"
        yield f"  judge: {pluralize(outcome.planned_windows, 'window')}, {cached}; {cost}"
    if outcome.judge is not None:
        yield from _judge_lines(outcome.judge, outcome.judge_changed, outcome.kept_over_rules)


def passed_over_sentence(rollouts: Sequence[str]) -> str:
    """Which rollouts were left out because their texts are gone, in a sentence; empty for none."""
    if not rollouts:
        return ""
    count = pluralize(len(rollouts), "rollout")
    return f"{count} left out, archived or erased: {', '.join(sorted(rollouts))}."


def rule_failed_sentence(rollout: str, problem: HoustonError) -> str:
    """Which rollout a rule failed on, and how, in a sentence."""
    cause = f"{problem.cause[:1].lower()}{problem.cause[1:]}"
    return f"{rollout} was not judged: {cause}{f' {problem.next}' if problem.next else ''}"


def _judge_lines(
    verdicts: JudgeVerdicts, changed: int | None, kept_over_rules: Mapping[int, str]
) -> Iterator[str]:
    masked = sum(judged.verdict == "mask" for judged in verdicts.steps.values())
    keeps = len(verdicts.steps) - masked
    parts = [f"judge keeps {keeps}, masks {masked}"]
    if verdicts.overruled:
        parts.append(f"{verdicts.overruled} of them because the observation is an error")
    if verdicts.undecided:
        parts.append(f"{len(verdicts.undecided)} undecided")
    if verdicts.shortened:
        parts.append(f"{verdicts.shortened} not shown whole")
    if changed is not None:
        parts.append(f"{changed} changed")
    yield f"  {'; '.join(parts)}"
    if kept_over_rules:
        masked_too = f"{len(kept_over_rules)} of those kept are masked by rules"
        yield f"    {masked_too}: {_step_numbers(list(kept_over_rules))}"
    for reason, steps in groupby(verdicts.undecided.items(), key=lambda item: item[1]):
        yield f"    undecided {_step_numbers([step for step, _ in steps])}: {reason}"


def _step_numbers(steps: Sequence[int]) -> str:
    """`step 4` or `steps 4, 6–9`."""
    ranges = ", ".join(
        str(first) if first == last else f"{first}–{last}" for first, last in number_ranges(steps)
    )
    return f"{'step' if len(steps) == 1 else 'steps'} {ranges}"
