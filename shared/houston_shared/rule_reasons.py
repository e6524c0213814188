"""Reasons of rules as one text: which rules mask a step, in which version, and why.

`error_observation@1: ls: exit code 2; blind_edit@1: a.py was changed …` is what the journal holds,
so that people read it as it stands and programs find the rules in it.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from houston_shared.wire_people import REASON_LIMIT

LONGEST = 300
"""Characters of one rule's reason."""
_HEAD = re.compile(r"(?:\A|; )([a-z][a-z0-9_]*)@(\d+): ")


class RuleReason(NamedTuple):
    """Why one rule masks a step."""

    rule: str
    version: int
    reason: str


def joined(reasons: Sequence[RuleReason]) -> str:
    """As one text within a verdict's limit: each is cut, and the last ones where all is too long;
    every rule stays named.
    """
    room = max(40, REASON_LIMIT // max(1, len(reasons)) - 60)
    texts = (_cut(" ".join(one.reason.split()), min(LONGEST, room)) for one in reasons)
    named = zip(reasons, texts, strict=True)
    return "; ".join(f"{one.rule}@{one.version}: {text}" for one, text in named)[:REASON_LIMIT]


def split(text: str) -> list[RuleReason]:
    """The rules that a verdict's reason names, in order; none where it is no rule's."""
    heads = list(_HEAD.finditer(text))
    if not heads:
        return []
    ends = [head.start() for head in heads[1:]] + [len(text)]
    return [
        RuleReason(head[1], int(head[2]), text[head.end() : end])
        for head, end in zip(heads, ends, strict=True)
    ]


def _cut(text: str, most: int) -> str:
    # A reason quotes what agents wrote: what looks like the next rule's head must not be one.
    safe = _HEAD.sub(lambda found: found[0].replace("@", " @"), text)
    return safe if len(safe) <= most else f"{safe[: most - 1]}…"
