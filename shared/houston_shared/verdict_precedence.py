"""Which of the verdicts on a step counts: the one place that says so, for rows and for people.

A person's verdict counts before all others. An error in an observation is an error whatever was
intended: the rules' mask that names it counts before a judge's keep, whichever came later.
Otherwise a judge's verdict counts before the rules'. The stored reason tells which mask it is, so
older verdicts count in the same way. Rules' reasons are one text,
`error_observation@1: ls: exit code 2; blind_edit@1: a.py was changed …`, which people read as it
is, and in which programs find the rules.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from houston_shared.control_messages import REASON_LIMIT

MAX_RULE_REASON_CHARACTERS = 300
"""Characters of one rule's reason."""
_REASON_HEAD = re.compile(r"(?:\A|; )([a-z][a-z0-9_]*)@(\d+): ")


class RuleReason(NamedTuple):
    """Why one rule masks a step."""

    rule: str
    version: int
    reason: str


def join_rule_reasons(reasons: Sequence[RuleReason]) -> str:
    """As one text within a verdict's limit: each is cut, and the last ones where all is too long;
    every rule stays named.
    """
    room = max(40, REASON_LIMIT // max(1, len(reasons)) - 60)
    texts = (
        _shorten_reason(" ".join(part.reason.split()), min(MAX_RULE_REASON_CHARACTERS, room))
        for part in reasons
    )
    named = zip(reasons, texts, strict=True)
    return "; ".join(f"{part.rule}@{part.version}: {text}" for part, text in named)[:REASON_LIMIT]


def split_rule_reasons(text: str) -> list[RuleReason]:
    """The rules that a verdict's reason names, in order; none where it is no rule's."""
    heads = list(_REASON_HEAD.finditer(text))
    if not heads:
        return []
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return [
        RuleReason(head[1], int(head[2]), text[head.end() : end])
        for head, end in zip(heads, ends, strict=True)
    ]


def _shorten_reason(text: str, limit: int) -> str:
    # A reason quotes what agents wrote: what looks like the next rule's head must not be one.
    safe = _REASON_HEAD.sub(lambda match: match[0].replace("@", " @"), text)
    return safe if len(safe) <= limit else f"{safe[: limit - 1]}…"


ERROR_RULE = "error_observation"
"""The rule that no judge overrules."""
HUMAN, JUDGE_MASKS, ERROR_MASKS, JUDGE_KEEPS, RULE = range(5)


def verdict_rank(source: str, keep: bool, error: bool) -> int:
    """The place of a verdict among those on its step: the lowest counts.

    source: `human`, `judge` or `rule`. error: for a rule's mask, whether `names_error_rule`; of
    others it says nothing.
    """
    if source == "human":
        return HUMAN
    if source == "judge":
        return JUDGE_KEEPS if keep else JUDGE_MASKS
    return ERROR_MASKS if error and not keep else RULE


def names_error_rule(reason: str) -> bool:
    """Whether the reason of a rule's mask names the rule that no judge overrules."""
    return any(part.rule == ERROR_RULE for part in split_rule_reasons(reason))
