"""The guidance tag: the only place that writes `<real_user>`, and the one that disarms look-alikes.

Guidance is a structured field everywhere; this module renders it once, last. Text from tools, files
and people passes through `disarm` before it can stand near it, so that only the daemon's own tag is
live (DESIGN §5, invariant 2; threats T3).
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from houston_shared.records import Delivered

OPEN = "<real_user>"
CLOSE = "</real_user>"
_CUT = "do not fit this model's window"

# Characters that do not show: zero-width, bidi, soft hyphen, variation selectors, tags.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff"
)
_GAP = rf"[\s\x00-\x1f\x7f-\x9f{_INVISIBLE}]*"
_LESS = r"(?:<|&lt;?|&#0*60;?|&#x0*3c;?|\\u003c|\\x3c|%3c|[\uff1c\ufe64\u2039\u3008\u27e8\u2329])"
_WORDS = [*"real", "_", *"user"]
_DEAD = {"&": "&amp;", "\\": "&#92;", "%": "%25"}


def _letter(letter: str) -> str:
    """One letter of the tag's name in any disguise that reads as that letter."""
    if letter == "_":
        return (
            rf"(?:[_\-\uff3f\u2010-\u2015\ufe4d-\ufe4f\u203f]|&lowbar;?|&#0*95;?|&#x0*5f;?|{_GAP})"
        )
    codes = "|".join(f"&#0*{ord(c)};?|&#x0*{ord(c):x};?" for c in (letter, letter.upper()))
    return rf"(?:{letter}|{codes})"


_LOOK_ALIKE = re.compile(
    _LESS + _GAP + r"[/\uff0f\u2044\u2215\\]?" + _GAP + _GAP.join(map(_letter, _WORDS)),
    re.IGNORECASE,
)


class Disarmed(NamedTuple):
    """Text in which no tag can be mistaken for the daemon's."""

    text: str
    found: int
    """How many look-alikes were neutralised."""


def disarm(text: str) -> Disarmed:
    """Neutralise everything that could be read as the guidance tag.

    The opening `<` of a look-alike (in any case, spacing, entity, full-width or zero-width
    disguise) becomes `&lt;`, or its `&` becomes `&amp;`: the text stays legible, the tag is dead.
    Text without a look-alike comes back byte for byte.
    """
    if not _suspicious(text):
        return Disarmed(text, 0)
    folded, origin = _fold(text)
    spots = [origin[match.start()] for match in _LOOK_ALIKE.finditer(folded)]
    parts: list[str] = []
    last = 0
    for spot in spots:
        parts += [text[last:spot], _DEAD.get(text[spot], "&lt;")]
        last = spot + 1
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


def _suspicious(text: str) -> bool:
    """A cheap first look: most observations hold nothing like a tag."""
    return "<" in text or "&" in text or "\\" in text or "%" in text or not text.isascii()


def _fold(text: str) -> tuple[str, list[int] | range]:
    """The text with compatibility letters made plain, and where each character came from."""
    if text.isascii():
        return text, range(len(text))
    folded: list[str] = []
    origin: list[int] = []
    for index, character in enumerate(text):
        plain = _CONFUSABLE.get(character) or unicodedata.normalize("NFKC", character)
        folded.append(plain)
        origin.extend([index] * len(plain))
    return "".join(folded), origin


# Letters of other scripts that a reader (and many a tokenizer) takes for those of the tag.
_CONFUSABLE = dict(
    zip(
        "\u0433\u0435\u0430\u0456\u0455\u0501\u03c5\u028b\u03b1\u0585\u04cf\u0420\u0415\u0410\u0405\u0395\u0391",
        "reaisduuaolreasea",
        strict=True,
    )
)
