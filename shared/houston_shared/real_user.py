"""The guidance tag: the only place that writes `<real_user>`, and the one that disarms look-alikes.

Guidance is a structured field everywhere; this module renders it once, last. Text from tools, files
and people passes through `disarm` before it can stand near it, so that only the daemon's own tag is
live (DESIGN §5, invariant 2; threats T3).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from houston_shared import look_alike
from houston_shared.records import Delivered

OPEN = "<real_user>"
CLOSE = "</real_user>"
_CUT = "do not fit this model's window"

_DEAD = "&lt;"


class Disarmed(NamedTuple):
    """Text in which no tag can be mistaken for the daemon's."""

    text: str
    found: int
    """How many look-alikes were neutralised."""


def disarm(text: str) -> Disarmed:
    """Neutralise everything that could be read as the guidance tag.

    What reads as the opening `<` of a look-alike (`look_alike` says which) becomes `&lt;`, whatever
    it was written with: the text stays legible, the tag is dead, and disarmed again it stays as it
    is. Text without one comes back byte for byte.
    """
    spots = look_alike.spots(text)
    if not spots:
        return Disarmed(text, 0)
    parts: list[str] = []
    last = 0
    for begin, end in spots:
        parts += [text[last:begin], _DEAD]
        last = end
    parts.append(text[last:])
    return Disarmed("".join(parts), len(spots))


def render(guidance: Sequence[Delivered], shown: Mapping[str, int] | None = None) -> str:
    """Guidance as the model reads it, one live tag for each message, in order.

    shown: by id, how many characters are shown of a message that does not fit (`shortening`); the
    cut is declared. Those with 0 are counted in one line before the others.
    """
    shown = shown or {}
    left_out = [one for one in guidance if shown.get(one.id) == 0]
    said = [one for one in guidance if shown.get(one.id) != 0]
    tags = "".join(f"\n{OPEN}{_beginning(one, shown)}{CLOSE}" for one in said)
    if not left_out:
        return tags
    length = sum(len(one.text) for one in left_out)
    note = f"[… {len(left_out)} messages from people, {length} characters, {_CUT} …]"
    return f"\n{note}{tags}"


def _beginning(one: Delivered, shown: Mapping[str, int]) -> str:
    """A message, or its beginning and how much is missing."""
    length = shown.get(one.id, len(one.text))
    if length >= len(one.text):
        return disarm(one.text).text
    missing = len(one.text) - length
    return f"{disarm(one.text[:length]).text} [… {missing} characters of this message {_CUT} …]"
