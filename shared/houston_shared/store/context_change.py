"""How the request of a step differs from that of the step before, and what is no longer in it.

A context only grows but at a fork, so most steps add an answer and an observation; a fork takes
messages away and puts a summary in their place. Nothing is stored for it: two readings are
compared.
"""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

import msgspec

from houston_shared.records import Message
from houston_shared.store import context
from houston_shared.store.plan import Plan
from houston_shared.store.queries import progress

_CUT = re.compile(r"\[… [^\]\n]{1,300}\]")
"""How every part of Houston declares what it left out of a text."""


class Numbered(NamedTuple):
    """A message and its place in its request, from 1."""

    number: int
    message: Message


class Change(NamedTuple):
    """What two requests have in common, and what only one of them has."""

    kept: int
    """Messages that both have, in the same order."""
    gone: list[Numbered]
    """Only the earlier one has them; numbered there."""
    new: list[Numbered]
    """Only the later one has them; numbered there."""


class Summarised(NamedTuple):
    """Steps that stand in a context as a summary."""

    first: int
    last: int
    before: int
    """The step whose request had the summary first."""
    mechanical: bool
    """Made without the model, after failed tries."""


class Cut(NamedTuple):
    """A text that says that something was left out of it."""

    number: int
    """Of the message, from 1."""
    words: str
    """As the model reads it."""


class Around(NamedTuple):
    """What the eye needs beside a request."""

    before: list[Message] | None
    """Messages of the step before; None for the first step."""
    summarised: list[Summarised]
    """Oldest first."""


def around(rollout: str, step: int) -> Plan[Around]:
    """The request before that of `step`, and what forks took out of the context until then."""
    before = (yield from context.said(rollout, step - 1)) if step > 1 else None
    found: list[Summarised] = []
    first = 1
    for fork in (yield from progress.forks(rollout)):
        if fork.step <= step:
            last = fork.first_kept_step - 1
            found.append(Summarised(first, last, fork.step, bool(fork.mechanical)))
            first = fork.first_kept_step
    return Around(before, found)


def change(before: Sequence[Message], after: Sequence[Message]) -> Change:
    """Compare two requests message by message; messages are the same when every byte is."""
    first, second = [_key(one) for one in before], [_key(one) for one in after]
    start = _common(first, second)
    matcher = SequenceMatcher(None, first[start:], second[start:], autojunk=False)
    gone = [Numbered(at + 1, one) for at, one in enumerate(before)]
    new = [Numbered(at + 1, one) for at, one in enumerate(after)]
    lost, found, kept = gone[start:], new[start:], start
    for a, b, size in reversed(matcher.get_matching_blocks()):
        del lost[a : a + size], found[b : b + size]
        kept += size
    return Change(kept, lost, found)


def cuts(messages: Sequence[Message]) -> list[Cut]:
    """Texts that say that something was left out; a system prompt only explains such words."""
    return [
        Cut(number, place.group())
        for number, one in enumerate(messages, 1)
        if one.role in ("user", "tool")
        for place in _CUT.finditer(one.content)
    ]


def as_json(change: Change, around: Around, step: int) -> dict[str, Any]:
    """`context R STEP --diff --json`."""
    return {
        "step": step,
        "before": step - 1 if around.before is not None else None,
        "kept": change.kept,
        "gone": [_line(one) for one in change.gone],
        "new": [_line(one) for one in change.new],
        "summarised": [one._asdict() for one in around.summarised],
    }


def _line(one: Numbered) -> dict[str, Any]:
    return {"number": one.number, **msgspec.to_builtins(one.message)}


def _key(message: Message) -> bytes:
    return msgspec.msgpack.encode(message)


def _common(first: Sequence[bytes], second: Sequence[bytes]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))
