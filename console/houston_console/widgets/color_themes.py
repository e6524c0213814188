"""Houston's colour themes at each colour depth of a terminal: 16 million, 256 or 16 colours.

The depth comes from the terminal's answer (`app.terminal_query`), or else from the environment
(TERM, COLORTERM, NO_COLOR). Every drawn colour becomes the nearest one that the terminal has (CIE
1976). Themes with fewer colours are chosen by hand, because rounding would make added lines look
like removed ones. A test measures contrast (WCAG 2). `widgets.styled_text` says what each tone
means.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, Literal

from rich.color import Color, ColorType
from rich.segment import Segment
from rich.style import Style
from textual.color import Color as TextualColor
from textual.color import Lab, rgb_to_lab
from textual.filter import LineFilter
from textual.theme import BUILTIN_THEMES, Theme

from houston_shared.config_sections import ColorChoice, ColorDepth

TRUECOLOR_TERMS = frozenset(
    {"alacritty", "contour", "foot", "foot-extra", "mintty", "rio", "wezterm", "xterm-ghostty"}
    | {"xterm-kitty", "iterm2"}
)
"""Values of TERM whose terminals show 16 million colours; of all others only COLORTERM says so,
which ssh does not take along."""
_MONOCHROME_TERM = re.compile(r"$|(dumb|unknown|vt[0-9]+)$|.*-(m|mono)$")
_XTERM_CUBE_LEVELS = (0, 95, 135, 175, 215, 255)
_VGA_COLOURS = (
    "#000000", "#aa0000", "#00aa00", "#aa5500", "#0000aa", "#aa00aa", "#00aaaa", "#aaaaaa",
    "#555555", "#ff5555", "#55ff55", "#ffff55", "#5555ff", "#ff55ff", "#55ffff", "#ffffff",
)  # fmt: skip
"""As the Linux console and VGA show them: to find which of them is near to a colour."""


ReportedDepth = Literal["truecolor", "256", ""]
"""What a terminal that was asked told of its colours; empty: nothing."""


def choose_color_depth(
    choice: ColorChoice, environment: Mapping[str, str], reported_depth: ReportedDepth = ""
) -> ColorDepth:
    """What somebody wants; where they leave it open, what the terminal told and its environment."""
    if choice == "auto":
        return detect_color_depth(environment, reported_depth)
    return "256" if choice == 256 else "16" if choice == 16 else choice


def detect_color_depth(
    environment: Mapping[str, str], reported_depth: ReportedDepth = ""
) -> ColorDepth:
    """How many colours the terminal has: by what it told, else by these variables.

    A NO_COLOR that is not empty outranks the rest. COLORTERM in a tmux is that of the terminal
    which tmux was started in; what tmux tells is of the one that is looked at.
    """
    term = environment.get("TERM", "").strip().lower()
    if environment.get("NO_COLOR") or _MONOCHROME_TERM.match(term):
        return "none"
    if reported_depth:
        return reported_depth
    if environment.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        return "truecolor"
    if term in TRUECOLOR_TERMS or term.endswith(("-direct", "-truecolor")):
        return "truecolor"
    return "256" if "256" in term else "16"


def xterm_color(number: int) -> str:
    """The colour 16 to 255 of xterm, as `#rrggbb`."""
    if number >= 232:
        return "#" + 3 * f"{8 + 10 * (number - 232):02x}"
    red, rest = divmod(number - 16, 36)
    return "#" + "".join(f"{_XTERM_CUBE_LEVELS[level]:02x}" for level in (red, *divmod(rest, 6)))


class QuantizedColors(LineFilter):
    """Brings every colour of a line into those of a terminal."""

    def __init__(self, depth: ColorDepth) -> None:
        super().__init__()
        self._depth = depth

    def apply(self, segments: list[Segment], background: TextualColor) -> list[Segment]:
        """The same segments; what the terminal has already stays as it is."""
        depth = self._depth
        return [
            segment._replace(style=segment.style and quantize_style(segment.style, depth))
            for segment in segments
        ]


@lru_cache(16_384)
def quantize_style(style: Style, depth: ColorDepth) -> Style:
    """A style in the colours of a depth; for `none` without any, bold and reverse are left."""
    if depth == "truecolor":
        return style
    if depth == "none":
        return style + Style(color="default", bgcolor="default")
    return style + Style(
        color=_quantize_color(style.color, depth), bgcolor=_quantize_color(style.bgcolor, depth)
    )


def _quantize_color(colour: Color | None, depth: ColorDepth) -> Color | None:
    if colour is None or colour.type in (ColorType.DEFAULT, ColorType.STANDARD):
        return colour
    if colour.type == ColorType.EIGHT_BIT and (depth == "256" or (colour.number or 0) < 16):
        return colour
    return Color.parse(f"color({_nearest_color(colour.get_truecolor(), depth)})")


@lru_cache(4096)
def _nearest_color(triplet: tuple[int, int, int], depth: ColorDepth) -> int:
    table = _lab_tables()[depth]
    have = rgb_to_lab(TextualColor(*triplet))
    return min(table, key=lambda number: math.dist(have, table[number]))


@lru_cache(1)
def _lab_tables() -> dict[ColorDepth, dict[int, Lab]]:
    """By depth, the colours that a terminal has, in CIE L*a*b*."""
    many = {number: xterm_color(number) for number in range(16, 256)}
    few = dict(enumerate(_VGA_COLOURS))
    return {"256": _to_lab(many), "16": _to_lab(few)}


def _to_lab(table: Mapping[int, str]) -> dict[int, Lab]:
    return {number: rgb_to_lab(TextualColor.parse(code)) for number, code in table.items()}


@dataclass
class HoustonTheme(Theme):
    """A theme that says itself what tones look like, where mixing colours would not do."""

    styles: Mapping[str, str] = field(default_factory=dict)
    """By tone, or by a style of `Palette`: what rich's `Style.parse` reads."""


