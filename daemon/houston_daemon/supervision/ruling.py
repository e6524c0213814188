"""What rules find in a rollout, as verdicts: whose steps they are, how reasons name the rules."""

from collections import Counter
from collections.abc import Mapping, Sequence

from houston_daemon.supervision.rules.catalog import RuleVerdict
from houston_daemon.supervision.storing import Said
from houston_daemon.supervision.trace import Trace
from houston_shared import rule_reasons, verdict_order
from houston_shared.rule_reasons import RuleReason

Found = Mapping[int, Sequence[RuleVerdict]]


def own_steps(trace: Trace) -> list[int]:
    """Steps that are judged with a rollout: of a branch not those that it shares with its parent,
    whose they are."""
    return [one.step for one in trace.steps if not one.inherited]


def said(trace: Trace, found: Found) -> dict[int, Said]:
    """A mask for each step that a rule masks, its reason naming every rule and its version."""
    mine = set(own_steps(trace))
    return {
        step: Said("mask", rule_reasons.joined([RuleReason(*one[1:]) for one in verdicts]))
        for step, verdicts in found.items()
        if step in mine and verdicts
    }


def errors(found: Found) -> dict[int, str]:
    """Steps whose observation is an error, with that rule's word."""
    return {
        step: rule_reasons.joined([RuleReason(*one[1:])])
        for step, verdicts in found.items()
        for one in verdicts
        if one.rule == verdict_order.ERROR
    }


def counts(trace: Trace, found: Found) -> dict[str, int]:
    """By rule and version, how many of the rollout's own steps it masks, the most first."""
    mine = set(own_steps(trace))
    names = Counter(
        f"{one.rule}@{one.version}"
        for step, verdicts in found.items()
        if step in mine
        for one in verdicts
    )
    return dict(names.most_common())
