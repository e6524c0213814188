"""What can be found: the text of an event as `search.db` indexes it and as a hit shows it.

The recorder's index and every reader mean the same text, so that a hit of the index is a hit of a
scan and the other way round.
"""

from typing import Any

import msgspec

from houston_shared.records import ForkBody, ObservationBody, Record, Result, SampleBody
from houston_shared.store.bodies import (
    Bookmarked,
    Claimed,
    GuidanceEdited,
    GuidanceQueued,
    VerdictGiven,
)

_TYPES: dict[str, type[Record]] = {
    "sample": SampleBody,
    "result": Result,
    "observation": ObservationBody,
    "guidance": GuidanceQueued,
    "edit": GuidanceEdited,
    "fork": ForkBody,
    "bookmark": Bookmarked,
    "claim": Claimed,
    "verdict": VerdictGiven,
}
KINDS = tuple(_TYPES)
"""Kinds of events that hold text of an agent, its world or a person."""


def tag(rollout: str) -> str:
    """The rollout's id as one word of the index: `count-words-4f2a` → `rcountwords4f2a`."""
    return "r" + "".join(character for character in rollout if character.isalnum())


def text_of(kind: str, body: bytes) -> str:
    """The text of an event's body; empty for kinds that have none.

    Raises msgspec.MsgspecError when the body is damaged.
    """
    if kind not in _TYPES:
        return ""
    match msgspec.msgpack.decode(body, type=_TYPES[kind]):
        case SampleBody() as sample:
            return "\n".join([sample.thought, *(_call(one) for one in sample.calls)])
        case Result(text=said) | GuidanceQueued(text=said) | GuidanceEdited(text=said):
            return said
        case VerdictGiven(source="rule"):  # it only quotes the step that it is about
            return ""
        case ObservationBody(tail=said) | ForkBody(summary=said) | VerdictGiven(reason=said):
            return said
        case Bookmarked(note=said) | Claimed(note=said):
            return said
    return ""


def _call(call: Any) -> str:
    """A call as its name and the values of its arguments."""
    return "\n".join([call.name, *values(call.arguments)])


def values(value: Any) -> list[str]:
    """The values of a call's arguments as text, however deep."""
    if isinstance(value, dict):
        return [text for each in value.values() for text in values(each)]
    if isinstance(value, list):
        return [text for each in value for text in values(each)]
    return [str(value)]