def _parse_styles(table: str) -> dict[str, str]:
    """`name: style` a line; a number in a style is a colour of xterm's 256."""
    pairs = (line.split(":") for line in table.split("\n") if line.strip())
    return {
        name.strip(): " ".join(f"color({w})" if w.isdigit() else w for w in style.split())
        for names, style in pairs
        for name in names.split(",")
    }


def _selection_variables(text: str, background: str, selection: str) -> dict[str, str]:
    """CSS variables of a cursor in text, and of what is selected."""
    return {
        "input-cursor-background": text,
        "input-cursor-foreground": background,
        **{f"{widget}-selection-foreground": text for widget in ("input", "screen")},
        **{f"{widget}-selection-background": selection for widget in ("input", "screen")},
    }


DARK_THEME = HoustonTheme(
    name="houston-dark",
    primary="#7aa6da",
    secondary="#8d99a8",
    accent="#e8b45a",
    success="#86b88a",
    warning="#dba35f",
    error="#e07f7a",
    foreground="#d3d8de",
    background="#12161b",
    surface="#161b21",
    panel="#1f262e",
    dark=True,
    variables={
        **_selection_variables("#d3d8de", "#12161b", "#24476e"),
        "border": "#2f3842",
        "scrollbar": "#2b333d",
        "scrollbar-hover": "#3a4550",
        "scrollbar-active": "#4a5866",
        "scrollbar-background": "#161b21",
        "scrollbar-background-hover": "#161b21",
        "scrollbar-background-active": "#161b21",
        "scrollbar-corner-color": "#161b21",
    },
    styles=_parse_styles(
        """
        dim: #b0b8c2
        faint, number, code_comment: #98a2ad
        key: #a3aebb
        hunk, fork: #8aa9cf
        cursor: on #1c3050
        cursor_away: on #232b34
        """
    ),
)
LIGHT_THEME = HoustonTheme(
    name="houston-light",
    primary="#2f5f98",
    secondary="#5f6b78",
    accent="#8a5200",
    success="#2e7038",
    warning="#8f5a0a",
    error="#b3352f",
    foreground="#22282f",
    background="#f4f5f6",
    surface="#fbfbfb",
    panel="#e6e9ec",
    dark=False,
    variables={
        **_selection_variables("#22282f", "#f4f5f6", "#bcd6f5"),
        "border": "#c3c9d0",
    },
    styles=_parse_styles(
        """
        dim: #464f59
        faint, number, code_comment: #59626d
        key: #525d69
        hunk, fork: #2f5f98
        code_number: #525d69
        code_string: #774800
        cursor: on #d9e6f7
        cursor_away: on #e9ecef
        """
    ),
)
COLOR_BLIND_THEME = HoustonTheme(
    name="houston-colour-blind",
    primary="#56b4e9",
    secondary="#9aa4ae",
    accent="#f0e442",
    success="#3fb8a0",
    warning="#e69f00",
    error="#e8833a",
    foreground="#dfe3e8",
    background="#10141a",
    surface="#141920",
    panel="#1e252d",
    dark=True,
    variables=DARK_THEME.variables,
    styles=_parse_styles(
        """
        dim: #b7bec6
        faint, number, code_comment: #9ba5af
        key: #a6b0ba
        hunk, fork: #6bb4e4
        cursor: on #17324f
        cursor_away: on #232b34
        """
    ),
)
"""Colours of Okabe and Ito, that people tell apart who see no red or no green: what went well is
bluish green, what failed is vermilion; lightened until they can be read on the background."""
BACKGROUND_STYLES = ("cursor", "hit", "added_background", "removed_background")


