"""What each tone looks like in whatever theme is on.

Every state is also told by a glyph, so that no meaning depends on a colour.
"""

from dataclasses import dataclass
from typing import get_args

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.strip import Strip
from textual.theme import Theme

from houston_console.app.drawing.lines import Line, Span, Tone
from houston_console.app.drawing.themes import HoustonTheme

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
        if over and (over.reverse or over.color):  # nothing else can be read on it
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


def palette(theme: Theme, variables: dict[str, str]) -> Palette:
    """The palette of a theme; variables: its CSS variables (`App.theme_variables`).

    What the theme does not say itself is mixed of its colours.
    """
    given = theme.styles if isinstance(theme, HoustonTheme) else {}
    own = {name: Style.parse(text) for name, text in given.items()}
    mixed = _mixed(variables)
    tones: dict[Tone, Style] = {tone: own.get(tone, mixed.tones[tone]) for tone in get_args(Tone)}
    return Palette(
        tones=tones,
        cursor=own.get("cursor", mixed.cursor),
        cursor_away=own.get("cursor_away", mixed.cursor_away),
        hit=own.get("hit", mixed.hit),
        added=own.get("added_ground", mixed.added),
        removed=own.get("removed_ground", mixed.removed),
    )


def _mixed(variables: dict[str, str]) -> Palette:
    """A palette of a theme's main colours."""
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
        hit=Style(color="black", bgcolor="yellow", bold=True, underline=True)
        if own
        else Style(color=ground.rich_color, bgcolor=colour["accent"].rich_color),
        added=_ground(ground, colour["success"]),
        removed=_ground(ground, colour["error"]),
    )


def _ground(surface: Color, colour: Color) -> Style:
    if surface.ansi is not None or colour.ansi is not None:
        return Style(color=colour.rich_color)
    return Style(bgcolor=surface.blend(colour, GROUND).rich_color)
