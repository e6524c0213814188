"""Colours: two themes of our own, and what each tone looks like in whatever theme is on.

Every state is also told by a glyph, so that no meaning depends on a colour.
"""

from dataclasses import dataclass

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.strip import Strip
from textual.theme import Theme

from houston_console.app.drawing.lines import Line, Tone

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
DEFAULT = DARK.name


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

    def strip(self, parts: Line, width: int, base: Style, over: Style | None = None) -> Strip:
        """A line as what Textual draws, `width` cells; `over` lies under the tones."""
        ground = base + over if over else base
        segments = [Segment(part.text, ground + self.tones[part.tone]) for part in parts]
        return Strip(segments).adjust_cell_length(width, ground)


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

    def style(name: str, toward: float = 0.0, bold: bool = False) -> Style:
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
    }
    return Palette(
        tones=tones,
        cursor=Style(bgcolor=ground.blend(colour["primary"], 0.28).rich_color),
        cursor_away=Style(bgcolor=ground.blend(text, 0.08).rich_color),
        hit=Style(color=ground.rich_color, bgcolor=colour["accent"].rich_color),
    )