def _theme_256(
    name: str, colours: Mapping[str, int], styles: str, dark: bool = True
) -> HoustonTheme:
    """A theme of 256 colours. styles: names and colours of the tones, as in `_parse_styles`."""
    named = {role: xterm_color(number) for role, number in colours.items()}
    roles = [role.name for role in fields(Theme) if role.name in named]
    main: dict[str, Any] = {role: named.pop(role) for role in roles}
    background, text = main["background"], main["foreground"]
    variables = {
        **{role.replace("_", "-"): colour for role, colour in named.items()},
        "scrollbar-hover": main["secondary"],
        "scrollbar-active": main["secondary"],
        **{f"scrollbar-background{state}": main["surface"] for state in ("", "-hover", "-active")},
        "scrollbar-corner-color": main["surface"],
        **_selection_variables(text, background, named["selection"]),
    }
    rest: dict[str, Any] = {"variables": variables, "styles": _parse_styles(styles), "dark": dark}
    return HoustonTheme(name=name, **main, **rest)


_TEXTUAL_ANSI_THEME = BUILTIN_THEMES["ansi-dark"]
ANSI_THEME = HoustonTheme(
    name="houston-ansi",
    primary="ansi_default",
    secondary="ansi_cyan",
    accent="ansi_magenta",
    success="ansi_green",
    warning="ansi_yellow",
    error="ansi_red",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    dark=True,
    ansi=True,
    variables={
        **_TEXTUAL_ANSI_THEME.variables,
        "border": "ansi_bright_black",
        "scrollbar": "ansi_bright_black",
        "scrollbar-background": "ansi_default",
        "scrollbar-corner-color": "ansi_default",
    },
    styles=_parse_styles(
        """
        title, tool, fork, hunk, code_keyword: bold
        error, removed: bold red
        removed_background: red
        """
    ),
)
"""The sixteen colours of the terminal itself, whichever they are, on its own background. That may
be dark or light, so that most is told without a colour: blue cannot be read on black."""

