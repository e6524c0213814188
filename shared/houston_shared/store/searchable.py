"""What can be found: the text of an event as `search.db` indexes it and as a hit shows it.

One place for the writer of the index and for readers, so that both mean the same text.
"""

from typing import Any

import msgspec

KINDS = ("sample", "result", "observation", "fork", "guidance", "edit", "bookmark")
"""Kinds of events that hold text of an agent, its world or a person."""


def tag(rollout: str) -> str:
    """The rollout as one token of the column `tag`."""
    return "r" + "".join(character for character in rollout if character.isalnum())


def text_of(kind: str, body: bytes) -> str:
    """The text of an event's body; empty for kinds that have none.

    Raises msgspec.MsgspecError when the body is damaged.
    """
    if kind not in KINDS:
        return ""
    found: dict[str, Any] = msgspec.msgpack.decode(body)
    parts = [found.get(name, "") for name in _NAMES[kind]]
    if kind == "sample":
        parts += [_call(one) for one in found.get("calls", ())]
    elif kind == "observation":
        parts += [one.get("path", "") for one in found.get("files", ())]
    return "\n".join(part for part in parts if part)


_NAMES: dict[str, tuple[str, ...]] = {
    "sample": ("thought",),
    "result": ("text",),
    "observation": (),  # its tail is a clock: the same words in every step
    "fork": ("summary",),
    "guidance": ("text",),
    "edit": ("text",),
    "bookmark": ("note",),
}


def _call(call: dict[str, Any]) -> str:
    return f"{call.get('name', '')} {_words(call.get('arguments', {}))}"


def _words(value: Any) -> str:
    """The strings and numbers in a call's arguments, names included."""
    if isinstance(value, dict):
        return " ".join(f"{name} {_words(one)}" for name, one in value.items())
    if isinstance(value, list):
        return " ".join(_words(one) for one in value)
    return str(value)
