"""Verdicts of rules and judges on their way to the recorder: only what differs from what is stored.

It turns findings of rules or answers of a judge into ranges of steps and messages of a bounded
size. Running the same rules twice sends nothing the second time; a verdict that a judge no longer
gives becomes undecided. Reasons name every rule with its version and contain no secret. People's
verdicts are neither read nor changed.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from houston_daemon.review.rollout_trace import RolloutTrace
from houston_daemon.review.rules.rule_catalog import RuleMask, run_rules
from houston_shared import verdict_precedence
from houston_shared.control_client import send_with_retry
from houston_shared.control_messages import (
    MAX_JUDGED_RANGES,
    MAX_JUDGED_STEPS,
    REASON_LIMIT,
    JudgedSteps,
    Judgement,
    StoreReviewCost,
    StoreVerdicts,
)
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.secret_redaction import redact
from houston_shared.store import annotation_queries
from houston_shared.store.annotation_queries import SourceVerdict
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.store_reader import Reader
from houston_shared.verdict_precedence import RuleReason


class StepVerdict(NamedTuple):
    """What rules or a judge say of one step now."""

    verdict: Judgement
    reason: str = ""


def store_judge_verdicts(
    home: Home,
    reader: Reader,
    rollout: str,
    by: str,
    attempts: Mapping[int, int],
    verdicts: Mapping[int, StepVerdict],
) -> int:
    """Have the recorder store a judge's verdicts on the steps of a rollout.

    by: `judge:` and more. attempts: for every judged step, the one that counts. verdicts: by step;
    judged steps without one become undecided. Returns how many verdicts changed. Raises as
    `send_verdicts`.
    """
    before = reader.run(_stored_judge_verdicts(rollout))
    changed = changed_verdicts(before, by, attempts, verdicts)
    messages = _verdict_messages(rollout, "judge", by, list(verdict_ranges(changed)))
    send_verdicts(home, messages)
    return len(changed)


def send_verdicts(home: Home, messages: Sequence[StoreVerdicts]) -> None:
    """Have the recorder store them. Raises DaemonNotRunning, and HoustonError in its words."""
    for message in messages:
        show = f"houston verdict {message.rollout}"
        send_with_retry(home, message, "Some verdicts may have been stored.", show)


def record_review_cost(home: Home, message: StoreReviewCost, note: Callable[[str], None]) -> None:
    """Have the recorder add the cost of a judge or a critic. If that fails, say so: their answers
    count all the same."""
    try:
        send_with_retry(home, message, "", f"houston rollout show {message.rollout}")
    except HoustonError as problem:
        note(f"the cost of {message.reviewer} was not added to {message.rollout}: {problem.cause}")


def changed_verdicts(
    before: Mapping[int, SourceVerdict],
    by: str,
    attempts: Mapping[int, int],
    verdicts: Mapping[int, StepVerdict],
) -> dict[int, StepVerdict]:
    """By step, the verdicts that differ from the stored ones; `undecided` takes a verdict back.

    A verdict on an attempt that was replaced since does not count for the step.
    """
    changed: dict[int, StepVerdict] = {}
    for step, attempt in attempts.items():
        now, stored = verdicts.get(step, StepVerdict("undecided")), before.get(step)
        now = StepVerdict(now.verdict, redact(now.reason)[:REASON_LIMIT])
        if stored is None or stored.attempt != attempt:
            if now.verdict != "undecided":
                changed[step] = now
        elif (stored.verdict, stored.reason, stored.by) != (*now, by):
            changed[step] = now
    return changed


def verdict_ranges(verdicts: Mapping[int, StepVerdict]) -> Iterator[JudgedSteps]:
    """The same as ranges of consecutive steps with the same verdict, in order."""
    numbered = enumerate(sorted(verdicts))
    for (_, verdict), group in groupby(numbered, lambda at: (at[1] - at[0], verdicts[at[1]])):
        steps = [step for _, step in group]
        for at in range(0, len(steps), MAX_JUDGED_STEPS):
            part = steps[at : at + MAX_JUDGED_STEPS]
            yield JudgedSteps(
                first=part[0], last=part[-1], verdict=verdict.verdict, reason=verdict.reason
            )


def message_parts(ranges: Sequence[JudgedSteps]) -> Iterator[tuple[JudgedSteps, ...]]:
    """As many ranges at once as a message holds."""
    part: list[JudgedSteps] = []
    steps = 0
    for span in ranges:
        size = span.last - span.first + 1
        if part and (len(part) == MAX_JUDGED_RANGES or steps + size > MAX_JUDGED_STEPS):
            yield tuple(part)
            part, steps = [], 0
        part.append(span)
        steps += size
    if part:
        yield tuple(part)


def _verdict_messages(
    rollout: str, source: Literal["rule", "judge"], by: str, ranges: Sequence[JudgedSteps]
) -> list[StoreVerdicts]:
    return [
        StoreVerdicts(request=uuid.uuid4().hex, rollout=rollout, source=source, by=by, steps=part)
        for part in message_parts(ranges)
    ]


def _stored_judge_verdicts(rollout: str) -> ReadPlan[dict[int, SourceVerdict]]:
    stored = yield from annotation_queries.read_verdicts_with_reasons(rollout)
    return {step: row for step, rows in stored.items() for row in rows if row.source == "judge"}


RuleFindings = Mapping[int, Sequence[RuleMask]]


def own_steps(trace: RolloutTrace) -> list[int]:
    """Steps that are judged with a rollout: for a branch, without those that belong to its
    parent."""
    return [step.step for step in trace.steps if not step.inherited]


def rule_masks(trace: RolloutTrace, findings: RuleFindings) -> dict[int, StepVerdict]:
    """A mask for each step that a rule masks, its reason naming every rule and its version.

    The reason is as it would be stored: what is shown of it, sent and compared is the same.
    """
    own = set(own_steps(trace))
    return {
        step: StepVerdict("mask", _joined_reasons(masks))
        for step, masks in findings.items()
        if step in own and masks
    }


def error_steps(findings: RuleFindings) -> dict[int, str]:
    """Steps whose observation is an error, with that rule's word."""
    return {
        step: _joined_reasons([mask])
        for step, masks in findings.items()
        for mask in masks
        if mask.rule == verdict_precedence.ERROR_RULE
    }


