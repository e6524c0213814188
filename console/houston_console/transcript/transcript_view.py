"""The transcript of a rollout and its keys: moving, folding, following, filtering, copying.

How steps become lines, and how they are read, is in `transcript.transcript_lines`.
"""

import asyncio
from collections.abc import Iterable

from houston_console.app.key_bindings import bindings_for
from houston_console.screens.base_screen import post_message_as
from houston_console.transcript import step_rendering
from houston_console.transcript.transcript_lines import TranscriptView
from houston_console.widgets.styled_text import TextLine, line, line_text, span
from houston_shared.times_and_counts import pluralize

COPY_WIDTH = 1_000_000
"""Columns of a step that is copied: more than any line has."""


class Transcript(TranscriptView):
    """The steps of a rollout; row 0 is the task, row i is step i."""

    BINDINGS = bindings_for("trajectory")

    # --- moving ------------------------------------------------------------------------------

    def move_cursor_to_line(self, line: int) -> None:
        """Stand on the step that the line is of."""
        if self.line_count():
            self.set_cursor(self.folds.at(line)[0])

    def set_cursor(self, number: int) -> None:
        """Stand on the row `number`; its first line, and as much of it as fits, is visible."""
        row = self.folds.nearest_shown(
            max(0, min(number, self.steps)), 1 if number > self.cursor else -1
        )
        if row != self.newest_row:
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
            post_message_as(self, self.Moved())

    def _draw_again(self, *numbers: int) -> None:
        """Draw rows again, not all: a key is to be cheap, also over a narrow line."""
        for number in numbers:
            top = self.folds.top(number)
            self.refresh_lines(top, self._bottom(number) - top)

    async def go_to(self, row: int, open: bool = False, include_equal: bool = False) -> None:
        """Jump to a row, a third down the screen; drawn once, when the rows around it were read.

        include_equal: whether the line on which it stands with its equals will do; else they are
        unfolded, so that the step itself is there.
        """
        row = max(0, min(row, self.steps))
        with self.app.batch_update():
            if self.folds.filtered and self.folds.nearest_shown(row) != row:
                self.filter(None)
            if include_equal:
                row = self.folds.extent(row)[0]
            elif self.folds.unfold_run(row):
                self._redraw()
            if open:
                self.folds.set_open(row, True)
            if open or row != self.newest_row:
                self._stop_following()
            self.cursor = row
            self._scroll(self.folds.top(row) - self._height // 3)
            post_message_as(self, self.Moved())
            await self.settle()
            if self.folds.height(row) > 1:
                self._scroll(self.folds.top(row) - min(3, self._height // 3))
            if self.following:
                self._to_end()
            if open:
                self._strips.clear()
            self.refresh()
        self.screen.check_idle()  # the end of a batch tells the app only

    def reveal_match(self, row: int) -> None:
        """Show the first line of an unfolded row in which a search found something."""
        find_spans = self.find_matches
        for offset, parts in enumerate(self.cache.wrapped(row) or [] if find_spans else []):
            if offset and find_spans and find_spans(line_text(parts)):
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
            post_message_as(self, self.Moved())

    def action_page(self, by: int) -> None:
        """A page; the cursor comes along."""
        if by < 0:
            self._stop_following()
        self._scroll(max(0, round(self.scroll_y) + by * (self._height - 1)))
        inside = round(self.scroll_y) + (0 if by < 0 else self._height - 1)
        self.cursor = self.folds.at(inside)[0]
        self.refresh()
        post_message_as(self, self.Moved())

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
        """Unfold or fold the step at the cursor, or the equal failures that are on its line."""
        if not self._unfold_run():
            self._set_open(not self.folds.is_open(self.cursor))

    def action_close(self) -> None:
        """Fold the step at the cursor; where it is folded, the equal failures it is one of."""
        if self.folds.is_open(self.cursor):
            self._set_open(False)
        else:
            self._fold_run()

    def action_open(self) -> None:
        """Unfold the equal failures on the line at the cursor; else its step."""
        if not self._unfold_run() and not self.folds.is_open(self.cursor):
            self._set_open(True)

    def _unfold_run(self) -> bool:
        """Each of the equal failures gets a line; whether there were any."""
        if not self.folds.unfold_run(self.cursor):
            return False
        self._stop_following()
        self._redraw()
        post_message_as(self, self.Moved())
        return True

    def _fold_run(self) -> None:
        """The equal failures around the cursor are one line, which stays in view."""
        first, last = self.index.equal_range(self.cursor)
        if first == last:
            return
        self.index.rejoin_run(first, last)
        self.folds.set_runs(self.index.runs)
        row = self.folds.fold_run(self.cursor)
        if row is None:
            return
        self.cursor = row
        self._redraw()
        if self.folds.top(row) < round(self.scroll_y):
            self._scroll(self.folds.top(row))
        post_message_as(self, self.Moved())

    def _set_open(self, open: bool) -> None:
        self._follows_after_unfold = open and self.following and self.cursor == self.newest_row
        if self.cursor != self.newest_row or open:
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
        self.index.rejoin_all_runs()
        self.folds.set_runs(self.index.runs)
        self.cursor = self.folds.nearest_shown(self.cursor, -1)
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
        post_message_as(self, self.Moved())

    def filter(self, steps: Iterable[int] | None) -> None:
        """Show these steps only, or all again; the one at the cursor, or the nearest, stays."""
        self.folds.show_only(None if steps is None else set(steps))
        row = self.folds.extent(self.steps if self.following else self.cursor)[0]
        self.cursor = self.folds.nearest_shown(row, -1 if self.following else 1)
        self._redraw()
        if self.following:
            self._to_end()
        else:
            self._scroll(self.folds.top(self.cursor) - self._height // 3)
        post_message_as(self, self.Moved())

    # --- what the frame says -----------------------------------------------------------------

    def position(self) -> TextLine:
        """Where the cursor is, for the frame's lower edge."""
        begin, end = self.folds.extent(self.cursor)
        place = f"steps {begin}–{end}" if end > begin else f"step {begin}"
        parts = [span(f"{place} of {self.steps}", "dim")]
        if self._anchor:
            first, last = self.chosen_range(self._anchor)
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
            parts.append(span(f"   ▼ +{pluralize(self.behind, 'step')}", "guidance"))
        return line(*parts)
