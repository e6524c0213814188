"""Colours: themes of our own, and what each tone looks like in whatever theme is on.

Every state is also told by a glyph, so that no meaning depends on a colour.
"""

from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.strip import Strip
from textual.theme import BUILTIN_THEMES, Theme

from houston_console.app.drawing.lines import Line, Span, Tone

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
_TERMINALS = BUILTIN_THEMES["ansi-dark"]
ANSI = Theme(
    name="houston-ansi",
    primary="ansi_blue",
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
)
"""The sixteen colours of the terminal itself, whichever they are, on its own ground."""
THEMES = (DARK, LIGHT, COLOUR_BLIND, ANSI)
DEFAULT = DARK.name


GROUND = 0.14
"""How much of its colour a ground behind text has."""
DIM = 0.3
"""From here on a colour that is mixed with the ground is one that a terminal dims."""


@dataclass(frozen=True, slots=True)
class Palette:
    """Styles of one theme."""

    tones: dict[Tone, Style]
    cursor: Style
    """Background of the row with the cursor, in the focused area."""
    cursor_away: Style
    """The same while another area has the focus."""
    hit: Style
    """A place that a search found."""
    added: Style
    """Over what a change added: a ground; the terminal's own colours have none that is quiet."""
    removed: Style
    """Over what it took away."""

    def strip(self, parts: Line, width: int, base: Style, over: Style | None = None) -> Strip:
        """A line as what Textual draws, `width` cells; `over` lies under the tones."""
        ground = base + over if over else base
        if over and over.reverse:  # swapped one by one, its colours would be a row of blocks
            segments = [Segment(part.text, ground) for part in parts]
        else:
            segments = [Segment(part.text, ground + self._style(part)) for part in parts]
        return Strip(segments).adjust_cell_length(width, ground)

    def _style(self, part: Span) -> Style:
        tone = self.tones[part.tone]
        if not part.ground:
            return tone
        return tone + (self.added if part.ground == "+" else self.removed)


def blank(width: int, style: Style) -> Strip:
    """An empty line. With `Palette.strip` the only place that hands text to Textual's drawing."""
    return Strip([Segment(" " * width, style)])


def palette(variables: dict[str, str]) -> Palette:
    """The palette for a theme's CSS variables (`App.theme_variables`)."""
    colour = {
        name: Color.parse(variables[name])
        for name in (
            "foreground",
            "surface",
            "primary",
            "secondary",
            "accent",
            "success",
            "warning",
            "error",
            "panel",
        )
    }
    text, ground = colour["foreground"], colour["surface"]

    own = text.ansi is not None
    """The terminal's colours: they cannot be mixed, it dims them itself."""

    def style(name: str, toward: float = 0.0, bold: bool = False) -> Style:
        if own:
            faint = toward >= DIM or None
            return Style(color=colour[name].rich_color, bold=bold or None, dim=faint)
        return Style(color=colour[name].blend(ground, toward).rich_color, bold=bold or None)

    tones: dict[Tone, Style] = {
        "text": style("foreground"),
        "strong": style("foreground", bold=True),
        "dim": style("foreground", 0.3),
        "faint": style("foreground", 0.58),
        "title": style("primary", bold=True),
        "key": style("secondary"),
        "number": style("foreground", 0.45),
        "tool": style("primary"),
        "error": style("error"),
        "warning": style("warning"),
        "success": style("success"),
        "guidance": style("accent", bold=True),
        "guidance_text": style("accent"),
        "score": style("success", bold=True),
        "fork": style("primary", 0.2),
        "added": style("success"),
        "removed": style("error"),
        "hunk": style("primary", 0.35),
        "code_comment": style("foreground", 0.45),
        "code_keyword": style("primary"),
        "code_name": style("foreground", bold=True),
        "code_number": style("secondary"),
        "code_string": style("accent", 0.2),
    }
    return Palette(
        tones=tones,
        cursor=Style(reverse=True)
        if own
        else Style(bgcolor=ground.blend(colour["primary"], 0.28).rich_color),
        cursor_away=Style(underline=True)
        if own
        else Style(bgcolor=ground.blend(text, 0.08).rich_color),
        hit=Style(color="black", bgcolor="yellow")
        if own
        else Style(color=ground.rich_color, bgcolor=colour["accent"].rich_color),
        added=_ground(ground, colour["success"]),
        removed=_ground(ground, colour["error"]),
    )


def _ground(surface: Color, colour: Color) -> Style:
    if surface.ansi is not None or colour.ansi is not None:
        return Style(color=colour.rich_color)
    return Style(bgcolor=surface.blend(colour, GROUND).rich_color)
