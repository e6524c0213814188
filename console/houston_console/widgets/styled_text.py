"""Lines of text as everything on the screen is made of: safe text in spans, each with a tone.

A tone says what a piece of text is (an error, a number, guidance); `Palette` turns tones into
colours of the theme in use. Wrapping, cutting and padding are done here in terminal cells, so a
line's height is known before it is drawn. Every state is also told by a glyph, so no meaning
depends on a colour. The colours of themes are in `widgets.color_themes`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.strip import Strip
from textual.theme import Theme

from houston_console.widgets.color_themes import HoustonTheme
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
NAME_END_CELLS = 7
"""Cells of a name's end that are kept when it is cut."""
TAB_COLUMNS = 4
"""Columns between tab stops in everything that is shown."""


DiffBackground = Literal["", "+", "-"]
"""What lies behind a piece of text: nothing, or that it was added or removed."""


class TextSpan(NamedTuple):
    """A piece of a line."""

    text: SafeText
    tone: Tone = "text"
    background: DiffBackground = ""


TextLine = tuple[TextSpan, ...]
"""One line of the screen, at most as wide as it was wrapped for."""


def span(text: str, tone: Tone = "text") -> TextSpan:
    """Any text as a span of one line."""
    return TextSpan(safe_line(text), tone)


def line(*parts: TextSpan | str) -> TextLine:
    """A line of spans; plain strings take the tone `text`."""
    return tuple(part if isinstance(part, TextSpan) else span(part) for part in parts)


LOADING_LINE: TextLine = (span(" loading …", "dim"),)
"""In place of what nobody knows yet."""


def line_width(parts: Iterable[TextSpan]) -> int:
    """Cells that a line takes."""
    return sum(cell_len(part.text) for part in parts)


def line_text(parts: Iterable[TextSpan]) -> str:
    """A line's text without tones."""
    return "".join(part.text for part in parts)


def gain_tone(gain: float | None) -> Tone:
    """Of what a critique or guidance gained; None where that is not known yet."""
    return "success" if (gain or 0.0) > 0 else "error" if (gain or 0.0) < 0 else "dim"


def fit_text(text: str, width: int) -> SafeText:
    """`text` on one line in exactly `width` cells: cut with `…`, or filled with spaces.

    Where only blanks are cut, as of a program's screen, there is nothing to say.
    """
    clean = safe_line(text)
    if width <= 0:
        return SafeText("")
    if cell_len(clean) <= width or cell_len(clean.rstrip(" ")) <= width:
        return SafeText(set_cell_size(clean, width))
    return SafeText(set_cell_size(set_cell_size(clean, width - 1) + "…", width))


def fit_name(text: str, width: int) -> SafeText:
    """As `fit_text`, but cut in the middle: names of one kind differ in their ends."""
    clean = safe_line(text)
    if cell_len(clean) <= width or width < NAME_END_CELLS * 2:
        return fit_text(clean, width)
    end = SafeText(clean[-NAME_END_CELLS:])
    while cell_len(end) > NAME_END_CELLS:
        end = SafeText(end[1:])
    head = set_cell_size(clean, width - 1 - cell_len(end))
    return SafeText(f"{head}…{end}")


def justify_line(left: TextLine, right: TextLine, width: int) -> TextLine:
    """`left` and `right` at the two ends of a line of `width` cells; `left` gives way, and does not
    touch `right` where it is cut."""
    room = width - line_width(right)
    gap = int("".join(part.text for part in right)[:1] not in ("", " "))
    spans: list[TextSpan] = []
    for part in left:
        cells = cell_len(part.text)
        if cells > room:
            spans.append(TextSpan(fit_text(part.text, max(0, room - gap)), part.tone))
            room = min(gap, room)
            break
        spans.append(part)
        room -= cells
    return (*spans, TextSpan(SafeText(" " * max(0, room))), *right)


