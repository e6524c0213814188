"""The boundary through which an agent sees anything: without secrets, readable, cut, disarmed.

Text is cut before it is disarmed, so that no cut can make a guidance tag out of two harmless ends.
Limits are in characters; the loop, which knows tokens, sets them.
"""

from dataclasses import dataclass

from houston_shared import guidance_tag
from houston_shared.safe_text import safe
from houston_shared.secret_redaction import redact

_HEAD = 4_000
"""Most characters of a head: it says what happened, in a few lines."""
_LEAST = 200
"""Characters that a body gets in any case."""


@dataclass(frozen=True, slots=True)
class BoundedText:
    """Text that may stand in an observation."""

    text: str
    forged_tags: int
    """Look-alikes of the guidance tag that were neutralised."""
    cut: int
    """Characters left out."""


def readable(data: bytes | str) -> str:
    """Text of any bytes: U+FFFD for what is not UTF-8, control characters as visible glyphs.

    Carriage returns at line ends go; newline and tab stay.
    """
    return str(safe(_decoded(data)))


def cut(text: str, limit: int, how: str = "") -> tuple[str, int]:
    """`text` within `limit` characters, head and tail kept, and how many were left out.

    how: what to do to see the rest, part of the notice. Cuts fall on line ends where one is near.
    A limit too small for a notice still gives one.
    """
    if len(text) <= limit:
        return text, 0
    room = max(0, limit - 120 - len(how))
    head = _end_of_line(text, room * 2 // 3)
    tail = _start_of_line(text, len(text) - room // 3)
    between = text[head:tail]
    lines = between.count("\n")
    hint = f"; {how}" if how else ""
    notice = f"[… {len(between)} characters ({lines} lines) between are not shown{hint} …]"
    before, after = text[:head].rstrip("\n"), text[tail:]
    return "\n".join(part for part in (before, notice, after) if part), len(between)


def bound_text(body: bytes | str, limit: int, how: str = "", head: str = "") -> BoundedText:
    """Bring text through the door: `head`, which stays whole, and `body` below it, cut to fit.

    Disarming is done once and last, over both: twice would escape what is already dead.
    """
    # Secrets first: a cut must not leave half of one, nor a glyph hide it.
    before, after = redact(_decoded(head)), redact(_decoded(body))
    top = str(safe(before))[:_HEAD]
    bottom, missing = cut(str(safe(after)), max(_LEAST, limit - len(top)), how)
    disarmed = guidance_tag.disarm("\n".join(part for part in (top, bottom) if part))
    return BoundedText(disarmed.text, disarmed.found + _hidden(before) + _hidden(after), missing)


def _hidden(text: str) -> int:
    """Look-alikes that hide behind characters which do not show: made visible they are dead."""
    shown = str(safe(text))
    if shown == text:
        return 0
    return max(0, guidance_tag.disarm(text).found - guidance_tag.disarm(shown).found)


def _decoded(data: bytes | str) -> str:
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    return text.replace("\r\n", "\n")


def _end_of_line(text: str, at: int) -> int:
    found = text.rfind("\n", max(0, at - 400), at)
    return found + 1 if found >= 0 else at


def _start_of_line(text: str, at: int) -> int:
    found = text.find("\n", at, at + 400)
    return found + 1 if found >= 0 else at