def mask_counts(trace: RolloutTrace, findings: RuleFindings) -> dict[str, int]:
    """By rule and version, how many of the rollout's own steps it masks, the most first."""
    own = set(own_steps(trace))
    names = Counter(
        f"{mask.rule}@{mask.version}"
        for step, masks in findings.items()
        if step in own
        for mask in masks
    )
    return dict(names.most_common())


def _joined_reasons(masks: Sequence[RuleMask]) -> str:
    """What rules say of a step, without secrets: one may be known only since the agent wrote it.

    Each is redacted before it is cut, for little of a secret is none any more.
    """
    reasons = [RuleReason(mask.rule, mask.version, redact(mask.reason)) for mask in masks]
    return redact(verdict_precedence.join_rule_reasons(reasons))[:REASON_LIMIT]


RULES_AUTHOR = "rules"


def rule_verdict_messages(
    trace: RolloutTrace,
    stored: Mapping[int, Sequence[SourceVerdict]],
    findings: RuleFindings | None = None,
) -> list[StoreVerdicts]:
    """Messages that change the stored verdicts to what rules say; empty if nothing differs.

    stored: `read_verdicts_with_reasons` of the rollout. findings: of `run_rules`, which is run
    where they are not given. Raises as `run_rules`.
    """
    changes = rule_verdict_changes(trace, stored, findings)
    return _verdict_messages(trace.rollout, "rule", RULES_AUTHOR, changes)


def rule_verdict_changes(
    trace: RolloutTrace,
    stored: Mapping[int, Sequence[SourceVerdict]],
    findings: RuleFindings | None = None,
) -> list[JudgedSteps]:
    """The same as ranges of steps, in order: to be masked, or undecided where no rule masks any
    more."""
    masks = rule_masks(trace, run_rules(trace) if findings is None else findings)
    changed: dict[int, StepVerdict] = {}
    for step in trace.steps:
        if step.inherited:
            continue
        now = masks.get(step.step, StepVerdict("undecided"))
        if now != _stored_rule_verdict(stored.get(step.step, ()), step.attempt):
            changed[step.step] = now
    return list(verdict_ranges(changed))


def _stored_rule_verdict(stored: Sequence[SourceVerdict], attempt: int) -> StepVerdict:
    for row in stored:
        if row.source == "rule" and row.attempt == attempt:
            return StepVerdict(row.verdict, row.reason)
    return StepVerdict("undecided")