DARK_THEME_256 = _theme_256(
    DARK_THEME.name,
    {
        "primary": 110, "secondary": 247, "accent": 222, "success": 114, "warning": 215,
        "error": 210, "foreground": 253, "background": 233, "surface": 234, "panel": 236,
        "border": 243, "scrollbar": 240, "selection": 24,
    },
    """
    text: 253
    strong: bold 255
    dim: 250
    faint, number: 248
    key: 249
    title: bold 110
    tool, fork, hunk: 110
    guidance: bold 222
    guidance_text: 222
    error, removed: 210
    warning: 215
    success, added: 114
    score: bold 114
    code_comment: 251
    code_keyword: 153
    code_name: bold 255
    code_number: 252
    code_string: 229
    cursor: on 18
    cursor_away: on 237
    hit: 233 on 222
    added_background: on 22
    removed_background: on 52
    """,
)  # fmt: skip
LIGHT_THEME_256 = _theme_256(
    LIGHT_THEME.name,
    {
        "primary": 25, "secondary": 240, "accent": 94, "success": 22, "warning": 130,
        "error": 124, "foreground": 235, "background": 255, "surface": 231, "panel": 254,
        "border": 244, "scrollbar": 248, "selection": 195,
    },
    """
    text: 235
    strong: bold 16
    dim: 238
    faint, number: 240
    key: 240
    title: bold 25
    tool, fork, hunk: 25
    guidance: bold 90
    guidance_text: 90
    error, removed: 124
    warning: 94
    success, added: 22
    score: bold 22
    code_comment: 240
    code_keyword: 25
    code_name: bold 16
    code_number: 240
    code_string: 58
    cursor: on 195
    cursor_away: on 254
    hit: 231 on 90
    added_background: on 194
    removed_background: on 224
    """,
    dark=False,
)  # fmt: skip
COLOR_BLIND_THEME_256 = _theme_256(
    COLOR_BLIND_THEME.name,
    {
        "primary": 111, "secondary": 247, "accent": 227, "success": 79, "warning": 220,
        "error": 209, "foreground": 254, "background": 233, "surface": 234, "panel": 236,
        "border": 243, "scrollbar": 240, "selection": 24,
    },
    """
    text: 254
    strong: bold 231
    dim: 250
    faint, number: 248
    key: 249
    title: bold 111
    tool, fork, hunk: 111
    guidance: bold 227
    guidance_text: 227
    error, removed: 209
    warning: 220
    success, added: 79
    score: bold 79
    code_comment: 251
    code_keyword: 153
    code_name: bold 231
    code_number: 252
    code_string: 229
    cursor: on 18
    cursor_away: on 237
    hit: 233 on 227
    added_background: on 17
    removed_background: on 52
    """,
)  # fmt: skip
"""What was added lies on blue, what was removed on a dark red: apart in hue and in lightness."""


def _theme_16(
    name: str, colours: Mapping[str, str], styles: str, dark: bool = True
) -> HoustonTheme:
    """A theme of the 16 colours, on a background of its own: the terminal's own is not known.

    colours: roles of `Theme`, then CSS variables.
    """
    named = {role: f"ansi_{colour}" for role, colour in colours.items()}
    background, text, selection = named["background"], named["foreground"], named.pop("selection")
    roles = [role.name for role in fields(Theme)]
    main: dict[str, Any] = {role: named[role] for role in named if role in roles}
    variables = {
        **BUILTIN_THEMES["ansi-dark"].variables,
        **dict.fromkeys(("surface", "panel", "boost"), background),
        "border": named["border"],
        **{f"scrollbar{state}": named["border"] for state in ("", "-hover", "-active")},
        **{f"scrollbar-background{state}": background for state in ("", "-hover", "-active")},
        "scrollbar-corner-color": background,
        "text": text,
        "text-muted": text,
        "text-disabled": named["border"],
        "input-cursor-background": text,
        "input-cursor-foreground": background,
        **{f"{widget}-selection-background": selection for widget in ("input", "screen")},
        **{f"{widget}-selection-foreground": background for widget in ("input", "screen")},
    }
    rest: dict[str, Any] = {"variables": variables, "styles": _parse_styles(styles), "dark": dark}
    return HoustonTheme(name=name, ansi=True, **main, **rest)


