"""What a trajectory shows: one virtual widget over all steps, never a widget per step.

Folded steps are one line each; unfolded ones are read and wrapped when they come into view. It asks
its source for what is missing, in the background, and keeps the place on the screen while heights
change. It does not know where a source gets its rows from.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from rich.style import Style
from textual.cache import LRUCache
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import Line, Tone, block, plain, pointed, span
from houston_console.app.drawing.marking import mark_places
from houston_console.app.messages import Failed, say
from houston_console.app.transcript import rows
from houston_console.app.transcript.fold import Folds
from houston_console.app.transcript.pages import Pages
from houston_console.app.transcript.plans import Opening
from houston_console.app.transcript.reading import Source
from houston_console.app.transcript.records import StepRow
from houston_shared.errors import HoustonError

STRIPS = 4_000
"""Drawn lines kept: many screens."""
Ending = tuple[str, Tone]


class TranscriptView(LineView):
    """Row 0 is the task, row i is step i."""

    class Moved(Message):
        """The cursor is on another step, or following began or ended."""

        def can_replace(self, message: Message) -> bool:
            """One of them says as much as many."""
            return isinstance(message, TranscriptView.Moved)

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.source: Source | None = None
        self.opening = Opening("", "", "")
        self.folds = Folds()
        self.pages = Pages()
        self.following = True
        self.words = ""
        self.spots: Callable[[str], list[tuple[int, int]]] | None = None
        """Where in a line something was found."""
        self.tally: Callable[[int], str] | None = None
        self.said: Callable[[int], str] | None = None
        """By step, the words around what was found in it."""
        self.hits: list[int] = []
        self._seen = 0
        self._width = 0
        self._moving = False
        self._strips: LRUCache[object, Strip] = LRUCache(STRIPS)
        self._filling: asyncio.Task[None] | None = None
        self._unfolding = -1
        self._held_end = False
        """Whether the row that is being unfolded was the newest and followed."""
        self._ending: Ending = ("", "text")
        self._anchor = 0

    # --- what is shown -----------------------------------------------------------------------

    def clear(self) -> None:
        """Show nothing: another rollout is about to be read."""
        self.source, self.folds, self.pages = None, Folds(1), Pages()
        self.opening = Opening("", "", "")
        self.cursor, self._ending, self._anchor = 0, ("", "text"), 0
        self.words, self.spots, self.hits = "", None, []
        self._redraw()

    async def open(self, source: Source, steps: int) -> None:
        """Show a rollout of `steps` steps, at its end and following."""
        self.source = source
        await self.settle()
        if self.source is not source:
            return
        # Whoever unfolded all while nothing was here yet meant what comes.
        self.folds, self.pages = Folds(steps + 1, self.folds.all_open), Pages()
        self.words, self.spots, self.hits, self.cursor = "", None, [], steps
        self.following, self._seen = True, steps
        opening = await source.opening()
        if self.source is not source:
            return
        self.opening = opening
        self._redraw()
        self._to_end()
        await self.settle()
        say(self, self.Moved())

    async def grew(self, touched: list[int], steps: int) -> None:
        """Steps were added or have new events; what will be visible of them is read first."""
        source, near = self.source, set(self._near(self._height))
        self.pages.touched(touched)
        if self.following:
            near.update(range(max(1, steps - self._height), steps + 1))
        for first, last in self._missing(near):
            found = await source.rows(first, last) if source else []
            if source is not self.source:
                return
            self._keep(first, found)
        self.folds.grow(steps + 1)
        if self.following:
            self.cursor = self.folds.shown(steps, -1)
            self._seen = steps
        self._redraw()
        if self.following:
            self._to_end()
        say(self, self.Moved())

    def opened(self, opening: Opening) -> None:
        """Row 0 is known better: the first prompt was made."""
        if opening != self.opening:
            self.opening = opening
            self.pages.drop_wrapped(0)
            self._redraw()

    @property
    def steps(self) -> int:
        """The newest step."""
        return max(0, len(self.folds) - 1)

    @property
    def behind(self) -> int:
        """Steps that came since following ended."""
        return 0 if self.following else self.steps - self._seen

    def line_count(self) -> int:
        """Lines of all rows as they are folded now."""
        return self.folds.total + len(self.ending) if self.source else 0

    @property
    def ending(self) -> list[Line]:
        """Lines after the newest step: why nothing comes after it."""
        text, tone = self._ending
        return block(text, self.room, tone, span(" ")) if text else []

    def end_with(self, text: str, tone: Tone) -> None:
        """Say something after the newest step; nothing when empty."""
        if (text, tone) != self._ending:
            self._ending = (text, tone)
            self._redraw()
            if self.following:
                self._to_end()

    def _bottom(self, row: int) -> int:
        """The line after a row; what is said after the newest step belongs to that."""
        bottom = self.folds.top(row) + self.folds.height(row)
        return self.line_count() if row == self.steps else bottom

    def row_line(self, row: int, offset: int) -> Line:
        """One line of one row; a mark that it is being read where it is not here yet."""
        if self.folds.is_open(row) and self.folds.height(row) > 1:
            wrapped = self.pages.wrapped(row)
            if wrapped is not None and offset < len(wrapped):
                return wrapped[offset]
        if row == 0:
            return rows.head_line(self.opening.instructions, self.room)
        found = self.pages.row(row)
        if found is None or offset:
            return rows.loading(row, self.room) if not offset else ()
        if self.folds.filtered and self.said:
            found = found._replace(thought=self.said(row) or found.thought)
        parts = rows.folded(found, self.room, self.folds.is_open(row))
        return rows.as_chosen(parts) if self.chosen(row) else parts

    def chosen(self, row: int) -> bool:
        """Whether a verdict would be on it: between where choosing began and the cursor."""
        ends = sorted((self._anchor, self.cursor))
        return bool(self._anchor) and ends[0] <= row <= ends[1]

    def line_at(self, number: int) -> Line:
        """One line of the whole, as it is folded now."""
        if number >= self.folds.total:
            return self.ending[number - self.folds.total]
        return self.row_line(*self.folds.at(number))

    # --- drawing -----------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """One line; the first is a step's own line while the step reaches above the screen."""
        number = round(self.scroll_y) + y
        if not self.line_count() or number >= self.line_count():
            return super().render_line(y)
        if number >= self.folds.total:
            ended = self._draw(self.ending[number - self.folds.total], False)
            return self.with_selection(ended, number)
        row, offset = self.folds.at(number)
        if y == 0 and offset:
            offset = 0
        key = (row, offset, self.size.width, row == self.cursor, self.has_focus, self.chosen(row))
        strip = self._strips.get(key)
        if strip is None:
            parts = self.row_line(row, offset)
            strip = self._draw(parts, row == self.cursor and not offset)
            if row == 0 or self.pages.row(row) is not None:
                self._strips[key] = strip
            else:
                self._fill_soon()
        return self.with_selection(strip, number)

    def _draw(self, parts: Line, cursor: bool) -> Strip:
        under: Style | None = None
        if cursor:
            under = self.palette.cursor if self.has_focus else self.palette.cursor_away
            parts = pointed(parts, self.has_focus)
        strip = self.palette.strip(parts, self.size.width, self.rich_style, under)
        if self.spots is None:
            return strip
        return mark_places(strip, self.spots(plain(parts)), self.palette.hit)

    def mark(
        self,
        spots: Callable[[str], list[tuple[int, int]]] | None,
        words: str,
        tally: Callable[[int], str] | None,
        said: Callable[[int], str] | None,
    ) -> None:
        """Show what is searched: where it is in a line, how it was written, from the cursor's step
        how much was found, and the words around it. Nothing was found yet."""
        self.spots, self.words, self.hits = spots, words, []
        self.tally, self.said = tally, said
        self._strips.clear()
        self.refresh()
        say(self, self.Moved())

    def _redraw(self) -> None:
        self._strips.clear()
        self._moving = True
        self.virtual_size = Size(self.room, self.line_count())
        self._moving = False
        self.refresh()
        self._fill_soon()

    def show(self) -> None:
        """Measure and draw again; a new width wraps unfolded steps again."""
        if self._width != self.room:
            self._width = self.room
            self.pages.drop_all_wrapped()
        self._redraw()
        if self.following:
            self._to_end()

    def notify_style_update(self) -> None:
        """The theme changed."""
        super().notify_style_update()
        self._strips.clear()

    # --- reading -----------------------------------------------------------------------------

    def _fill_soon(self) -> None:
        if self.source is not None and (self._filling is None or self._filling.done()):
            self._filling = asyncio.create_task(self._fill())

    async def settle(self) -> None:
        """Wait until everything visible was read."""
        while self._filling is not None and not self._filling.done():
            await asyncio.wait([self._filling])

    async def _fill(self) -> None:
        """Read what is visible, and a screen either side, until nothing is missing."""
        source = self.source
        while source is not None and source is self.source:
            await asyncio.sleep(0)
            try:
                if not await self._fill_rows(source) and not await self._fill_steps(source):
                    return
            except HoustonError as problem:
                say(self, Failed(problem))
                return

    async def _fill_rows(self, source: Source) -> bool:
        near = list(self._near(3 * self._height))
        missing = self._missing(near)
        for first, last in missing:
            found = await source.rows(first, last)
            if source is self.source:
                self._keep(first, found)
        if missing:
            self._strips.clear()
            self.refresh()
            # A step of which the database has no row (yet) must not be asked for for ever.
            return not self._missing(near)
        return False

    def _missing(self, near: Iterable[int]) -> list[tuple[int, int]]:
        """What to read, first and last step: whole blocks, but of few steps only these."""
        if self.folds.filtered:
            return self.pages.missing_rows(near)
        return self.pages.missing_blocks(near)

    def _keep(self, first: int, found: list[StepRow]) -> None:
        if self.folds.filtered:
            self.pages.put_some(found)
        else:
            self.pages.put_rows(first, found)

    def _near(self, lines: int) -> Iterable[int]:
        """Rows among `lines` lines around the middle of the screen."""
        above = (lines - self._height) // 2
        return self.folds.between(max(0, round(self.scroll_y) - above), lines)

    async def _fill_steps(self, source: Source) -> bool:
        visible = self.folds.between(round(self.scroll_y), self._height)
        for row in visible:
            if self.folds.is_open(row) and self.pages.needs_wrapping(row):
                width, lines = self.room, await self._wrap(source, row)
                if width != self.room:
                    return True  # wrapped for a width that is gone: once more
                if source is self.source and lines:
                    self._place(row, lines)
                    return True
        return False

    async def _wrap(self, source: Source, row: int) -> list[Line]:
        width = self.room
        if row == 0:
            return rows.head_lines(self.opening.instructions, self.opening.system, width)
        found, record = self.pages.row(row), await source.record(row)
        if found is None or record is None:
            return []
        return await asyncio.to_thread(
            rows.unfolded, found, record, width, await source.beside(row)
        )

    def _place(self, row: int, lines: list[Line]) -> None:
        """An unfolded step was wrapped: what is below the top of the screen stays where it is."""
        self.pages.put_wrapped(row, lines)
        first, stays = round(self.scroll_y), self.folds.top(self.cursor)
        # The cursor's own line keeps its place on the screen; without it, the top line does.
        visible = first <= stays < first + self._height
        above = row < self.cursor if visible else self.folds.top(row) < first
        grown = self.folds.measured(row, len(lines))
        self._redraw()
        if self.following:
            self._to_end()
        elif row == self._unfolding:
            self._unfolded(row)
        elif above and grown:
            self._scroll(round(self.scroll_y) + grown)
        self._unfolding = -1

    def _unfolded(self, row: int) -> None:
        """Show a row that was just unfolded; goes on following when the end is still in view."""
        self.put_cursor(row)
        if self._held_end and self.line_count() <= round(self.scroll_y) + self._height:
            self._follow()
        self._held_end = False

    # --- the place on the screen ----------------------------------------------------------

    @property
    def _height(self) -> int:
        return max(1, self.scrollable_content_region.height)

    def _scroll(self, line: int) -> None:
        self._moving = True
        self.jump(line)
        self._moving = False
        self._fill_soon()

    def _to_end(self) -> None:
        self._scroll(self.line_count() - self._height)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling by wheel or bar lets go of the end."""
        super().watch_scroll_y(old_value, new_value)
        if not self._moving:
            # A frame that grew also scrolls, but to its end.
            if round(new_value) < min(round(old_value), round(self.max_scroll_y)):
                self._let_go()
            self._fill_soon()

    def _follow(self) -> None:
        self.following, self._seen = True, self.steps
        say(self, self.Moved())

    def _let_go(self) -> None:
        if self.following:
            self.following, self._seen = False, self.steps
            say(self, self.Moved())
