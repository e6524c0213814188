"""Text with a terminal's colours (SGR) as elements whose classes are of the page's own palette.

Sixteen colours, bold, dim, italic and underlined; others become the nearest of the sixteen. Every
other sequence of a terminal is left out: nothing moves, is titled or linked.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree.ElementTree import Element

from houston_console.commands.rollout_page.page_elements import Content, element

_SEQUENCE = re.compile(
    r"\x1b\[(?P<sgr>[0-9;:]*)m|\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\^_=>]"
)
_PALETTE = (
    (0, 0, 0), (205, 49, 49), (13, 188, 121), (229, 229, 16),
    (36, 114, 200), (188, 63, 188), (17, 168, 205), (229, 229, 229),
    (102, 102, 102), (241, 76, 76), (35, 209, 139), (245, 245, 67),
    (59, 142, 234), (214, 112, 214), (41, 184, 219), (255, 255, 255),
)  # fmt: skip
_CUBE = (0, 95, 135, 175, 215, 255)
"""Levels of the 6 × 6 × 6 colours behind the first sixteen of 256."""
_SWITCHES = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse"}
_SWITCHES_OFF = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("reverse",)}


class _Style(NamedTuple):
    """How text is shown from here on."""

    foreground: int | None = None
    background: int | None = None
    switches: frozenset[str] = frozenset()

    @property
    def classes(self) -> str:
        """Names of the page's style sheet."""
        front, back = self.foreground, self.background
        words = sorted(self.switches - {"reverse"})
        if "reverse" in self.switches:
            words += ["reverse"] if front is None and back is None else []
            front, back = back, front
        words += [f"fg{front}"] if front is not None else []
        words += [f"bg{back}"] if back is not None else []
        return " ".join(words)


def colored_text(text: str) -> Iterator[Content]:
    """The text in pieces, each of one style."""
    style, end = _Style(), 0
    for match in _SEQUENCE.finditer(text):
        yield _piece(text[end : match.start()], style)
        end = match.end()
        if match["sgr"] is not None:
            style = _next_style(style, match["sgr"])
    yield _piece(text[end:], style)


def _piece(text: str, style: _Style) -> str | Element | None:
    if not text:
        return None
    return element("span", text, kind=style.classes) if style.classes else text


def _next_style(style: _Style, sequence: str) -> _Style:
    codes = [int(code[:4]) if code else 0 for code in re.split("[;:]", sequence)]
    while codes:
        code = codes.pop(0)
        if code == 0:
            style = _Style()
        elif code in _SWITCHES:
            style = style._replace(switches=style.switches | {_SWITCHES[code]})
        elif code in _SWITCHES_OFF:
            style = style._replace(switches=style.switches - {*_SWITCHES_OFF[code]})
        elif code == 38:
            style = style._replace(foreground=_extended_color(codes))
        elif code == 48:
            style = style._replace(background=_extended_color(codes))
        else:
            style = _with_plain_color(style, code)
    return style


def _with_plain_color(style: _Style, code: int) -> _Style:
    """code: 30 to 49 and 90 to 107; any other changes nothing."""
    tens, color = divmod(code, 10)
    number = None if color == 9 else color + 8 * (tens in (9, 10))
    if color == 8 or (color == 9 and tens in (9, 10)):
        return style
    if tens in (3, 9):
        return style._replace(foreground=number)
    return style._replace(background=number) if tens in (4, 10) else style


def _extended_color(codes: list[int]) -> int | None:
    """The colour that `5;n` or `2;r;g;b` names, which are taken off the list."""
    kind = codes.pop(0) if codes else 0
    count = {5: 1, 2: 3}.get(kind, 0)
    values, codes[:count] = codes[:count], []
    if not count or len(values) < count:
        return None
    if kind == 2:
        return _nearest(values[0], values[1], values[2])
    number = min(values[0], 255)
    if number < 16:
        return number
    if number >= 232:
        gray = 8 + 10 * (number - 232)
        return _nearest(gray, gray, gray)
    cube = number - 16
    return _nearest(_CUBE[cube // 36], _CUBE[cube // 6 % 6], _CUBE[cube % 6])


def _nearest(red: int, green: int, blue: int) -> int:
    def distance(color: int) -> int:
        pairs = zip(_PALETTE[color], (red, green, blue), strict=True)
        return sum((a - b) ** 2 for a, b in pairs)

    return min(range(len(_PALETTE)), key=distance)
