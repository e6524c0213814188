"""Holds what clients saw against what the database says: nothing acked lost, doubled, altered.

Pure: it is given what was said, what was acked and what is stored, and returns findings. Who was
asked and how a database is read is written elsewhere (`witness`, `stored`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal["lost", "doubled", "reordered", "altered", "invented"]


class Key(NamedTuple):
    """Where a worker's message belongs."""

    rollout: str
    step: int
    attempt: int
    part: str


class Heard(NamedTuple):
    """Guidance as an ack carried it."""

    id: str
    text: str


class Acked(NamedTuple):
    """A message whose ack a worker saw."""

    key: Key
    words: str
    """Hash of the worker's own words."""
    seq: int
    duplicate: bool = False
    heard: tuple[Heard, ...] = ()


class Spoken(NamedTuple):
    """Guidance that a person said; acked."""

    id: str
    rollout: str
    text: str
    speaker: str = ""
    """Within one speaker, what was acked first comes first."""


class Prompt(NamedTuple):
    """What an engine was asked for a step: the whole context."""

    rollout: str
    step: int
    words: str


@dataclass(slots=True)
class History:
    """What clients saw, in the order in which they saw it."""

    sent: set[tuple[Key, str]] = field(default_factory=set)
    """Every message that was ever sent, with the hash of its words."""
    acked: list[Acked] = field(default_factory=list)
    spoken: list[Spoken] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)


class Event(NamedTuple):
    """A worker's message as it is stored."""

    seq: int
    key: Key
    words: str


class Told(NamedTuple):
    """Guidance as it is stored."""

    number: int
    id: str
    rollout: str
    text: str
    step: int | None
    """Step that it was delivered at; None while it is queued."""


@dataclass(slots=True)
class Stored:
    """What the database says."""

    events: Sequence[Event]
    """In order of their sequence."""
    guidance: Sequence[Told]
    """In the order in which it was queued."""
    contexts: dict[tuple[str, int], str] = field(default_factory=dict)
    """(rollout, step) → hash of the context before it."""
    closed: dict[str, int] = field(default_factory=dict)
    """Rollout → its last step, where the recorder may have closed that by itself: cancelled, or
    failed. What closes a step is everything behind its sample."""


class Finding(NamedTuple):
    """Something that must not be."""

    kind: Kind
    what: str


def check(history: History, stored: Stored) -> list[Finding]:
    """Everything that contradicts; empty when nothing does."""
    return [
        *_messages(history, stored),
        *_spoken(history, stored),
        *_heard(history, stored),
        *_contexts(history, stored),
    ]


def _messages(history: History, stored: Stored) -> Iterator[Finding]:
    found: dict[Key, Event] = {}
    newest = 0
    for event in stored.events:
        if event.key in found:
            yield Finding("doubled", f"{event.key} is stored as {found[event.key].seq} and again")
        if event.seq <= newest:
            yield Finding("reordered", f"event {event.seq} stands behind {newest}")
        if not _closing(event.key, stored) and (event.key, event.words) not in history.sent:
            yield Finding("invented", f"event {event.seq}: nobody sent {event.key} in these words")
        found.setdefault(event.key, event)
        newest = event.seq
    last: dict[str, int] = defaultdict(int)
    for ack in history.acked:
        event = found.get(ack.key)
        if event is None:
            yield Finding("lost", f"{ack.key} was acked as {ack.seq}")
            continue
        if event.words != ack.words:
            yield Finding("altered", f"{ack.key} was acked in other words than are stored")
        if event.seq != ack.seq:
            yield Finding("reordered", f"{ack.key} was acked as {ack.seq} and is {event.seq}")
        if ack.seq < last[ack.key.rollout] and not ack.duplicate:
            yield Finding("reordered", f"{ack.key} was acked behind {last[ack.key.rollout]}")
        last[ack.key.rollout] = max(last[ack.key.rollout], ack.seq)


def _closing(key: Key, stored: Stored) -> bool:
    return stored.closed.get(key.rollout) == key.step and key.part != "sample"


def _spoken(history: History, stored: Stored) -> Iterator[Finding]:
    counted = Counter(told.id for told in stored.guidance)
    yield from (Finding("doubled", f"guidance {id}") for id, n in counted.items() if n > 1)
    found = {told.id: told for told in stored.guidance}
    last: dict[str, int] = defaultdict(int)
    for one in history.spoken:
        told = found.get(one.id)
        if told is None:
            yield Finding("lost", f"guidance {one.id} was acked")
            continue
        if (told.rollout, told.text) != (one.rollout, one.text):
            yield Finding("altered", f"guidance {one.id}: {told.text!r}, not {one.text!r}")
        if told.number < last[one.speaker]:
            yield Finding("reordered", f"guidance {one.id} was acked behind {last[one.speaker]}")
        last[one.speaker] = max(last[one.speaker], told.number)


def _heard(history: History, stored: Stored) -> Iterator[Finding]:
    """Each word is heard at one step, whole, in order; what is stored as heard was heard."""
    found = {told.id: told for told in stored.guidance}
    at: dict[str, int] = {}
    for ack in history.acked:
        joined = [told for told in stored.guidance if _joined(told, ack.key)] if _ends(ack) else []
        if _ends(ack) and [told.id for told in joined] != [one.id for one in ack.heard]:
            yield Finding("lost", f"{ack.key} carried other guidance than is stored as delivered")
        for one in ack.heard:
            if at.setdefault(one.id, ack.key.step) != ack.key.step:
                yield Finding("doubled", f"guidance {one.id}: steps {at[one.id]}, {ack.key.step}")
            told = found.get(one.id)
            if told is None or told.step != ack.key.step:
                yield Finding("altered", f"guidance {one.id} was heard at step {ack.key.step}")
            elif told.text != one.text:
                yield Finding("altered", f"guidance {one.id} was heard in other words")
    yield from _order(stored.guidance)


def _ends(ack: Acked) -> bool:
    return ack.key.part == "observation"


def _joined(told: Told, key: Key) -> bool:
    return (told.rollout, told.step) == (key.rollout, key.step)


def _order(guidance: Iterable[Told]) -> Iterator[Finding]:
    last: dict[str, int] = defaultdict(int)
    for told in guidance:
        if told.step is None:
            continue
        if told.step < last[told.rollout]:
            yield Finding("reordered", f"guidance {told.id} was heard before what was said earlier")
        last[told.rollout] = told.step


def _contexts(history: History, stored: Stored) -> Iterator[Finding]:
    """Whoever asks for a step asks with the same context, and it is the stored one."""
    asked: dict[tuple[str, int], str] = dict(stored.contexts)
    for prompt in history.prompts:
        if asked.setdefault((prompt.rollout, prompt.step), prompt.words) != prompt.words:
            yield Finding(
                "altered", f"the context of {prompt.rollout} before step {prompt.step} differs"
            )
