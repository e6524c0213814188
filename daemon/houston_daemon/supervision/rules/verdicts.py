"""From what rules find to messages for the recorder: only what differs from what stands.

Running rules twice sends nothing the second time. It sends nothing itself, and knows no judge.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from houston_daemon.supervision.rules.catalog import RuleVerdict
from houston_daemon.supervision.rules.catalog import found as find
from houston_daemon.supervision.trace import Trace
from houston_shared import rule_reasons
from houston_shared.rule_reasons import RuleReason
from houston_shared.store.queries.verdicts import Given
from houston_shared.wire import JudgedSteps, StoreVerdicts
from houston_shared.wire_people import RANGES, STEPS, Judgement

BY = "rules"

Says = tuple[Judgement, str]
"""A verdict and its reason."""


def messages(
    trace: Trace, stands: Mapping[int, Sequence[Given]], claimed: str = ""
) -> list[StoreVerdicts]:
    """What brings the store from what stands to what rules say; empty where nothing differs.

    stands: `queries.verdicts.standing` of the rollout. claimed: as in every message of a person.
    Raises as `catalog.found`.
    """
    return list(_messages(trace.rollout, changes(trace, stands), claimed))


def changes(trace: Trace, stands: Mapping[int, Sequence[Given]]) -> list[JudgedSteps]:
    """The same as ranges of steps, in order: to be masked, or undecided where no rule masks any
    more."""
    said = find(trace)
    differ: list[tuple[int, Says]] = []
    for step in trace.steps:
        if step.inherited:
            continue
        now = _says(said.get(step.step, []))
        before = _before(stands.get(step.step, ()), step.attempt)
        if now != before:
            differ.append((step.step, now))
    return list(_ranges(differ))


def _says(verdicts: Sequence[RuleVerdict]) -> Says:
    if not verdicts:
        return "undecided", ""
    reasons = [RuleReason(one.rule, one.version, one.reason) for one in verdicts]
    return "mask", rule_reasons.joined(reasons)


def _before(given: Sequence[Given], attempt: int) -> Says:
    for one in given:
        if one.source == "rule" and one.attempt == attempt:
            return one.verdict, one.reason
    return "undecided", ""


def _ranges(differ: list[tuple[int, Says]]) -> Iterator[JudgedSteps]:
    """Steps behind each other of which the same is said are one range."""
    placed = ((step, says, step - at) for at, (step, says) in enumerate(differ))
    for ((verdict, reason), _), group in groupby(placed, key=lambda one: one[1:]):
        steps = [step for step, *_ in group]
        for at in range(0, len(steps), STEPS):
            part = steps[at : at + STEPS]
            yield JudgedSteps(first=part[0], last=part[-1], verdict=verdict, reason=reason)


def _messages(rollout: str, ranges: Sequence[JudgedSteps], claimed: str) -> Iterator[StoreVerdicts]:
    part: list[JudgedSteps] = []
    steps = 0
    for one in ranges:
        many = one.last - one.first + 1
        if part and (len(part) == RANGES or steps + many > STEPS):
            yield _message(rollout, part, claimed)
            part, steps = [], 0
        part.append(one)
        steps += many
    if part:
        yield _message(rollout, part, claimed)


def _message(rollout: str, steps: Sequence[JudgedSteps], claimed: str) -> StoreVerdicts:
    request = uuid.uuid4().hex
    return StoreVerdicts(
        request=request, rollout=rollout, source="rule", by=BY, steps=tuple(steps), claimed=claimed
    )
