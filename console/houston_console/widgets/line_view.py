"""A virtual list of lines: draws only what is visible, whatever the length.

Base class of every pane with text: a subclass says how many lines there are and what each is;
this draws, scrolls, moves a cursor, selects with the mouse. Also here: highlighting on drawn
lines, and the titles of frames. It reads nothing and keeps no text of its own.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar

from rich.style import Style
from textual.content import Content
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from houston_console.app.error_boundary import PaneBoundary
from houston_console.app.key_bindings import bindings_for
from houston_console.widgets.styled_text import (
    Palette,
    TextLine,
    blank_strip,
    line_text,
    palette_for_theme,
    with_cursor,
)
from houston_shared.safe_text import safe_line


def set_frame_title(widget: Widget, text: str) -> None:
    """Write the title of a frame, unless it says so already (it would be drawn again)."""
    clean = Content(safe_line(text))
    if widget.border_title != clean.markup:
        _write_frame_text(widget, "_border_title", clean, -1)


def set_frame_subtitle(widget: Widget, parts: TextLine) -> None:
    """Write on the lower edge of a frame."""
    text = line_text(parts).strip()
    clean = Content(text)
    if widget.border_subtitle != clean.markup:
        _write_frame_text(widget, "_border_subtitle", clean, widget.outer_size.height - 2)


def _write_frame_text(widget: Widget, name: str, text: Content, line: int) -> None:
    """Set a title as Textual 8.2 does, which would draw the whole area again, not only its edge.

    line: of the edge, counted from the first line of what is inside.
    """
    setattr(widget, name, text)
    widget.refresh(Region(-1, line, widget.outer_size.width, 1))


def style_selection(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    """`strip` with the characters of `span` in `style`; an end of -1 is the end of the line."""
    first = strip.index_to_cell_position(span[0])
    last = strip.cell_length if span[1] < 0 else strip.index_to_cell_position(span[1])
    if last <= first:
        return strip
    before, within, after = strip.divide([first, last, strip.cell_length])
    return Strip.join([before, within.apply_style(style), after])


def selected_text(text: str, span: tuple[int, int]) -> str:
    """The characters of `span`, without the space that fills the line."""
    return (text[span[0] :] if span[1] < 0 else text[span[0] : span[1]]).rstrip()


def highlight_needles(strip: Strip, text: str, needles: Sequence[str], style: Style) -> Strip:
    """`strip`, which shows `text`, with every place of a needle in `style`; any case."""
    low = text.lower()
    if len(low) != len(text):  # a few letters change their length: places would be off
        return strip
    return highlight_ranges(strip, _needle_ranges(low, needles), style)


def highlight_ranges(strip: Strip, places: Sequence[tuple[int, int]], style: Style) -> Strip:
    """`strip` with the characters of each place in `style`.

    A place may lie behind the end: a line that was not measured again yet is cut off there.
    """
    shown_cells = len(strip.text)
    within = [
        (start, min(end, shown_cells))
        for start, end in _merge_ranges(places)
        if start < shown_cells
    ]
    cuts = [strip.index_to_cell_position(at) for place in within for at in place]
    if not cuts:
        return strip
    parts = list(strip.divide([*cuts, strip.cell_length]))
    for index in range(1, len(parts), 2):
        parts[index] = Strip([segment._replace(style=style) for segment in parts[index]])
    return Strip.join(parts)


def _needle_ranges(low: str, needles: Sequence[str]) -> list[tuple[int, int]]:
    """Where needles begin and end."""
    ranges: list[tuple[int, int]] = []
    for needle in filter(None, (word.lower() for word in needles)):
        at = low.find(needle)
        while at >= 0:
            ranges.append((at, at + len(needle)))
            at = low.find(needle, at + len(needle))
    return ranges


def _merge_ranges(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same places in order, without overlaps."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if not merged or start > merged[-1][1]:
            merged.append((start, end))
        elif end > merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
    return merged


MAX_SELECTED_LINES = 20_000
"""Lines that a selection without an end takes at most."""


class LineView(PaneBoundary, ScrollView, can_focus=True, inherit_bindings=False):
    """Lines 0, 1, … of `line_count`, one of which may be the cursor's."""

    BINDINGS = bindings_for("lines")
    has_cursor = True

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.cursor = 0
        self.empty: TextLine = ()
        self._palette: Palette | None = None
        self._frame_style: Style | None = None
        """The own style while lines are drawn: Textual finds it anew for every line."""

    # --- what a subclass gives ---------------------------------------------------------------

    def line_count(self) -> int:
        """How many lines there are."""
        raise NotImplementedError

    def line_at(self, number: int) -> TextLine:
        """One line, for the width of `line_cells`."""
        raise NotImplementedError

    def selectable(self, number: int) -> bool:
        """Whether the cursor may be on this line."""
        return True

    def cursor_moved(self) -> None:
        """Called when the cursor has moved to another line."""

    def note_activity(self) -> None:
        """A key was pressed here, or the mouse moved: somebody is at this list."""

    # --- drawing -----------------------------------------------------------------------------

    @property
    def line_cells(self) -> int:
        """Cells in a line; the scrollbar's column is kept free also while there is none."""
        bar = self.styles.scrollbar_size_vertical if self.styles.overflow_y == "auto" else 0
        return max(4, self.region.shrink(self.styles.gutter).width - bar)

    @property
    def palette(self) -> Palette:
        """Styles of the theme that is on."""
        if self._palette is None:
            self._palette = palette_for_theme(self.app.current_theme, self.app.theme_variables)
        return self._palette

    def notify_style_update(self) -> None:
        """The theme changed: colours are looked up again."""
        super().notify_style_update()
        self._palette = None

    def show(self) -> None:
        """Lines have changed: measure and draw again."""
        self.measure()
        self.refresh()

    def measure(self) -> None:
        """Update the size after the number of lines has changed.

        If lines are added to a list that is already longer than the screen, no part of the screen
        moves. Textual's layout, which draws the whole list again, is then skipped: a rollout may
        grow ten times a second.
        """
        size, before = Size(self.line_cells, self.line_count()), self.virtual_size
        if size.width == before.width and size.height >= before.height > self.size.height:
            self.set_reactive(Widget.virtual_size, size)
            self._scroll_update(size)
        else:
            self.virtual_size = size

    def visible_lines(self) -> list[TextLine]:
        """What the lines on the screen say."""
        first = round(self.scroll_y)
        numbers = range(first, min(self.line_count(), first + self.size.height))
        return [self.line_at(number) for number in numbers]

    def redraw_changed(self, before: list[TextLine]) -> list[TextLine]:
        """Draw lines on the screen again that say something else now; all where there are others.

        before: what they said when they were drawn, with the list scrolled as it is now.
        Returns what they say now.
        """
        now = self.visible_lines()
        if len(now) != len(before) or self.virtual_size.height != self.line_count():
            self.show()
            return now
        for number, (old, new) in enumerate(zip(before, now, strict=True), round(self.scroll_y)):
            if old != new:
                self.refresh_lines(number)
        return now

    def render_lines(self, crop: Region) -> list[Strip]:
        """The lines of `crop`; what they stand on is found once for all of them."""
        self._frame_style = self.rich_style
        try:
            return super().render_lines(crop)
        finally:
            self._frame_style = None

    @property
    def base_style(self) -> Style:
        """What lines stand on: the widget's own style."""
        return self._frame_style or self.rich_style

    def render_line(self, y: int) -> Strip:
        """One line of the screen (Textual's line API)."""
        number = round(self.scroll_y) + y
        base = self.base_style
        if not self.line_count() and y == 0 and self.empty:
            return self.palette.strip(self.empty, self.size.width, base)
        if number >= self.line_count():
            return blank_strip(self.size.width, base)
        parts, under = self.line_at(number), self._cursor_style(number)
        if under and number == self.cursor:
            parts = with_cursor(parts, self.has_focus)
        strip = self.palette.strip(parts, self.size.width, base, under)
        return self.with_selection(strip, number)

    # --- what the mouse selects --------------------------------------------------------------

    def with_selection(self, strip: Strip, number: int) -> Strip:
        """The line `number` as it is drawn, with its selected part marked.

        Offsets of characters are added only when this line alone is asked for, as Textual does
        below the mouse: in a frame they would make every piece of text a style of its own.
        """
        selection = self.text_selection
        span = selection.get_span(number) if selection else None
        if span:
            strip = style_selection(
                strip, span, self.screen.get_component_rich_style("screen--selection")
            )
        return strip if self._frame_style is not None else strip.apply_offsets(0, number)

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        """What is selected, line by line as it is shown."""
        last = min(
            self.line_count(), MAX_SELECTED_LINES if selection.end is None else selection.end.y + 1
        )
        first = selection.start.y if selection.start else 0
        spans = ((number, selection.get_span(number)) for number in range(first, last))
        lines = [
            selected_text(line_text(self.line_at(number)), span) for number, span in spans if span
        ]
        return "\n".join(lines), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Something else is selected."""
        self.refresh()

    async def text_to_copy(self) -> tuple[str, str]:
        """What a key copies while nothing is selected: how it is called, and the text."""
        if self.has_cursor:
            return "the line", line_text(
                self.line_at(self.cursor)
            ).strip() if self.line_count() else ""
        lines = (line_text(self.line_at(number)).rstrip() for number in range(self.line_count()))
        return "the whole text", "\n".join(lines)

    def _cursor_style(self, number: int) -> Style | None:
        if not self.has_cursor or number != self.cursor or not self.selectable(number):
            return None
        return self.palette.cursor if self.has_focus else self.palette.cursor_away

    def on_mouse_move(self) -> None:
        """Note that somebody uses this list."""
        self.note_activity()

    on_mouse_scroll_down = on_mouse_scroll_up = on_mouse_move

    def on_focus(self) -> None:
        """The cursor row looks different in the focused area."""
        self.refresh()

    on_blur = on_focus

    def on_resize(self) -> None:
        """The width may have changed."""
        self.show()

    # --- moving ------------------------------------------------------------------------------

    def set_cursor(self, number: int) -> None:
        """Stand on the line `number`, or the nearest that may be stood on, and show it."""
        if not self.line_count():
            return
        wanted_number = max(0, min(number, self.line_count() - 1))
        on = range(wanted_number, self.line_count())
        back = range(wanted_number, -1, -1)
        order = (on, back) if wanted_number >= self.cursor else (back, on)
        target = next((at for side in order for at in side if self.selectable(at)), None)
        if target is None:
            return
        before, self.cursor = self.cursor, target
        self.scroll_line_into_view(target)
        if before != target:
            # Not all: a key is to be cheap, also over a narrow line.
            self.redraw_cursor_line(before)
            self.redraw_cursor_line(target)
            self.cursor_moved()

    def keep_cursor_line(self, at: int) -> None:
        """What the cursor stands on is the line `at` by now; it stays where it is on the screen."""
        old, self.cursor = self.cursor, at
        if at != old:
            self.jump(round(self.scroll_y) + at - old)

    def redraw_cursor_line(self, number: int) -> None:
        """Draw again what has the cursor's background while it stands on the line `number`."""
        self.refresh_line(number)

    def scroll_line_into_view(self, number: int) -> None:
        """Scroll as little as needed so that the line `number` is visible."""
        height = max(1, self.scrollable_content_region.height)
        top = round(self.scroll_y)
        if number < top:
            self.jump(number)
        elif number >= top + height:
            self.jump(number - height + 1)

    def jump(self, line: int) -> None:
        """Have `line` at the top, without animation."""
        self.scroll_to(y=max(0, line), animate=False, force=True, immediate=True)
        self.vertical_scrollbar.position = self.scroll_y  # also before it is shown

    def on_click(self, event: Any) -> None:
        """Move the cursor to the line that was clicked."""
        if self.has_cursor:
            self.move_cursor_to_line(
                round(self.scroll_y) + event.get_content_offset_capture(self).y
            )

    def move_cursor_to_line(self, line: int) -> None:
        """Stand on what the line is of."""
        self.set_cursor(line)

    def action_down(self) -> None:
        """Move one line down."""
        self._move_by(1)

    def action_up(self) -> None:
        """Move one line up."""
        self._move_by(-1)

    def _move_by(self, by: int) -> None:
        if self.has_cursor:
            self.set_cursor(self.cursor + by)
        else:
            self.jump(round(self.scroll_y) + by)

    def action_page(self, by: int) -> None:
        """Move a page down or up."""
        height = max(1, self.scrollable_content_region.height - 1)
        if self.has_cursor:
            self.set_cursor(self.cursor + by * height)
        else:
            self.jump(round(self.scroll_y) + by * height)

    def action_first(self) -> None:
        """Go to the first line."""
        self.set_cursor(0) if self.has_cursor else self.jump(0)

    def action_last(self) -> None:
        """Go to the last line."""
        last = self.line_count() - 1
        self.set_cursor(last) if self.has_cursor else self.jump(last)


