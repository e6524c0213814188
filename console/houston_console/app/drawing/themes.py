"""Themes of our own, each in the colours that a terminal has: 16 million, 256, or 16.

Fewer colours are chosen here one by one: rounded to the nearest, what was added looks like what was
removed, and a border like the ground. Contrast (WCAG 2) is measured by a test: text has 4.5 or
more on its ground, borders 3. The 256 are xterm's 16 to 255, which all terminals share. What
the 16 look like differs, so that theirs is the least among five terminals; dim text on a light
ground alone has less (4.0 in xterm). How many a terminal has is `depth`'s part.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from textual.theme import BUILTIN_THEMES, Theme

from houston_console.app.drawing.depth import cube
from houston_shared.config import Depth


@dataclass
class HoustonTheme(Theme):
    """A theme that says itself what tones look like, where mixing colours would not do."""

    styles: Mapping[str, str] = field(default_factory=dict)
    """By tone, or by a style of `Palette`: what rich's `Style.parse` reads."""


DARK = Theme(
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
        "border": "#2f3842",
        "scrollbar": "#2b333d",
        "scrollbar-hover": "#3a4550",
        "scrollbar-active": "#4a5866",
        "scrollbar-background": "#161b21",
        "scrollbar-background-hover": "#161b21",
        "scrollbar-background-active": "#161b21",
        "scrollbar-corner-color": "#161b21",
    },
)
LIGHT = Theme(
    name="houston-light",
    primary="#2f5f98",
    secondary="#5f6b78",
    accent="#9a5b00",
    success="#2e7038",
    warning="#8f5a0a",
    error="#b3352f",
    foreground="#22282f",
    background="#f4f5f6",
    surface="#fbfbfb",
    panel="#e6e9ec",
    dark=False,
    variables={"border": "#c3c9d0"},
)
COLOUR_BLIND = Theme(
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
    variables=DARK.variables,
)
"""Colours of Okabe and Ito, that people tell apart who see no red or no green: what went well is
bluish green, what failed is vermilion; lightened until they can be read on the ground."""
GROUNDS = ("cursor", "hit", "added_ground", "removed_ground")


def _xterm(name: str, colours: Mapping[str, int], styles: str, dark: bool = True) -> HoustonTheme:
    """A theme of 256 colours. styles: names and colours of the tones, as in `_styles`."""
    named = {role: cube(number) for role, number in colours.items()}
    roles = [one.name for one in fields(Theme) if one.name in named]
    main: dict[str, Any] = {role: named.pop(role) for role in roles}
    background, text = main["background"], main["foreground"]
    variables = {
        **{role.replace("_", "-"): colour for role, colour in named.items()},
        "scrollbar-hover": main["secondary"],
        "scrollbar-active": main["secondary"],
        **{f"scrollbar-background{state}": main["surface"] for state in ("", "-hover", "-active")},
        "scrollbar-corner-color": main["surface"],
        "input-cursor-background": text,
        "input-cursor-foreground": background,
        "input-selection-foreground": text,
        "input-selection-background": named["selection"],
        "screen-selection-foreground": text,
        "screen-selection-background": named["selection"],
    }
    rest: dict[str, Any] = {"variables": variables, "styles": _styles(styles), "dark": dark}
    return HoustonTheme(name=name, **main, **rest)


def _styles(table: str) -> dict[str, str]:
    """`name: style` a line; a number in a style is a colour of xterm's 256."""
    pairs = (line.split(":") for line in table.split("\n") if line.strip())
    return {
        name.strip(): " ".join(f"color({w})" if w.isdigit() else w for w in style.split())
        for names, style in pairs
        for name in names.split(",")
    }


_TERMINALS = BUILTIN_THEMES["ansi-dark"]
ANSI = HoustonTheme(
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
        **_TERMINALS.variables,
        "border": "ansi_bright_black",
        "scrollbar": "ansi_bright_black",
        "scrollbar-background": "ansi_default",
        "scrollbar-corner-color": "ansi_default",
    },
    styles=_styles(
        """
        title, tool, fork, hunk, code_keyword: bold
        error, removed: bold red
        removed_ground: red
        """
    ),
)
"""The sixteen colours of the terminal itself, whichever they are, on its own ground. That may be
dark or light, so that most is told without a colour: blue cannot be read on black."""

