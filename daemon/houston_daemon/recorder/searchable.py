"""Which text of an event can be found: what was thought, called, seen, said and summarised."""

import msgspec

from houston_shared.records import ForkBody, ObservationBody, Result, SampleBody
from houston_shared.store.bodies import Bookmarked, GuidanceEdited, GuidanceQueued


def tag(rollout: str) -> str:
    """The rollout's id as one word of the index: `count-words-4f2a` → `rcountwords4f2a`."""
    return "r" + "".join(letter for letter in rollout if letter.isalnum())


def text(kind: str, body: bytes) -> str:
    """The searchable text of an event, empty when it has none (or was erased)."""
    decoder = _DECODERS.get(kind)
    if decoder is None or not body:
        return ""
    match decoder.decode(body):
        case SampleBody() as sample:
            return "\n".join([sample.thought, *map(_call, sample.calls)])
        case Result(text=said) | GuidanceQueued(text=said) | GuidanceEdited(text=said):
            return str(said)
        case ObservationBody(tail=tail):
            return str(tail)
        case ForkBody(summary=summary):
            return str(summary)
        case Bookmarked(note=note):
            return str(note)
    return ""


def _call(call: object) -> str:
    """A call as its name and the values of its arguments."""
    name = getattr(call, "name", "")
    return "\n".join([name, *_strings(getattr(call, "arguments", {}))])


def _strings(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in _strings(each)]
    if isinstance(value, list | tuple):
        return [text for each in value for text in _strings(each)]
    return [str(value)]


_DECODERS: dict[str, "msgspec.msgpack.Decoder[object]"] = {
    kind: msgspec.msgpack.Decoder(type)
    for kind, type in {
        "sample": SampleBody,
        "result": Result,
        "observation": ObservationBody,
        "guidance": GuidanceQueued,
        "edit": GuidanceEdited,
        "fork": ForkBody,
        "bookmark": Bookmarked,
    }.items()
}