class FixedLines(LineView):
    """Lines to read. They are made again for another width, and the place in them stays."""

    has_cursor = False

    def __init__(
        self, lines: Sequence[TextLine] = (), focusable: bool = True, **arguments: Any
    ) -> None:
        """lines: shown until `put` gives others. focusable: whether keys can scroll them."""
        super().__init__(**arguments)
        self.lines = lines
        self.can_focus = focusable
        self._make: Callable[[int], Sequence[TextLine]] = lambda width: lines

    def line_count(self) -> int:
        """The number of lines."""
        return len(self.lines)

    def line_at(self, number: int) -> TextLine:
        """The line at this position."""
        return self.lines[number]

    def show_lines(self, make: Callable[[int], Sequence[TextLine]]) -> None:
        """Show what `make` gives for a width; drawn again only when that is something else."""
        self._make = make
        lines = make(self.line_cells)
        if lines != self.lines:
            self.lines = lines
            super().show()

    def show(self) -> None:
        """Make them for the width there is: a hidden widget has none yet."""
        self.lines = self._make(self.line_cells)
        super().show()


Item = TypeVar("Item")


class ItemList(LineView, Generic[Item]):
    """One line for each item; a subclass says what that line is."""

    def __init__(self, items: Sequence[Item] = (), **arguments: Any) -> None:
        super().__init__(**arguments)
        self.items = items

    def line_count(self) -> int:
        """One line for each item."""
        return len(self.items)

    @property
    def under_cursor(self) -> Item | None:
        """The item with the cursor."""
        return self.items[self.cursor] if self.cursor < len(self.items) else None

    def set_items(self, items: Sequence[Item], key: Callable[[Item], Hashable]) -> None:
        """Show other items; the cursor stays with its own, which is told by `key`."""
        under = self.under_cursor
        self.items = items
        self.show()
        same = (at for at, item in enumerate(self.items) if under and key(item) == key(under))
        at = next(same, None)
        if at is None:
            self.cursor = max(0, min(self.cursor, len(self.items) - 1))
        else:
            self.keep_cursor_line(at)
