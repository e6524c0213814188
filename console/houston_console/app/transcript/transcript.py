"""Moving in a trajectory, and folding its steps: the keys of the transcript."""

import asyncio
from collections.abc import Iterable

from houston_console.app.drawing.lines import Line, line, plain, span
from houston_console.app.keys import bindings
from houston_console.app.messages import say
from houston_console.app.transcript import rows
from houston_console.app.transcript.view import TranscriptView

UNBROKEN = 1_000_000
"""Columns of a step that is copied: more than any line has."""


class Transcript(TranscriptView):
    """The steps of a rollout; row 0 is the task, row i is step i."""

    BINDINGS = bindings("trajectory")

    # --- moving ------------------------------------------------------------------------------

    def put_cursor(self, number: int) -> None:
        """Stand on the row `number`; its first line, and as much of it as fits, is visible."""
        row = self.folds.shown(max(0, min(number, self.steps)), 1 if number > self.cursor else -1)
        if row != self.steps:
            self._let_go()
        before, self.cursor = self.cursor, row
        top, height = self.folds.top(row), self._bottom(row) - self.folds.top(row)
        first = round(self.scroll_y)
        if top < first:
            self._scroll(top)
        elif top + height > first + self._height:
            self._scroll(min(top, top + height - self._height))
        self._draw_again(before, row)
        if row != before:
            say(self, self.Moved())

    def _draw_again(self, *numbers: int) -> None:
        """Draw rows again, not all: a key is to be cheap, also over a narrow line."""
        for number in numbers:
            top = self.folds.top(number)
            self.refresh_lines(top, self._bottom(number) - top)

    async def go_to(self, row: int, open: bool = False) -> None:
        """Jump to a row, a third down the screen; drawn once, when the rows around it were read."""
        row = max(0, min(row, self.steps))
        with self.app.batch_update():
            if self.folds.shown(row) != row:
                self.filter(None)
            if open:
                self.folds.set_open(row, True)
            if open or row != self.steps:
                self._let_go()
            self.cursor = row
            self._scroll(self.folds.top(row) - self._height // 3)
            say(self, self.Moved())
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
        spots = self.spots
        for offset, parts in enumerate(self.pages.wrapped(row) or [] if spots else []):
            if offset and spots and spots(plain(parts)):
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
            self.put_cursor(self.cursor + 1)

    def action_up(self) -> None:
        """The same upwards; into the step before from its end."""
        if self.folds.top(self.cursor) < round(self.scroll_y):
            self._let_go()
            self._scroll(round(self.scroll_y) - 1)
        elif self.cursor:
            self._let_go()
            before, self.cursor = self.cursor, self.folds.shown(self.cursor - 1, -1)
            last = self.folds.top(self.cursor) + self.folds.height(self.cursor) - 1
            if last < round(self.scroll_y):
                self._scroll(last)
            self._draw_again(before, self.cursor)
            say(self, self.Moved())

    def action_page(self, by: int) -> None:
        """A page; the cursor comes along."""
        if by < 0:
            self._let_go()
        self._scroll(max(0, round(self.scroll_y) + by * (self._height - 1)))
        inside = round(self.scroll_y) + (0 if by < 0 else self._height - 1)
        self.cursor = self.folds.at(inside)[0]
        self.refresh()
        say(self, self.Moved())

    def action_top(self) -> None:
        """The task."""
        self.put_cursor(0)

    def action_follow(self) -> None:
        """The newest step, and stay with it."""
        self.cursor = self.folds.shown(self.steps, -1)
        self._follow()
        self._strips.clear()
        self._to_end()
        self.refresh()

    # --- folding -----------------------------------------------------------------------------

    def action_fold(self) -> None:
        """Unfold or fold the step at the cursor."""
        open = not self.folds.is_open(self.cursor)
        self._held_end = open and self.following and self.cursor == self.steps
        if self.cursor != self.steps or open:
            self._let_go()
        top = self.folds.top(self.cursor)
        self.folds.set_open(self.cursor, open)
        self._unfolding = self.cursor if open else -1
        wrapped = self.pages.wrapped(self.cursor)
        if open and wrapped is not None:
            self.folds.measured(self.cursor, len(wrapped))
            self._unfolded(self.cursor)
        self._redraw()
        if top < round(self.scroll_y):
            self._scroll(top)

    def action_fold_all(self) -> None:
        """Unfold every step, or fold them all; the step at the cursor stays in view."""
        self.folds.set_all(not self.folds.all_open)
        self.pages.drop_all_wrapped()
        self._redraw()
        self._scroll(self.folds.top(self.cursor) - self._height // 3)

    # --- what a key copies --------------------------------------------------------------------

    async def copied(self) -> tuple[str, str]:
        """Everything of the step at the cursor, its lines unbroken; of row 0 the task."""
        source, row = self.source, self.cursor
        if source is None:
            return "nothing", ""
        if row == 0:
            return "the task", self.opening.instructions
        found, record = self.pages.row(row), await source.record(row)
        if found is None or record is None:
            return "nothing", ""
        lines = await asyncio.to_thread(rows.unfolded, found, record, UNBROKEN)
        return f"step {row}", "\n".join(plain(one).rstrip() for one in lines)

    # --- which steps are chosen, which are shown ------------------------------------------

    def choose(self, anchor: int) -> None:
        """Choose the steps from `anchor` to wherever the cursor goes; none with 0."""
        self._anchor = anchor
        self._strips.clear()
        self.refresh()
        say(self, self.Moved())

    def filter(self, steps: Iterable[int] | None) -> None:
        """Show these steps only, or all again; the one at the cursor, or the nearest, stays."""
        self.folds.only(None if steps is None else set(steps))
        newest = self.steps if self.following else self.cursor
        self.cursor = self.folds.shown(newest, -1 if self.following else 1)
        self._redraw()
        if self.following:
            self._to_end()
        else:
            self._scroll(self.folds.top(self.cursor) - self._height // 3)
        say(self, self.Moved())

    # --- what the frame says -----------------------------------------------------------------

    def position(self) -> Line:
        """Where the cursor is, for the frame's lower edge."""
        parts = [span(f"step {self.cursor} of {self.steps}", "dim")]
        if self._anchor:
            first, last = sorted((self._anchor, self.cursor))
            ends = f"{first}–{last}" if last > first else f"{first}"
            if self.folds.those is not None:
                ends = f"{sum(first <= one <= last for one in self.folds.those)} of {ends}"
            parts.append(span(f"   ▌ {ends} chosen", "title"))
        if self.words:
            count = self.tally(self.cursor) if self.tally else ""
            only = "  only these" if self.folds.filtered else ""
            parts.append(span(f"   /{self.words}  {count}{only}", "warning"))
        if self.following:
            parts.append(span("   following", "success"))
        elif self.behind:
            parts.append(span(f"   ▼ +{self.behind} step{'s' * (self.behind > 1)}", "guidance"))
        return line(*parts)
