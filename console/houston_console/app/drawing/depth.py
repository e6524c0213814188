"""How many colours a terminal has, and every colour that is drawn brought into these.

Textual leaves it to rich, which rounds each part of a colour by itself: grounds that differ become
one. Here the nearest colour as eyes see it is taken (CIE 1976), and a colour that the terminal has
stays exactly what it is. Which colours a theme has at each depth is `themes`' part.
"""

import math
import re
from collections.abc import Mapping
from functools import lru_cache

from rich.color import Color, ColorType
from rich.segment import Segment
from rich.style import Style
from textual.color import Color as TextualColor
from textual.color import Lab, rgb_to_lab
from textual.filter import LineFilter

from houston_shared.config import Colors, Depth

FULL = frozenset(
    {"alacritty", "contour", "foot", "foot-extra", "mintty", "rio", "wezterm", "xterm-ghostty"}
    | {"xterm-kitty", "iterm2"}
)
"""Values of TERM whose terminals show 16 million colours; of all others only COLORTERM says so,
which ssh does not take along."""
_MONOCHROME = re.compile(r"$|(dumb|unknown|vt[0-9]+)$|.*-(m|mono)$")
_LEVELS = (0, 95, 135, 175, 215, 255)
_SIXTEEN = (
    "#000000", "#aa0000", "#00aa00", "#aa5500", "#0000aa", "#aa00aa", "#00aaaa", "#aaaaaa",
    "#555555", "#ff5555", "#55ff55", "#ffff55", "#5555ff", "#ff55ff", "#55ffff", "#ffffff",
)  # fmt: skip
"""As the Linux console and VGA show them: to find which of them is near to a colour."""


def chosen(wanted: Colors, environment: Mapping[str, str]) -> Depth:
    """What somebody wants; what the environment says where they leave it open."""
    if wanted == "auto":
        return depth(environment)
    return "256" if wanted == 256 else "16" if wanted == 16 else wanted


def depth(environment: Mapping[str, str]) -> Depth:
    """What these variables say of the terminal; a NO_COLOR that is not empty outranks the rest."""
    term = environment.get("TERM", "").strip().lower()
    if environment.get("NO_COLOR") or _MONOCHROME.match(term):
        return "none"
    if environment.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return "truecolor"
    if term in FULL or term.endswith(("-direct", "-truecolor")):
        return "truecolor"
    return "256" if "256" in term else "16"


def cube(number: int) -> str:
    """The colour 16 to 255 of xterm, as `#rrggbb`."""
    if number >= 232:
        return "#" + 3 * f"{8 + 10 * (number - 232):02x}"
    red, rest = divmod(number - 16, 36)
    return "#" + "".join(f"{_LEVELS[level]:02x}" for level in (red, *divmod(rest, 6)))


class Quantised(LineFilter):
    """Brings every colour of a line into those of a terminal."""

    def __init__(self, depth: Depth) -> None:
        super().__init__()
        self._depth = depth

    def apply(self, segments: list[Segment], background: TextualColor) -> list[Segment]:
        """The same segments; what the terminal has already stays as it is."""
        depth = self._depth
        return [one._replace(style=one.style and quantised(one.style, depth)) for one in segments]


@lru_cache(16_384)
def quantised(style: Style, depth: Depth) -> Style:
    """A style in the colours of a depth; for `none` without any, bold and reverse are left."""
    if depth == "truecolor":
        return style
    if depth == "none":
        return style + Style(color="default", bgcolor="default")
    return style + Style(color=_of(style.color, depth), bgcolor=_of(style.bgcolor, depth))


def _of(colour: Color | None, depth: Depth) -> Color | None:
    if colour is None or colour.type in (ColorType.DEFAULT, ColorType.STANDARD):
        return colour
    if colour.type == ColorType.EIGHT_BIT and (depth == "256" or (colour.number or 0) < 16):
        return colour
    return Color.parse(f"color({_nearest(colour.get_truecolor(), depth)})")


@lru_cache(4096)
def _nearest(triplet: tuple[int, int, int], depth: Depth) -> int:
    table = _tables()[depth]
    have = rgb_to_lab(TextualColor(*triplet))
    return min(table, key=lambda number: math.dist(have, table[number]))


@lru_cache(1)
def _tables() -> dict[Depth, dict[int, Lab]]:
    """By depth, the colours that a terminal has, in CIE L*a*b*."""
    many = {number: cube(number) for number in range(16, 256)}
    few = dict(enumerate(_SIXTEEN))
    return {"256": _lab(many), "16": _lab(few)}


def _lab(table: Mapping[int, str]) -> dict[int, Lab]:
    return {number: rgb_to_lab(TextualColor.parse(code)) for number, code in table.items()}
