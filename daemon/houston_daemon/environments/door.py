"""The one door through which an agent sees anything: made readable, then cut, then disarmed.

The cut keeps head and tail and says what lies between and how to see it. Disarming comes last, so
that no cut can make a guidance tag out of two harmless ends. Limits are in characters; the loop,
which knows the tokenizer, cuts again where tokens are dear.
"""

from dataclasses import dataclass

from houston_shared import real_user
from houston_shared.safe_text import safe


@dataclass(frozen=True, slots=True)
class Shown:
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


def through(data: bytes | str, limit: int, how: str = "") -> Shown:
    """Bring text through the door.

    A look-alike that hides behind characters that do not show is disarmed before these become
    visible, or it would no longer be recognised (and counted) as what it was meant to be.
    """
    text, hidden = _decoded(data), 0
    shown = str(safe(text))
    if shown != text:
        text, hidden = real_user.disarm(text)
        shown = str(safe(text))
    short, missing = cut(shown, limit, how)
    disarmed = real_user.disarm(short)
    return Shown(disarmed.text, hidden + disarmed.found, missing)


def _decoded(data: bytes | str) -> str:
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    return text.replace("\r\n", "\n")


def _end_of_line(text: str, at: int) -> int:
    found = text.rfind("\n", max(0, at - 400), at)
    return found + 1 if found >= 0 else at


def _start_of_line(text: str, at: int) -> int:
    found = text.find("\n", at, at + 400)
    return found + 1 if found >= 0 else at