DARK_256 = _xterm(
    DARK.name,
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
    added_ground: on 22
    removed_ground: on 52
    """,
)  # fmt: skip
LIGHT_256 = _xterm(
    LIGHT.name,
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
    added_ground: on 194
    removed_ground: on 224
    """,
    dark=False,
)  # fmt: skip
COLOUR_BLIND_256 = _xterm(
    COLOUR_BLIND.name,
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
    added_ground: on 17
    removed_ground: on 52
    """,
)  # fmt: skip
"""What was added lies on blue, what was removed on a dark red: apart in hue and in lightness."""


def _few(name: str, colours: Mapping[str, str], styles: str, dark: bool = True) -> HoustonTheme:
    """A theme of the 16 colours, on a ground of its own: which one the terminal has is not known.

    colours: roles of `Theme`, then CSS variables.
    """
    named = {role: f"ansi_{colour}" for role, colour in colours.items()}
    ground, text, other = named["background"], named["foreground"], named.pop("selection")
    roles = [one.name for one in fields(Theme)]
    main: dict[str, Any] = {role: named[role] for role in named if role in roles}
    variables = {
        **BUILTIN_THEMES["ansi-dark"].variables,
        **dict.fromkeys(("surface", "panel", "boost"), ground),
        "border": named["border"],
        **{f"scrollbar{state}": named["border"] for state in ("", "-hover", "-active")},
        **{f"scrollbar-background{state}": ground for state in ("", "-hover", "-active")},
        "scrollbar-corner-color": ground,
        "text": text,
        "text-muted": text,
        "text-disabled": named["border"],
        "input-cursor-background": text,
        "input-cursor-foreground": ground,
        **{f"{what}-selection-background": other for what in ("input", "screen")},
        **{f"{what}-selection-foreground": ground for what in ("input", "screen")},
    }
    rest: dict[str, Any] = {"variables": variables, "styles": _styles(styles), "dark": dark}
    return HoustonTheme(name=name, ansi=True, **main, **rest)


FEW = (
    _few(
        DARK.name,
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
        added_ground: bright_green
        removed_ground: bright_red
        """,
    ),
    _few(
        LIGHT.name,
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
        added_ground: black on green
        removed_ground: bright_white on red
        """,
        dark=False,
    ),
    _few(
        COLOUR_BLIND.name,
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
        added_ground: bright_cyan
        removed_ground: bright_red
        """,
    ),
)  # fmt: skip
"""Green, yellow and cyan cannot be read on white in any terminal: there they are grounds only.
Grounds are for whole lines, as tones also lie on blanks; so a light warning is bold."""
THEMES = (DARK, LIGHT, COLOUR_BLIND, ANSI)
DEFAULT = DARK.name


def themes(depth: Depth) -> list[Theme]:
    """What `App.register_theme` takes for a terminal with so many colours, by the same names.

    Themes of Textual have their own colours at 256, with grounds of ours behind text; at 16 they
    are one of ours, dark or light. Those of the terminal's own colours stay as they are.
    """
    if depth == "truecolor":
        return list(THEMES)
    if depth == "none":
        return [replace(ANSI, name=name) for name in (*BUILTIN_THEMES, *(t.name for t in THEMES))]
    ours = (DARK_256, LIGHT_256, COLOUR_BLIND_256) if depth == "256" else FEW
    dark, light, *_ = ours
    found: list[Theme] = [*ours, ANSI]
    for theme in BUILTIN_THEMES.values():
        nearest = dark if theme.dark else light
        if not theme.ansi and depth == "256":
            found.append(_with_grounds(theme, nearest))
        elif not theme.ansi:
            found.append(replace(nearest, name=theme.name))
    return found


def _with_grounds(theme: Theme, of: HoustonTheme) -> HoustonTheme:
    own = {one.name: getattr(theme, one.name) for one in fields(Theme)}
    styles = {name: of.styles[name] for name in GROUNDS}
    return HoustonTheme(**own, styles={**styles, "cursor_away": "underline"})
