"""Lines of text as everything on the screen is made of: safe text in spans, each with a tone.

A tone is a word for what a piece of text is (an error, a number, guidance); `palette` turns it into
colours. Wrapping is done here, by cells, so that a line's height is known before it is drawn.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from rich.cells import cell_len, chop_cells, set_cell_size

from houston_shared.safe_text import SafeText, safe, safe_line

Tone = Literal[
    "text",
    "strong",
    "dim",
    "faint",
    "title",
    "key",
    "number",
    "tool",
    "error",
    "warning",
    "success",
    "guidance",
    "guidance_text",
    "score",
    "fork",
    "added",
    "removed",
    "hunk",
    "code_comment",
    "code_keyword",
    "code_name",
    "code_number",
    "code_string",
]
NAME_END = 7
"""Cells of a name's end that are kept when it is cut."""
TAB = 4
"""Columns between tab stops in everything that is shown."""


Ground = Literal["", "+", "-"]
"""What lies behind a piece of text: nothing, or that it was added or removed."""


class Span(NamedTuple):
    """A piece of a line."""

    text: SafeText
    tone: Tone = "text"
    ground: Ground = ""


Line = tuple[Span, ...]
"""One line of the screen, at most as wide as it was wrapped for."""


def span(text: str, tone: Tone = "text") -> Span:
    """Any text as a span of one line."""
    return Span(safe_line(text), tone)


def line(*parts: Span | str) -> Line:
    """A line of spans; plain strings take the tone `text`."""
    return tuple(part if isinstance(part, Span) else span(part) for part in parts)


UNREAD: Line = (span(" loading …", "dim"),)
"""In place of what nobody knows yet."""


def width_of(parts: Iterable[Span]) -> int:
    """Cells that a line takes."""
    return sum(cell_len(part.text) for part in parts)


def plain(parts: Iterable[Span]) -> str:
    """A line's text without tones."""
    return "".join(part.text for part in parts)


def fit(text: str, width: int) -> SafeText:
    """`text` on one line in exactly `width` cells: cut with `…`, or filled with spaces."""
    clean = safe_line(text)
    if width <= 0:
        return SafeText("")
    if cell_len(clean) <= width:
        return SafeText(set_cell_size(clean, width))
    return SafeText(set_cell_size(set_cell_size(clean, width - 1) + "…", width))


def fit_name(text: str, width: int) -> SafeText:
    """As `fit`, but cut in the middle: names of one kind differ in their ends."""
    clean = safe_line(text)
    if cell_len(clean) <= width or width < NAME_END * 2:
        return fit(clean, width)
    end = SafeText(clean[-NAME_END:])
    while cell_len(end) > NAME_END:
        end = SafeText(end[1:])
    head = set_cell_size(clean, width - 1 - cell_len(end))
    return SafeText(f"{head}…{end}")


def spread(left: Line, right: Line, width: int) -> Line:
    """`left` and `right` at the two ends of a line of `width` cells; `left` gives way."""
    room = width - width_of(right)
    kept: list[Span] = []
    for part in left:
        cells = cell_len(part.text)
        if cells > room:
            kept.append(Span(fit(part.text, room), part.tone))
            room = 0
            break
        kept.append(part)
        room -= cells
    return (*kept, Span(SafeText(" " * max(0, room))), *right)


HERE, AWAY = "»", "›"
"""Before the line with the cursor, where the keys go and in the other areas."""
EDGE = 4
"""Characters among which it finds a blank to stand in."""


def pointed(parts: Line, here: bool) -> Line:
    """A line with the cursor: a glyph in the first blank of its edge, so that no colour is needed.

    Of the same width; without a blank there it stays as it is.
    """
    at = plain(parts)[:EDGE].find(" ")
    if at < 0:
        return parts
    found: list[Span] = []
    for part in parts:
        if 0 <= at < len(part.text):
            found += [
                Span(SafeText(part.text[:at]), part.tone),
                Span(SafeText(HERE if here else AWAY), "title" if here else "dim"),
                Span(SafeText(part.text[at + 1 :]), part.tone),
            ]
        else:
            found.append(part)
        at -= len(part.text)
    return tuple(one for one in found if one.text)


def wrap(text: str, width: int) -> list[SafeText]:
    """`text` in lines of at most `width` cells, broken at spaces where there are any."""
    width = max(4, width)
    lines: list[SafeText] = []
    for logical in safe(text).expandtabs(TAB).split("\n"):
        if logical.isascii() and len(logical) <= width:
            lines.append(SafeText(logical))
        else:
            lines.extend(_wrap_line(logical, width))
    return lines


def _wrap_line(text: str, width: int) -> Iterable[SafeText]:
    start = 0
    while True:
        # A character takes at most two cells, and combining ones none: a window is enough.
        window = text[start : start + width * 4]
        cut = _cut(window, width)
        if start + cut >= len(text):
            yield SafeText(text[start:])
            return
        space = window.rfind(" ", 0, cut + 1)
        if space > width // 3:
            yield SafeText(window[:space])
            start += space + 1
        else:
            yield SafeText(window[:cut])
            start += cut


def _cut(window: str, width: int) -> int:
    """How many characters of `window` fit into `width` cells; at least one."""
    if window.isascii():
        return min(len(window), width)
    if cell_len(window) <= width:
        return len(window)
    return max(1, len(chop_cells(window, width)[0]))


def flow(groups: Iterable[Line], width: int) -> list[Line]:
    """Groups of spans one after the other; one that does not fit begins the next line.

    A group wider than a line is wrapped, in the tone of its first span.
    """
    found: list[Line] = []
    for group in groups:
        cells = width_of(group)
        if found and width_of(found[-1]) + cells <= width:
            found[-1] = (*found[-1], *group)
        elif cells <= width:
            found.append(group)
        else:
            found += block(plain(group), width, group[0].tone)
    return found


def block(text: str, width: int, tone: Tone = "text", bar: Span | None = None) -> list[Line]:
    """Wrapped text as lines, each behind `bar` when there is one."""
    edge = (bar,) if bar else ()
    room = width - width_of(edge)
    return [(*edge, Span(part, tone)) for part in wrap(text, room)]
