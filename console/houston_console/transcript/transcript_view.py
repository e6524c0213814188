"""The transcript widget: one virtual widget over all steps, never a widget per step.

`TranscriptView` draws, asks its source in the background for what is missing, and keeps the place
on the screen while heights change. `Transcript` adds the keys: moving, folding, following,
filtering, copying. Where rows come from is `transcript.trajectory_reader`.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from rich.style import Style
from textual.cache import LRUCache
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from houston_console.app.key_bindings import bindings_for
from houston_console.screens.base_screen import ActionFailed, post_from
from houston_console.transcript import step_rendering
from houston_console.transcript.trajectory_reader import (
    FoldedStepRow,
    RolloutSource,
    TrajectoryOpening,
)
from houston_console.transcript.transcript_layout import FoldState, TranscriptCache
from houston_console.widgets.line_view import LineView, highlight_ranges
from houston_console.widgets.styled_text import (
    TextLine,
    Tone,
    line,
    line_text,
    span,
    text_block,
    with_cursor,
)
from houston_shared.errors import HoustonError

MAX_CACHED_STRIPS = 4_000
"""Drawn lines kept: many screens."""
EndingText = tuple[str, Tone]


class TranscriptView(LineView):
    """Row 0 is the task, row i is step i."""

    class Moved(Message):
        """The cursor is on another step, or following began or ended."""

        def can_replace(self, message: Message) -> bool:
            """Several of these in the queue are as good as one."""
            return isinstance(message, TranscriptView.Moved)

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.source: RolloutSource | None = None
        self.opening = TrajectoryOpening("", "", "")
        self.folds = FoldState()
        self.cache = TranscriptCache()
        self.following = True
        self.searched_text = ""
        self.find_matches: Callable[[str], list[tuple[int, int]]] | None = None
        """Where in a line something was found."""
        self.tally: Callable[[int], str] | None = None
        self.words_in_step: Callable[[int], str] | None = None
        """By step, the words around what was found in it."""
        self.hits: list[int] = []
        self._last_seen_step = 0
        self._width = 0
        self._scrolls_itself = False
        self._strips: LRUCache[object, Strip] = LRUCache(MAX_CACHED_STRIPS)
        self._filling: asyncio.Task[None] | None = None
        self._unfolding = -1
        self._follows_after_unfold = False
        """Whether the row that is being unfolded was the newest and followed."""
        self._ending: EndingText = ("", "text")
        self._anchor = 0

    # --- what is shown -----------------------------------------------------------------------

    def clear(self) -> None:
        """Show nothing: another rollout is about to be read."""
        self.source, self.folds, self.cache = None, FoldState(1), TranscriptCache()
        self.opening = TrajectoryOpening("", "", "")
        self.cursor, self._ending, self._anchor = 0, ("", "text"), 0
        self.searched_text, self.find_matches, self.hits = "", None, []
        self._redraw()

    async def open(self, source: RolloutSource, steps: int) -> None:
        """Show a rollout of `steps` steps, at its end and following."""
        self.source = source
        await self.settle()
        if self.source is not source:
            return
        # Whoever unfolded all while nothing was here yet meant what comes.
        self.folds, self.cache = FoldState(steps + 1, self.folds.all_open), TranscriptCache()
        self.searched_text, self.find_matches, self.hits, self.cursor = "", None, [], steps
        self.following, self._last_seen_step = True, steps
        opening = await source.opening()
        if self.source is not source:
            return
        self.opening = opening
        self._redraw()
        self._to_end()
        await self.settle()
        post_from(self, self.Moved())

    async def refresh_steps(self, touched: list[int], steps: int) -> None:
        """Steps were added or have new events; what will be visible of them is read first."""
        source, near = self.source, set(self._near(self._height))
        self.cache.mark_stale(touched)
        if self.following:
            near.update(range(max(1, steps - self._height), steps + 1))
        for first, last in self._missing(near):
            rows = await source.rows(first, last) if source else []
            if source is not self.source:
                return
            self._keep(first, rows)
        self.folds.grow(steps + 1)
        if self.following:
            self.cursor = self.folds.nearest_shown(steps, -1)
            self._last_seen_step = steps
        self._redraw()
        if self.following:
            self._to_end()
        post_from(self, self.Moved())

    def set_opening(self, opening: TrajectoryOpening) -> None:
        """Row 0 is known better: the first prompt was made."""
        if opening != self.opening:
            self.opening = opening
            self.cache.drop_wrapped(0)
            self._redraw()

    @property
    def steps(self) -> int:
        """The newest step."""
        return max(0, len(self.folds) - 1)

    @property
    def behind(self) -> int:
        """Steps that came since following ended."""
        return 0 if self.following else self.steps - self._last_seen_step

    def line_count(self) -> int:
        """Lines of all rows as they are folded now."""
        return self.folds.total + len(self.ending) if self.source else 0

    @property
    def ending(self) -> list[TextLine]:
        """Lines after the newest step: why nothing comes after it."""
        text, tone = self._ending
        return text_block(text, self.line_cells, tone, span(" ")) if text else []

    def show_ending(self, text: str, tone: Tone) -> None:
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

    def row_line(self, row: int, offset: int) -> TextLine:
        """One line of one row; a mark that it is being read where it is not here yet."""
        if self.folds.is_open(row) and self.folds.height(row) > 1:
            wrapped = self.cache.wrapped(row)
            if wrapped is not None and offset < len(wrapped):
                return wrapped[offset]
        if row == 0:
            return step_rendering.head_line(self.opening.instructions, self.line_cells)
        folded = self.cache.row(row)
        if folded is None or offset:
            return step_rendering.loading_line(row, self.line_cells) if not offset else ()
        if self.folds.filtered and self.words_in_step:
            folded = folded._replace(thought=self.words_in_step(row) or folded.thought)
        parts = step_rendering.folded_line(folded, self.line_cells, self.folds.is_open(row))
        return step_rendering.with_chosen_bar(parts) if self.is_chosen(row) else parts

    def is_chosen(self, row: int) -> bool:
        """Whether a verdict would be on it: between where choosing began and the cursor."""
        ends = sorted((self._anchor, self.cursor))
        return bool(self._anchor) and ends[0] <= row <= ends[1]

    def line_at(self, number: int) -> TextLine:
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
            ended = self._draw_line(self.ending[number - self.folds.total], False)
            return self.with_selection(ended, number)
        row, offset = self.folds.at(number)
        if y == 0 and offset:
            offset = 0
        looks = (row == self.cursor, self.has_focus, self.is_chosen(row))
        key = (row, offset, self.size.width, *looks)
        strip = self._strips.get(key)
        if strip is None:
            parts = self.row_line(row, offset)
            strip = self._draw_line(parts, row == self.cursor and not offset)
            if row == 0 or self.cache.row(row) is not None:
                self._strips[key] = strip
            else:
                self._fill_soon()
        return self.with_selection(strip, number)

    def _draw_line(self, parts: TextLine, cursor: bool) -> Strip:
        under: Style | None = None
        if cursor:
            under = self.palette.cursor if self.has_focus else self.palette.cursor_away
            parts = with_cursor(parts, self.has_focus)
        strip = self.palette.strip(parts, self.size.width, self.rich_style, under)
        if self.find_matches is None:
            return strip
        return highlight_ranges(strip, self.find_matches(line_text(parts)), self.palette.hit)

    def mark(
        self,
        spots: Callable[[str], list[tuple[int, int]]] | None,
        words: str,
        tally: Callable[[int], str] | None,
        words_in_step: Callable[[int], str] | None,
    ) -> None:
        """Show what is searched: where it is in a line, how it was written, from the cursor's step
        how much was found, and the words around it. Nothing was found yet."""
        self.find_matches, self.searched_text, self.hits = spots, words, []
        self.tally, self.words_in_step = tally, words_in_step
        self._strips.clear()
        self.refresh()
        post_from(self, self.Moved())

    def _redraw(self) -> None:
        self._strips.clear()
        self._scrolls_itself = True
        self.virtual_size = Size(self.line_cells, self.line_count())
        self._scrolls_itself = False
        self.refresh()
        self._fill_soon()

    def show(self) -> None:
        """Measure and draw again; a new width wraps unfolded steps again."""
        if self._width != self.line_cells:
            self._width = self.line_cells
            self.cache.drop_all_wrapped()
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
                post_from(self, ActionFailed(problem))
                return

    async def _fill_rows(self, source: RolloutSource) -> bool:
        near = list(self._near(3 * self._height))
        missing = self._missing(near)
        for first, last in missing:
            rows = await source.rows(first, last)
            if source is self.source:
                self._keep(first, rows)
        if missing:
            self._strips.clear()
            self.refresh()
            # A step of which the database has no row (yet) must not be asked for for ever.
            return not self._missing(near)
        return False

    def _missing(self, near: Iterable[int]) -> list[tuple[int, int]]:
        """What to read, first and last step: whole blocks, but of few steps only these."""
        if self.folds.filtered:
            return self.cache.missing_rows(near)
        return self.cache.missing_blocks(near)

    def _keep(self, first: int, rows: list[FoldedStepRow]) -> None:
        if self.folds.filtered:
            self.cache.put_single_rows(rows)
        else:
            self.cache.put_block(first, rows)

    def _near(self, lines: int) -> Iterable[int]:
        """Rows among `lines` lines around the middle of the screen."""
        above = (lines - self._height) // 2
        return self.folds.between(max(0, round(self.scroll_y) - above), lines)

    async def _fill_steps(self, source: RolloutSource) -> bool:
        visible = self.folds.between(round(self.scroll_y), self._height)
        for row in visible:
            if self.folds.is_open(row) and self.cache.needs_wrapping(row):
                width, lines = self.line_cells, await self._wrap(source, row)
                if width != self.line_cells:
                    return True  # wrapped for a width that is gone: once more
                if source is self.source and lines:
                    self._put_wrapped_step(row, lines)
                    return True
        return False

    async def _wrap(self, source: RolloutSource, row: int) -> list[TextLine]:
        width = self.line_cells
        if row == 0:
            return step_rendering.head_lines(self.opening.instructions, self.opening.system, width)
        folded, record = self.cache.row(row), await source.record(row)
        if folded is None or record is None:
            return []
        return await asyncio.to_thread(
            step_rendering.unfolded_lines, folded, record, width, await source.annotations(row)
        )

    def _put_wrapped_step(self, row: int, lines: list[TextLine]) -> None:
        """An unfolded step was wrapped: what is below the top of the screen stays where it is."""
        self.cache.put_wrapped(row, lines)
        first, stays = round(self.scroll_y), self.folds.top(self.cursor)
        # The cursor's own line keeps its place on the screen; without it, the top line does.
        visible = first <= stays < first + self._height
        above = row < self.cursor if visible else self.folds.top(row) < first
        grown = self.folds.set_height(row, len(lines))
        self._redraw()
        if self.following:
            self._to_end()
        elif row == self._unfolding:
            self._show_unfolded(row)
        elif above and grown:
            self._scroll(round(self.scroll_y) + grown)
        self._unfolding = -1

    def _show_unfolded(self, row: int) -> None:
        """Show a row that was just unfolded; goes on following when the end is still in view."""
        self.set_cursor(row)
        if self._follows_after_unfold and self.line_count() <= round(self.scroll_y) + self._height:
            self._follow()
        self._follows_after_unfold = False

    # --- the place on the screen ----------------------------------------------------------

    @property
    def _height(self) -> int:
        return max(1, self.scrollable_content_region.height)

    def _scroll(self, line: int) -> None:
        self._scrolls_itself = True
        self.jump(line)
        self._scrolls_itself = False
        self._fill_soon()

    def _to_end(self) -> None:
        self._scroll(self.line_count() - self._height)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling by wheel or bar lets go of the end."""
        super().watch_scroll_y(old_value, new_value)
        if not self._scrolls_itself:
            # A frame that grew also scrolls, but to its end.
            if round(new_value) < min(round(old_value), round(self.max_scroll_y)):
                self._stop_following()
            self._fill_soon()

    def _follow(self) -> None:
        self.following, self._last_seen_step = True, self.steps
        post_from(self, self.Moved())

    def _stop_following(self) -> None:
        if self.following:
            self.following, self._last_seen_step = False, self.steps
            post_from(self, self.Moved())