CURSOR_GLYPH, UNFOCUSED_CURSOR_GLYPH = "»", "›"
"""Before the line with the cursor, where the keys go and in the other areas."""
CURSOR_EDGE_CHARACTERS = 4
"""Characters among which it finds a blank to stand in."""


def with_cursor(parts: TextLine, focused: bool) -> TextLine:
    """A line with the cursor: a glyph in the first blank of its edge, so that no colour is needed.

    Of the same width; without a blank there it stays as it is.
    """
    at = line_text(parts)[:CURSOR_EDGE_CHARACTERS].find(" ")
    if at < 0:
        return parts
    spans: list[TextSpan] = []
    for part in parts:
        if 0 <= at < len(part.text):
            spans += [
                TextSpan(SafeText(part.text[:at]), part.tone),
                TextSpan(
                    SafeText(CURSOR_GLYPH if focused else UNFOCUSED_CURSOR_GLYPH),
                    "title" if focused else "dim",
                ),
                TextSpan(SafeText(part.text[at + 1 :]), part.tone),
            ]
        else:
            spans.append(part)
        at -= len(part.text)
    return tuple(piece for piece in spans if piece.text)


def wrap_text(text: str, width: int) -> list[SafeText]:
    """`text` in lines of at most `width` cells, broken at spaces where there are any."""
    width = max(4, width)
    lines: list[SafeText] = []
    for logical in safe(text).expandtabs(TAB_COLUMNS).split("\n"):
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
        cut = _fitting_characters(window, width)
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


def _fitting_characters(window: str, width: int) -> int:
    """How many characters of `window` fit into `width` cells; at least one."""
    if window.isascii():
        return min(len(window), width)
    if cell_len(window) <= width:
        return len(window)
    return max(1, len(chop_cells(window, width)[0]))


def flow_groups(groups: Iterable[TextLine], width: int) -> list[TextLine]:
    """Groups of spans one after the other; one that does not fit begins the next line.

    A group wider than a line is wrapped, in the tone of its first span.
    """
    lines: list[TextLine] = []
    for group in groups:
        cells = line_width(group)
        if lines and line_width(lines[-1]) + cells <= width:
            lines[-1] = (*lines[-1], *group)
        elif cells <= width:
            lines.append(group)
        else:
            lines += text_block(line_text(group), width, group[0].tone)
    return lines


def text_block(
    text: str, width: int, tone: Tone = "text", bar: TextSpan | None = None
) -> list[TextLine]:
    """Wrapped text as lines, each behind `bar` when there is one."""
    edge = (bar,) if bar else ()
    room = width - line_width(edge)
    return [(*edge, TextSpan(part, tone)) for part in wrap_text(text, room)]


def hanging_block(head: TextSpan, text: str, width: int, tone: Tone = "text") -> list[TextLine]:
    """Text behind a head, wrapped under itself."""
    indent = line_width((head,))
    pad = span(" " * indent)
    rows = text_block(text, width - indent, tone)
    return [(pad if at else head, *row) for at, row in enumerate(rows)]


