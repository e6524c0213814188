"""Lists that `/` filters: a line under the list takes words, and only items with all of them show.

`FilterPrompt` is that line, also on the home screen. `FilteredList` has one and does the rest; a
subclass says in which words to look. The list behind the filter keeps updating: new items show if
they match.
"""

from collections.abc import Callable, Sequence
from typing import Any

from textual import events
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input

from houston_console.widgets.dialogs import BottomPrompt
from houston_console.widgets.line_view import Item, ItemList, LineView
from houston_console.widgets.styled_text import (
    TextLine,
    line,
    line_width,
    palette_for_theme,
    span,
)

NOTHING_FOUND_LINE = line(span(" nothing here holds these words", "dim"))
MIN_TYPING_CELLS = 18
"""Cells that stay free for words before it is said how many lines hold them."""


class FilterPrompt(BottomPrompt):
    """What is typed narrows the list at once; it stays in sight for as long as it does."""

    def __init__(self, listed: LineView, on_change: Callable[[], None], **arguments: Any) -> None:
        """listed: the list that is filtered. on_change: told when the words are others."""
        super().__init__(**arguments)
        self.listed, self._on_change = listed, on_change
        self.count_text = ""
        """What is said at the right end, such as `2 of 40`."""

    def open(self, placeholder: str) -> None:
        """Have words typed, or those that stand there changed."""
        value = self.value
        self.ask("/", placeholder)
        self.value, self.cursor_position = value, len(value)

    def action_leave(self) -> None:
        """Back to the list, which shows all again."""
        self.value = ""
        self.close()

    def close(self) -> None:
        """Back to the list as it is filtered."""
        self.display = bool(self.value)
        self.screen.set_focus(self.listed)

    def on_blur(self) -> None:
        """Somebody went elsewhere: without words nothing is filtered."""
        self.display = bool(self.value)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter with every letter."""
        event.stop()
        self._on_change()

    def render_line(self, y: int) -> Strip:
        """What is typed, and at the right end what that has found."""
        strip, width = super().render_line(y), self.size.width
        notes = [line(span(f" {self.count_text}{more} ", "dim")) for more in ("  esc all", "")]
        fits = (note for note in notes if width - line_width(note) >= MIN_TYPING_CELLS)
        note = next(fits, ()) if self.value and self.count_text else ()
        if not note:
            return strip
        palette = palette_for_theme(self.app.current_theme, self.app.theme_variables)
        end = palette.strip(note, line_width(note), self.rich_style)
        return Strip.join([strip.crop(0, width - line_width(note)), end])


class FilteredList(ItemList[Item]):
    """A list of which only the items are shown that hold every word of its filter."""

    def __init__(self, items: Sequence[Item] = (), **arguments: Any) -> None:
        self.prompt = FilterPrompt(self, self._filter_again)
        self._all_items: Sequence[Item] = ()
        self._shown: Sequence[Item] = ()
        self._empty: TextLine = ()
        super().__init__(items, **arguments)

    # --- what a subclass gives ---------------------------------------------------------------

    def filter_text(self, item: Item) -> str:
        """What words are looked for in, in any case."""
        raise NotImplementedError

    def is_heading(self, item: Item) -> bool:
        """Whether it stands over others: it is shown where one of them is."""
        return False

    # --- what is shown -----------------------------------------------------------------------

    @property
    def items(self) -> Sequence[Item]:
        """The items that are shown; all of them while nothing is filtered."""
        return self._shown

    @items.setter
    def items(self, items: Sequence[Item]) -> None:
        self._all_items, said = items, self.prompt.count_text
        self._apply_filter()
        if self.prompt.count_text != said and self.prompt.is_attached:
            self.prompt.refresh()

    @property
    def all_items(self) -> Sequence[Item]:
        """Those that the filter hides, too."""
        return self._all_items

    @property
    def empty(self) -> TextLine:
        """What stands where no item does."""
        return NOTHING_FOUND_LINE if self.prompt.value and self._all_items else self._empty

    @empty.setter
    def empty(self, words: TextLine) -> None:
        self._empty = words

    def _apply_filter(self) -> None:
        words = self.prompt.value.casefold().split()
        if not words:
            self._shown, self.prompt.count_text = self._all_items, ""
            return
        matches: list[Item] = []
        headings: list[Item] = []
        count = 0
        for item in self._all_items:
            if self.is_heading(item):
                headings = [item]
                continue
            text = self.filter_text(item).casefold()
            if all(word in text for word in words):
                matches += [*headings, item]
                headings, count = [], count + 1
        total = sum(not self.is_heading(item) for item in self._all_items)
        self._shown, self.prompt.count_text = matches, f"{count} of {total}"

    def _filter_again(self) -> None:
        """Other words: the cursor stays on its item, or goes to the first that is left."""
        before = self.under_cursor
        self._apply_filter()
        self.show()
        self.prompt.refresh()
        places = (at for at, item in enumerate(self._shown) if item is before)
        usable = (at for at in range(len(self._shown)) if self.selectable(at))
        at = next(places, None)
        self.cursor = next(usable, 0) if at is None else at
        self.set_cursor(self.cursor)
        if self.under_cursor is not before:
            self.cursor_moved()

    # --- asking for words --------------------------------------------------------------------

    async def action_filter(self) -> None:
        """Type words under the list."""
        if not self.prompt.is_attached and isinstance(self.parent, Widget):
            await self.parent.mount(self.prompt, after=self)
        self.prompt.open("words that a line must hold")

    def end_filter(self) -> None:
        """Show other things from now on, all of them."""
        self.prompt.value = ""
        self.prompt.display = False

    async def _on_key(self, event: events.Key) -> None:
        """Escape ends the filter before it is the area's own key."""
        if event.key == "escape" and self.prompt.value:
            event.stop()
            event.prevent_default()
            self.prompt.action_leave()
