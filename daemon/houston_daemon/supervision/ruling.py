"""What rules find in a rollout, as verdicts: whose steps they are, how reasons name the rules
and hold no secret.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from houston_daemon.supervision.rules.catalog import RuleVerdict
from houston_daemon.supervision.storing import Said
from houston_daemon.supervision.trace import Trace
from houston_shared import rule_reasons, verdict_order
from houston_shared.rule_reasons import RuleReason
from houston_shared.secret_values import redact
from houston_shared.wire_people import REASON_LIMIT

Found = Mapping[int, Sequence[RuleVerdict]]


def own_steps(trace: Trace) -> list[int]:
    """Steps that are judged with a rollout: of a branch not those that it shares with its parent,
    whose they are."""
    return [one.step for one in trace.steps if not one.inherited]


def said(trace: Trace, found: Found) -> dict[int, Said]:
    """A mask for each step that a rule masks, its reason naming every rule and its version.

    The reason is as it would be stored: what is shown of it, sent and compared is the same.
    """
    mine = set(own_steps(trace))
    return {
        step: Said("mask", _reason(verdicts))
        for step, verdicts in found.items()
        if step in mine and verdicts
    }


def errors(found: Found) -> dict[int, str]:
    """Steps whose observation is an error, with that rule's word."""
    return {
        step: _reason([one])
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


def _reason(verdicts: Sequence[RuleVerdict]) -> str:
    """What rules say of a step, without secrets: one may be known only since the agent wrote it.

    Each is redacted before it is cut, for little of a secret is none any more.
    """
    each = [RuleReason(one.rule, one.version, redact(one.reason)) for one in verdicts]
    return redact(rule_reasons.joined(each))[:REASON_LIMIT]