COPY_WIDTH = 1_000_000
"""Columns of a step that is copied: more than any line has."""


class Transcript(TranscriptView):
    """The steps of a rollout; row 0 is the task, row i is step i."""

    BINDINGS = bindings_for("trajectory")

    # --- moving ------------------------------------------------------------------------------

    def set_cursor(self, number: int) -> None:
        """Stand on the row `number`; its first line, and as much of it as fits, is visible."""
        row = self.folds.nearest_shown(
            max(0, min(number, self.steps)), 1 if number > self.cursor else -1
        )
        if row != self.steps:
            self._stop_following()
        before, self.cursor = self.cursor, row
        top, height = self.folds.top(row), self._bottom(row) - self.folds.top(row)
        first = round(self.scroll_y)
        if top < first:
            self._scroll(top)
        elif top + height > first + self._height:
            self._scroll(min(top, top + height - self._height))
        self._draw_again(before, row)
        if row != before:
            post_from(self, self.Moved())

    def _draw_again(self, *numbers: int) -> None:
        """Draw rows again, not all: a key is to be cheap, also over a narrow line."""
        for number in numbers:
            top = self.folds.top(number)
            self.refresh_lines(top, self._bottom(number) - top)

    async def go_to(self, row: int, open: bool = False) -> None:
        """Jump to a row, a third down the screen; drawn once, when the rows around it were read."""
        row = max(0, min(row, self.steps))
        with self.app.batch_update():
            if self.folds.nearest_shown(row) != row:
                self.filter(None)
            if open:
                self.folds.set_open(row, True)
            if open or row != self.steps:
                self._stop_following()
            self.cursor = row
            self._scroll(self.folds.top(row) - self._height // 3)
            post_from(self, self.Moved())
            await self.settle()
            if self.folds.height(row) > 1:
                self._scroll(self.folds.top(row) - min(3, self._height // 3))
            if self.following:
                self._to_end()
            self._strips.clear()
            self.refresh()
        self.screen.check_idle()  # the end of a batch tells the app only

    def reveal_match(self, row: int) -> None:
        """Show the first line of an unfolded row in which a search found something."""
        spots = self.find_matches
        for offset, parts in enumerate(self.cache.wrapped(row) or [] if spots else []):
            if offset and spots and spots(line_text(parts)):
                break
        else:
            return
        number, first = self.folds.top(row) + offset, round(self.scroll_y)
        if not first < number < first + self._height:
            self._scroll(number - self._height // 3)

    def action_down(self) -> None:
        """Through an unfolded step line by line, then to the next."""
        if self._bottom(self.cursor) > round(self.scroll_y) + self._height:
            self._scroll(round(self.scroll_y) + 1)
        else:
            self.set_cursor(self.cursor + 1)

    def action_up(self) -> None:
        """The same upwards; into the step before from its end."""
        if self.folds.top(self.cursor) < round(self.scroll_y):
            self._stop_following()
            self._scroll(round(self.scroll_y) - 1)
        elif self.cursor:
            self._stop_following()
            before, self.cursor = self.cursor, self.folds.nearest_shown(self.cursor - 1, -1)
            last = self.folds.top(self.cursor) + self.folds.height(self.cursor) - 1
            if last < round(self.scroll_y):
                self._scroll(last)
            self._draw_again(before, self.cursor)
            post_from(self, self.Moved())

    def action_page(self, by: int) -> None:
        """A page; the cursor comes along."""
        if by < 0:
            self._stop_following()
        self._scroll(max(0, round(self.scroll_y) + by * (self._height - 1)))
        inside = round(self.scroll_y) + (0 if by < 0 else self._height - 1)
        self.cursor = self.folds.at(inside)[0]
        self.refresh()
        post_from(self, self.Moved())

    def action_top(self) -> None:
        """Go to the task (row 0)."""
        self.set_cursor(0)

    def action_follow(self) -> None:
        """Go to the newest step, and follow new ones."""
        self.cursor = self.folds.nearest_shown(self.steps, -1)
        self._follow()
        self._strips.clear()
        self._to_end()
        self.refresh()

    # --- folding -----------------------------------------------------------------------------

    def action_fold(self) -> None:
        """Unfold or fold the step at the cursor."""
        open = not self.folds.is_open(self.cursor)
        self._follows_after_unfold = open and self.following and self.cursor == self.steps
        if self.cursor != self.steps or open:
            self._stop_following()
        top = self.folds.top(self.cursor)
        self.folds.set_open(self.cursor, open)
        self._unfolding = self.cursor if open else -1
        wrapped = self.cache.wrapped(self.cursor)
        if open and wrapped is not None:
            self.folds.set_height(self.cursor, len(wrapped))
            self._show_unfolded(self.cursor)
        self._redraw()
        if top < round(self.scroll_y):
            self._scroll(top)

    def action_fold_all(self) -> None:
        """Unfold every step, or fold them all; the step at the cursor stays in view."""
        self.folds.set_all(not self.folds.all_open)
        self.cache.drop_all_wrapped()
        self._redraw()
        self._scroll(self.folds.top(self.cursor) - self._height // 3)

    # --- what a key copies --------------------------------------------------------------------

    async def text_to_copy(self) -> tuple[str, str]:
        """Everything of the step at the cursor, its lines unbroken; of row 0 the task."""
        source, row = self.source, self.cursor
        if source is None:
            return "nothing", ""
        if row == 0:
            return "the task", self.opening.instructions
        folded, record = self.cache.row(row), await source.record(row)
        if folded is None or record is None:
            return "nothing", ""
        lines = await asyncio.to_thread(step_rendering.unfolded_lines, folded, record, COPY_WIDTH)
        return f"step {row}", "\n".join(line_text(text_line).rstrip() for text_line in lines)

    # --- which steps are chosen, which are shown ------------------------------------------

    def choose(self, anchor: int) -> None:
        """Choose the steps from `anchor` to wherever the cursor goes; none with 0."""
        self._anchor = anchor
        self._strips.clear()
        self.refresh()
        post_from(self, self.Moved())

    def filter(self, steps: Iterable[int] | None) -> None:
        """Show these steps only, or all again; the one at the cursor, or the nearest, stays."""
        self.folds.show_only(None if steps is None else set(steps))
        newest = self.steps if self.following else self.cursor
        self.cursor = self.folds.nearest_shown(newest, -1 if self.following else 1)
        self._redraw()
        if self.following:
            self._to_end()
        else:
            self._scroll(self.folds.top(self.cursor) - self._height // 3)
        post_from(self, self.Moved())

    # --- what the frame says -----------------------------------------------------------------

    def position(self) -> TextLine:
        """Where the cursor is, for the frame's lower edge."""
        parts = [span(f"step {self.cursor} of {self.steps}", "dim")]
        if self._anchor:
            first, last = sorted((self._anchor, self.cursor))
            ends = f"{first}–{last}" if last > first else f"{first}"
            if self.folds.shown_rows is not None:
                ends = f"{sum(first <= row <= last for row in self.folds.shown_rows)} of {ends}"
            parts.append(span(f"   ▌ {ends} chosen", "title"))
        if self.searched_text:
            count = self.tally(self.cursor) if self.tally else ""
            only = "  only these" if self.folds.filtered else ""
            parts.append(span(f"   /{self.searched_text}  {count}{only}", "warning"))
        if self.following:
            parts.append(span("   following", "success"))
        elif self.behind:
            parts.append(span(f"   ▼ +{self.behind} step{'s' * (self.behind > 1)}", "guidance"))
        return line(*parts)