GROUND_STRENGTH = 0.14
"""How much of its colour a background behind text has."""
DIM_THRESHOLD = 0.3
"""From here on a colour that is mixed with the background is one that a terminal dims."""
_MIXED_TONES: dict[Tone, tuple[str, float, bool]] = {
    "text": ("foreground", 0.0, False),
    "strong": ("foreground", 0.0, True),
    "dim": ("foreground", 0.3, False),
    "faint": ("foreground", 0.58, False),
    "title": ("primary", 0.0, True),
    "key": ("secondary", 0.0, False),
    "number": ("foreground", 0.45, False),
    "tool": ("primary", 0.0, False),
    "error": ("error", 0.0, False),
    "warning": ("warning", 0.0, False),
    "success": ("success", 0.0, False),
    "guidance": ("accent", 0.0, True),
    "guidance_text": ("accent", 0.0, False),
    "score": ("success", 0.0, True),
    "fork": ("primary", 0.2, False),
    "added": ("success", 0.0, False),
    "removed": ("error", 0.0, False),
    "hunk": ("primary", 0.35, False),
    "code_comment": ("foreground", 0.45, False),
    "code_keyword": ("primary", 0.0, False),
    "code_name": ("foreground", 0.0, True),
    "code_number": ("secondary", 0.0, False),
    "code_string": ("accent", 0.2, False),
}
"""The theme's colour of a tone, how far it is mixed with the background, and whether it is bold."""


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
    """Over what a change added: a background; the terminal's own colours have no quiet one."""
    removed: Style
    """Over what it took away."""

    def strip(self, parts: TextLine, width: int, base: Style, over: Style | None = None) -> Strip:
        """A line as what Textual draws, `width` cells; `over` lies under the tones."""
        background = base + over if over else base
        if over and (over.reverse or over.color):  # nothing else can be read on it
            segments = [Segment(part.text, background) for part in parts]
        else:
            segments = [Segment(part.text, background + self._style(part)) for part in parts]
        return Strip(segments).adjust_cell_length(width, background)

    def _style(self, part: TextSpan) -> Style:
        tone = self.tones[part.tone]
        if not part.background:
            return tone
        return tone + (self.added if part.background == "+" else self.removed)


def blank_strip(width: int, style: Style) -> Strip:
    """An empty line. With `Palette.strip` the only place that hands text to Textual's drawing."""
    return Strip([Segment(" " * width, style)])


def palette_for_theme(theme: Theme, variables: dict[str, str]) -> Palette:
    """The palette of a theme; variables: its CSS variables (`App.theme_variables`).

    What the theme does not say itself is mixed of its colours.
    """
    styles = theme.styles if isinstance(theme, HoustonTheme) else {}
    own = {name: Style.parse(text) for name, text in styles.items()}
    mixed = _mix_palette(variables)
    tones: dict[Tone, Style] = {tone: own.get(tone, mixed.tones[tone]) for tone in get_args(Tone)}
    return Palette(
        tones=tones,
        cursor=own.get("cursor", mixed.cursor),
        cursor_away=own.get("cursor_away", mixed.cursor_away),
        hit=own.get("hit", mixed.hit),
        added=own.get("added_background", mixed.added),
        removed=own.get("removed_background", mixed.removed),
    )


def _mix_palette(variables: dict[str, str]) -> Palette:
    """A palette of a theme's main colours."""
    main = ("surface", "foreground", "primary", "accent", "success", "error")
    background, text, primary, accent, added_color, removed = (
        Color.parse(variables[n]) for n in main
    )
    own = text.ansi is not None  # the terminal's colours cannot be mixed: it dims them itself

    def style(name: str, toward: float, bold: bool) -> Style:
        colour = Color.parse(variables[name])
        if own:
            faint = toward >= DIM_THRESHOLD or None
            return Style(color=colour.rich_color, bold=bold or None, dim=faint)
        return Style(color=colour.blend(background, toward).rich_color, bold=bold or None)

    tones: dict[Tone, Style] = {tone: style(*mix) for tone, mix in _MIXED_TONES.items()}
    if own:
        cursor, cursor_away = Style(reverse=True), Style(underline=True)
        hit = Style(color="black", bgcolor="yellow", bold=True, underline=True)
    else:
        cursor = Style(bgcolor=background.blend(primary, 0.28).rich_color)
        cursor_away = Style(bgcolor=background.blend(text, 0.08).rich_color)
        hit = Style(color=background.rich_color, bgcolor=accent.rich_color)
    plus, minus = _ground_style(background, added_color), _ground_style(background, removed)
    return Palette(tones, cursor, cursor_away, hit, plus, minus)


def _ground_style(surface: Color, colour: Color) -> Style:
    if surface.ansi is not None or colour.ansi is not None:
        return Style(color=colour.rich_color)
    return Style(bgcolor=surface.blend(colour, GROUND_STRENGTH).rich_color)
