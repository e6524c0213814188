"""All steps of a rollout as lines that are drawn: one virtual widget, never a widget per step.

Draws, asks its source in the background for what is missing, puts equal failures on one line as
the index finds them, and keeps the place on the screen while heights change. The keys are in
`transcript.transcript_view`, where rows come from is `transcript.trajectory_reader`.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any

from rich.style import Style
from textual.cache import LRUCache
from textual.message import Message
from textual.strip import Strip

from houston_console.screens.base_screen import ActionFailed, post_message_as
from houston_console.transcript import step_rendering
from houston_console.transcript.rollout_gutter import RolloutGutter
from houston_console.transcript.step_index import FIRST_INDEX_STEPS, Run, StepIndex, StepIndexer
from houston_console.transcript.trajectory_reader import (
    FoldedStepRow,
    FoldMarks,
    RolloutSource,
    TrajectoryOpening,
)
from houston_console.transcript.transcript_layout import FoldState, TranscriptCache
from houston_console.widgets.line_view import LineView, highlight_ranges
from houston_console.widgets.styled_text import (
    TextLine,
    Tone,
    line_text,
    span,
    text_block,
    with_cursor,
)
from houston_shared.errors import HoustonError

MAX_CACHED_STRIPS = 4_000
"""Drawn lines kept: many screens."""
INDEX_PAUSE_SECONDS = 0.1
"""Before each further part of the index: what is on the screen and keys come first."""
EndingText = tuple[str, Tone]
StripKey = tuple[int, int, int, bool, bool, bool]
"""Row, line in it, width; whether the cursor is there, the focus, and a verdict to be."""


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
        self._strips: LRUCache[StripKey, Strip] = LRUCache(MAX_CACHED_STRIPS)
        self._filling: asyncio.Task[None] | None = None
        self._prefetching: asyncio.Task[None] | None = None
        self._unfolding = -1
        self._follows_after_unfold = False
        """Whether the row that is being unfolded was the newest and followed."""
        self._ending: EndingText = ("", "text")
        self._anchor = 0
        self.overview = RolloutGutter(id="gutter")
        """The whole rollout in one column, beside this."""
        self._indexer: StepIndexer | None = None
        self._indexing: asyncio.Task[None] | None = None
        self._fold_marks: dict[int, FoldMarks] = {}
        """What stands beside the steps of runs that were drawn, by the run's first step."""
        self._read_marks: set[Run] = set()
        """Runs of which that is new."""

    # --- what is shown -----------------------------------------------------------------------

    def clear(self) -> None:
        """Show nothing: another rollout is about to be read."""
        self.source, self.folds, self.cache = None, FoldState(1), TranscriptCache()
        self.opening = TrajectoryOpening("", "", "")
        self.cursor, self._ending, self._anchor = 0, ("", "text"), 0
        self.searched_text, self.find_matches, self.hits = "", None, []
        self._end_indexing()
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
        await self._begin_indexing(source, steps)
        if self.source is not source:
            return
        self._redraw()
        self._to_end()
        await self.settle()
        post_message_as(self, self.Moved())

    async def refresh_steps(self, touched: list[int], steps: int) -> None:
        """Steps were added or have new events; what will be visible of them is read first."""
        source, near = self.source, set(self._rows_near_middle(self._height))
        end_was_visible = round(self.scroll_y) + self._height > self.folds.total
        self.cache.mark_stale(touched)
        self._drop_fold_marks(touched)
        if self.following:
            near.update(range(max(1, steps - self._height), steps + 1))
        if source is not None:
            await self._read_missing(source, near)
        if source is not self.source:
            return
        self.folds.grow(steps + 1)
        await self._index_changes(touched, steps)
        if source is not self.source:
            return
        if self.following:
            self.cursor = self.folds.nearest_shown(steps, -1)
            self._last_seen_step = steps
        self._measure()
        if self.following or end_was_visible:
            self.refresh()
        else:
            for row in near.intersection(touched):
                self.refresh_lines(self.folds.top(row), self.folds.height(row))
        if self.following:
            self._to_end()
        post_message_as(self, self.Moved())

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
    def newest_row(self) -> int:
        """The row on whose line the newest step is."""
        return self.folds.extent(self.steps)[0]

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
        return self.line_count() if row == self.newest_row else bottom

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
        if (run := self.folds.run_at(row)) is not None:
            marks = self._fold_marks.get(run[0])
            parts = step_rendering.fold_line(folded, run[1], marks, self.line_cells)
            return step_rendering.with_chosen_bar(parts) if self.is_chosen(row) else parts
        words = self.words_in_step(row) if self.folds.filtered and self.words_in_step else ""
        is_open = self.folds.is_open(row)
        parts = step_rendering.folded_line(folded, self.line_cells, is_open, words)
        return step_rendering.with_chosen_bar(parts) if self.is_chosen(row) else parts

    def is_chosen(self, row: int) -> bool:
        """Whether a verdict would be on it: between where choosing began and the cursor."""
        if not self._anchor:
            return False
        first, last = self.chosen_range(self._anchor)
        return first <= row <= last

    def chosen_range(self, anchor: int) -> Run:
        """First and last step from a row to the cursor's, all steps on both lines included."""
        low, high = sorted((anchor or self.cursor, self.cursor))
        return self.folds.extent(low)[0], self.folds.extent(high)[1]

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
            if row == 0 or self._is_read(row):
                self._strips[key] = strip
            else:
                self._fill_soon()
        return self.with_selection(strip, number)

    def _draw_line(self, parts: TextLine, cursor: bool) -> Strip:
        under: Style | None = None
        if cursor:
            under = self.palette.cursor if self.has_focus else self.palette.cursor_away
            parts = with_cursor(parts, self.has_focus)
        strip = self.palette.strip(parts, self.size.width, self.base_style, under)
        if self.find_matches is None:
            return strip
        return highlight_ranges(strip, self.find_matches(line_text(parts)), self.palette.hit)

    def mark(
        self,
        find_spans: Callable[[str], list[tuple[int, int]]] | None,
        words: str,
        tally: Callable[[int], str] | None,
        words_in_step: Callable[[int], str] | None,
    ) -> None:
        """Show what is searched: where it is in a line, how it was written, from the cursor's step
        how much was found, and the words around it. Nothing was found yet."""
        self.find_matches, self.searched_text, self.hits = find_spans, words, []
        self.tally, self.words_in_step = tally, words_in_step
        self._strips.clear()
        self.refresh()
        post_message_as(self, self.Moved())

    def _redraw(self) -> None:
        self._strips.clear()
        self._measure()
        self.refresh()

    def _measure(self) -> None:
        """There are more lines, or others; what of them is visible is drawn by who calls this."""
        self._scrolls_itself = True
        self.measure()
        self._scrolls_itself = False
        self._show_in_gutter()
        self._fill_soon()

    def _drop_strips(self, rows: Iterable[int]) -> None:
        """What was drawn of these rows, or of equal failures with one of them, is drawn anew."""
        dropped = {self.folds.extent(row)[0] for row in rows}.union(rows)
        drawn = self._strips.keys()
        for key in [key for key in drawn if key[0] in dropped]:
            self._strips.discard(key)

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
        """Read what is visible until nothing is missing; then, beside all else, what is near."""
        source = self.source
        while source is not None and source is self.source:
            await asyncio.sleep(0)
            try:
                if not (
                    await self._fill_rows(source)
                    or await self._fill_steps(source)
                    or await self._fill_marks(source)
                ):
                    break
            except HoustonError as problem:
                post_message_as(self, ActionFailed(problem))
                return
        if source is not None and (self._prefetching is None or self._prefetching.done()):
            self._prefetching = asyncio.create_task(self._prefetch(source))

    async def _fill_rows(self, source: RolloutSource) -> bool:
        visible = list(self._rows_near_middle(self._height))
        if await self._read_missing(source, visible):
            self.refresh()
            # A step of which the database has no row (yet) must not be asked for for ever.
            return not self._missing(visible)
        return False

    async def _prefetch(self, source: RolloutSource) -> None:
        """Read a screen either side of what is visible, so that scrolling waits for nothing."""
        first = round(self.scroll_y)
        try:
            was_missing = await self._read_missing(source, self._rows_near_middle(3 * self._height))
        except HoustonError as problem:
            post_message_as(self, ActionFailed(problem))
            return
        if was_missing and round(self.scroll_y) != first:
            self.refresh()  # some of it was drawn meanwhile, as being read

    async def _read_missing(self, source: RolloutSource, near: Iterable[int]) -> bool:
        """Whether something of these steps was missing, or is newer than what was read."""
        missing = self._missing(near)
        for first, last in missing:
            rows = await source.rows(first, last)
            if source is self.source:
                self._cache_rows(first, rows)
        return bool(missing)

    def _missing(self, near: Iterable[int]) -> list[tuple[int, int]]:
        """What to read, first and last step: whole blocks, but of few steps only these."""
        if self.folds.filtered:
            return self.cache.missing_rows(near)
        return self.cache.missing_blocks(near)

    def _cache_rows(self, first: int, rows: list[FoldedStepRow]) -> None:
        self._drop_strips([row.step for row in rows if row != self.cache.row(row.step)])
        if self.folds.filtered:
            self.cache.put_single_rows(rows)
        else:
            self.cache.put_block(first, rows)

    def _rows_near_middle(self, lines: int) -> Iterable[int]:
        """Rows among `lines` lines around the middle of the screen."""
        above = (lines - self._height) // 2
        return self.folds.between(max(0, round(self.scroll_y) - above), lines)

    async def _fill_steps(self, source: RolloutSource) -> bool:
        for row in list(self.folds.between(round(self.scroll_y), self._height)):
            if (
                self.folds.is_open(row)
                and self.folds.run_at(row) is None
                and self.cache.needs_wrapping(row)
            ):
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

    async def _fill_marks(self, source: RolloutSource) -> bool:
        """What stands beside the steps of the runs that are visible."""
        if not self.folds.has_lines_of_several:
            return False
        for row in list(self.folds.between(round(self.scroll_y), self._height)):
            run = self.folds.run_at(row)
            if run is not None and run not in self._read_marks:
                marks = await source.fold_marks(*run)
                if source is self.source:
                    self._read_marks.add(run)
                    if self._fold_marks.get(row) != marks:
                        self._fold_marks[row] = marks
                        self._drop_strips([row])
                        self.refresh()
                return True
        return False

    def _is_read(self, row: int) -> bool:
        """Whether all that a folded line says is here."""
        run = self.folds.run_at(row)
        return self.cache.row(row) is not None and (run is None or run[0] in self._fold_marks)

    # --- equal failures ----------------------------------------------------------------------

    @property
    def index(self) -> StepIndex:
        """What is known of all steps."""
        return self._indexer.index if self._indexer else StepIndex()

    def on_unmount(self) -> None:
        """Read nothing more."""
        self._end_indexing()

    def _end_indexing(self) -> None:
        if self._indexing is not None:
            self._indexing.cancel()
        self._indexer = self._indexing = None
        self._fold_marks, self._read_marks = {}, set()

    async def _begin_indexing(self, source: RolloutSource, steps: int) -> None:
        """Read the index of the end at once, of all before it in the background."""
        self._end_indexing()
        self._indexer = indexer = StepIndexer(source, steps, self._stands_alone)
        await indexer.read_part(FIRST_INDEX_STEPS)
        if self._indexer is indexer:
            self.folds.set_runs(indexer.index.runs)
            self.cursor = self.folds.nearest_shown(self.cursor, -1)
            self._indexing = asyncio.create_task(self._index_rest(indexer))

    async def _index_rest(self, indexer: StepIndexer) -> None:
        try:
            while not indexer.complete:
                await asyncio.sleep(INDEX_PAUSE_SECONDS)
                await indexer.read_part()
                if self._indexer is not indexer:
                    return
                self._take_runs(indexer.index)
        except HoustonError as problem:
            post_message_as(self, ActionFailed(problem))

    async def _index_changes(self, touched: list[int], steps: int) -> None:
        indexer = self._indexer
        if indexer is not None:
            await indexer.read_changes(touched, steps)
            if self._indexer is indexer:
                self._take_runs(indexer.index)

    def _stands_alone(self, step: int) -> bool:
        """Whether a failed step keeps its line though it equals another: it is being looked at."""
        opened = self.folds.is_open(step) and not self.folds.all_open
        return opened or (not self.following and step == self.cursor)

    def _take_runs(self, index: StepIndex) -> None:
        """Put equal failures on one line; what is looked at stays where it is on the screen."""
        if self.folds.has_runs(index.runs):
            self._show_in_gutter()
            return
        first = round(self.scroll_y)
        top_row, offset = self.folds.at(first)
        cursor_line = self.folds.top(self.cursor) - first
        self.folds.set_runs(index.runs)
        self.cursor = self.folds.nearest_shown(self.cursor, -1)
        self._redraw()
        if self.following:
            self._to_end()
        elif 0 <= cursor_line < self._height:
            self._scroll(self.folds.top(self.cursor) - cursor_line)
        else:
            self._scroll(self.folds.top(self.folds.nearest_shown(top_row, -1)) + offset)

    def _drop_fold_marks(self, touched: list[int]) -> None:
        """These steps, in order, have new events: perhaps verdicts or notes."""
        for first, last in list(self._read_marks):
            at = bisect_left(touched, first)
            if at < len(touched) and touched[at] <= last:
                self._read_marks.discard((first, last))

    def _show_in_gutter(self) -> None:
        """Show what is known of the whole, and which steps are on the screen."""
        first = round(self.scroll_y)
        last = self.folds.at(first + self._height - 1)[0]
        view = (self.folds.at(first)[0], self.folds.extent(last)[1])
        self.overview.show_whole(self.index, self.steps, view)

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
        self._show_in_gutter()
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
            self._show_in_gutter()
            self._fill_soon()

    def _follow(self) -> None:
        self.following, self._last_seen_step = True, self.steps
        post_message_as(self, self.Moved())

    def _stop_following(self) -> None:
        if self.following:
            self.following, self._last_seen_step = False, self.steps
            post_message_as(self, self.Moved())
