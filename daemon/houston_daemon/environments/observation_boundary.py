"""The boundary that all text for an agent passes: without secrets, readable, cut, disarmed.

Every cut of a text by characters is made here. Text is cut before it is disarmed, so that no cut
can join two harmless ends into a guidance tag. The loop, which knows tokens, sets the limits.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from houston_shared import guidance_tag
from houston_shared.safe_text import safe
from houston_shared.secret_redaction import redact

_HEAD = 4_000
"""Most characters of a head: it says what happened, in a few lines."""
_LEAST = 200
"""Characters that a body gets in any case."""
_NEAR = 400
"""A cut looks for a line end within so many characters, and within half of its room at most."""


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
    return str(safe(_decode_text(data)))


def cut(text: str, limit: int, hint_text: str = "") -> tuple[str, int]:
    """`text` within `limit` characters, head and tail kept, and how many were left out.

    hint_text: what to do to see the rest, part of the notice. Cuts fall on line ends where one is
    near.
    A limit too small for a notice still gives one.
    """
    if len(text) <= limit:
        return text, 0
    room = max(0, limit - 120 - len(hint_text))
    before, after = first_lines(text, room * 2 // 3), last_lines(text, room // 3)
    between = text[len(before) : len(text) - len(after)]
    lines = between.count("\n")
    hint = f"; {hint_text}" if hint_text else ""
    notice = f"[… {len(between)} characters ({lines} lines) between are not shown{hint} …]"
    return "\n".join(part for part in (before.rstrip("\n"), notice, after) if part), len(between)


def first_lines(text: str, room: int) -> str:
    """The beginning within `room` characters, up to a line end where one is near."""
    if len(text) <= room:
        return text
    return text[: text.rfind("\n", max(room // 2, room - _NEAR), room) + 1 or room]


def last_lines(text: str, room: int) -> str:
    """The end within `room` characters, from the start of a line on where one is near."""
    if len(text) <= room:
        return text
    start = len(text) - room
    return text[text.find("\n", start, start + min(_NEAR, room // 2)) + 1 or start :]


def one_line(text: Any, longest: int = 400) -> str:
    """A stranger's text on one line, safe to show, `…` where it was cut, without secrets."""
    words = redact(" ".join(text.split())) if isinstance(text, str) else ""
    short = words if len(words) <= longest else f"{words[: longest - 2]} …"
    return guidance_tag.disarm(str(safe(short))).text


def numbered_lines(lines: Iterable[str], first: int, width: int, room: int) -> list[str]:
    """Lines behind their numbers, which take `width`, as far as there is room for their characters.

    The first one is there in any case, cut where it alone is too long.
    """
    lines_shown: list[str] = []
    characters_left = room
    for number, line in enumerate(lines, first):
        text = f"{number:>{width}} {line}"
        characters_left -= len(text) + 1
        if characters_left < 0 and lines_shown:
            break
        lines_shown.append(text[:room])
    return lines_shown


def bound_text(body: bytes | str, limit: int, hint_text: str = "", head: str = "") -> BoundedText:
    """Prepare text for the agent: `head`, which stays whole, and `body` below it, cut to fit.

    Disarming is done once and last, over both: a second time would escape what is already harmless.
    """
    # Secrets first: a cut must not leave half of one, nor a glyph hide it.
    before, after = redact(_decode_text(head)), redact(_decode_text(body))
    top = str(safe(before))[:_HEAD]
    bottom, missing = cut(str(safe(after)), max(_LEAST, limit - len(top)), hint_text)
    disarmed = guidance_tag.disarm("\n".join(part for part in (top, bottom) if part))
    return BoundedText(
        disarmed.text,
        disarmed.found + _count_hidden_tags(before) + _count_hidden_tags(after),
        missing,
    )


def _count_hidden_tags(text: str) -> int:
    """Look-alikes that hide behind characters which do not show: made visible they are dead."""
    safe_text = str(safe(text))
    if safe_text == text:
        return 0
    return max(0, guidance_tag.disarm(text).found - guidance_tag.disarm(safe_text).found)


def _decode_text(data: bytes | str) -> str:
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    return text.replace("\r\n", "\n")