THEMES_16 = (
    _theme_16(
        DARK_THEME.name,
        {
            "primary": "bright_cyan", "secondary": "white", "accent": "cyan",
            "success": "bright_green", "warning": "bright_yellow", "error": "bright_red",
            "foreground": "bright_white", "background": "black", "border": "white",
            "selection": "cyan",
        },
        """
        text, code_name, code_number: bright_white
        strong: bold bright_white
        dim, faint, number, key, code_comment: white
        title: bold bright_cyan
        tool, fork, hunk, code_keyword: bright_cyan
        guidance: bold cyan
        guidance_text, code_string: cyan
        error, removed: bright_red
        warning: bright_yellow
        success, added: bright_green
        score: bold bright_green
        cursor: bright_white on blue
        cursor_away: underline
        hit: black on bright_yellow
        added_background: bright_green
        removed_background: bright_red
        """,
    ),
    _theme_16(
        LIGHT_THEME.name,
        {
            "primary": "blue", "secondary": "bright_black", "accent": "magenta",
            "success": "blue", "warning": "magenta", "error": "red",
            "foreground": "black", "background": "bright_white", "border": "bright_black",
            "selection": "blue",
        },
        """
        text, key, tool, code_name, code_number: black
        strong, title, warning: bold black
        dim, faint, number, code_comment: bright_black
        fork, hunk: bold magenta
        guidance: bold magenta
        guidance_text, code_string: magenta
        error, removed: red
        success, added, code_keyword: blue
        score: bold blue
        cursor: bright_white on blue
        cursor_away: underline
        hit: black on bright_cyan
        added_background: black on green
        removed_background: bright_white on red
        """,
        dark=False,
    ),
    _theme_16(
        COLOR_BLIND_THEME.name,
        {
            "primary": "bright_cyan", "secondary": "white", "accent": "bright_yellow",
            "success": "bright_cyan", "warning": "bright_yellow", "error": "bright_red",
            "foreground": "bright_white", "background": "black", "border": "white",
            "selection": "cyan",
        },
        """
        text, code_name, code_number: bright_white
        strong, title, warning: bold bright_white
        dim, faint, number, tool, code_comment: white
        key: bold white
        fork, hunk, code_keyword: bold white
        guidance: bold bright_yellow
        guidance_text, code_string: bright_yellow
        error, removed: bright_red
        success, added: bright_cyan
        score: bold bright_cyan
        cursor: bright_white on blue
        cursor_away: underline
        hit: black on bright_yellow
        added_background: bright_cyan
        removed_background: bright_red
        """,
    ),
)  # fmt: skip
"""Green, yellow and cyan cannot be read on white in any terminal: there they are backgrounds only.
Grounds are for whole lines, as tones also lie on blanks; so a light warning is bold."""
THEMES = (DARK_THEME, LIGHT_THEME, COLOR_BLIND_THEME, ANSI_THEME)
DEFAULT_THEME = DARK_THEME.name


def themes_for_depth(depth: ColorDepth) -> list[Theme]:
    """What `App.register_theme` takes for a terminal with so many colours, by the same names.

    Themes of Textual have their own colours at 256, with our backgrounds behind text; at 16 they
    are one of ours, dark or light. Those of the terminal's own colours stay as they are.
    """
    if depth == "truecolor":
        return list(THEMES)
    if depth == "none":
        return [
            replace(ANSI_THEME, name=name) for name in (*BUILTIN_THEMES, *(t.name for t in THEMES))
        ]
    ours = (DARK_THEME_256, LIGHT_THEME_256, COLOR_BLIND_THEME_256) if depth == "256" else THEMES_16
    dark, light, *_ = ours
    themes: list[Theme] = [*ours, ANSI_THEME]
    for theme in BUILTIN_THEMES.values():
        nearest = dark if theme.dark else light
        if not theme.ansi and depth == "256":
            themes.append(_with_ground_styles(theme, nearest))
        elif not theme.ansi:
            themes.append(replace(nearest, name=theme.name))
    return themes


def _with_ground_styles(theme: Theme, houston_theme: HoustonTheme) -> HoustonTheme:
    own = {role.name: getattr(theme, role.name) for role in fields(Theme)}
    styles = {name: houston_theme.styles[name] for name in BACKGROUND_STYLES}
    return HoustonTheme(**own, styles={**styles, "cursor_away": "underline"})
