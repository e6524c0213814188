"""The list of the home screen: drawn line by line, whatever its length; the cursor stays put."""

from typing import Any

from rich.style import Style
from textual.message import Message

from houston_console.app.drawing.line_view import LineView
from houston_console.app.drawing.lines import UNREAD, Line
from houston_console.app.home.lines import ONE_LINE, Shown, View, rollout_lines, task_line
from houston_console.app.messages import say
from houston_console.app.rollouts.order import Order, Row
from houston_shared.task import Budget


class HomeList(LineView):
    """Rollouts, each in one line or two, and the tasks above them where they are grouped."""

    class Moved(Message):
        """The cursor is on another rollout."""

    class Opened(Message):
        """A click: open the rollout at the cursor."""

    def __init__(self, me: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.me = me
        self.rows: list[Row] = []
        self.budgets: dict[str, Budget] = {}
        self.marks: tuple[str, ...] = ()
        self.now = 0
        self.empty = UNREAD
        self.order = Order()
        self._lines: list[tuple[int, int]] = []
        """(row, line of it) for every line."""
        self._high = 2
        """Lines of a rollout, as `_lines` were measured: the size may be another one by now."""
        self._numbers: list[int] = []
        """Of each row its place among the rollouts, from 1."""
        self._shown: list[Line] = []
        self._made: dict[int, list[Line]] = {}
        """Lines of rows, for as long as nothing changes."""

    # --- lines -------------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """What the lines are made for."""
        return View(self.me, self.now, self.room, self._high)

    def line_count(self) -> int:
        """Of all rows."""
        return len(self._lines)

    def line_at(self, number: int) -> Line:
        """One of them."""
        at, offset = self._lines[number]
        made = self._made.get(at)
        if made is None:
            made = self._made[at] = self._row_lines(at)
        return made[offset]

    def _row_lines(self, at: int) -> list[Line]:
        row = self.rows[at]
        if row.need is None:
            ones = [one.need for one in self.rows if one.task == row.task and one.need]
            return [task_line(row.task, ones, self.room)]
        return rollout_lines(self._as_shown(at), self.view)

    def _as_shown(self, at: int) -> Shown:
        row = self.rows[at]
        assert row.need is not None
        number, marked = self._numbers[at], row.id in self.marks
        budget = self.budgets.get(row.id) or Budget()
        return Shown(number, row.need, budget, marked, self.rows[0].need is None)

    def selectable(self, number: int) -> bool:
        """First lines of rollouts."""
        at, offset = self._lines[number]
        return not offset and self.rows[at].need is not None

    def _under(self, number: int) -> Style | None:
        """Both lines of the rollout at the cursor."""
        if self._lines[number][0] == self._row_at_cursor:
            return super()._under(self.cursor)
        return None

    def draw_ground(self, number: int) -> None:
        """All lines of the rollout."""
        self.refresh_lines(number, self._high)

    def _measure(self) -> None:
        self._made.clear()
        fits = 2 * len(self.rows) <= self.size.height
        self._high = 1 if self.room >= ONE_LINE and not fits else 2
        self._lines = [
            (at, offset)
            for at, row in enumerate(self.rows)
            for offset in range(self._high if row.need else 1)
        ]
        self._numbers, count = [], 0
        for row in self.rows:
            count += row.need is not None
            self._numbers.append(count)

    # --- the rollout at the cursor -----------------------------------------------------------

    @property
    def _row_at_cursor(self) -> int:
        return self._lines[self.cursor][0] if self.cursor < len(self._lines) else -1

    @property
    def under_cursor(self) -> Shown | None:
        """The rollout at the cursor."""
        at = self._row_at_cursor
        return self._as_shown(at) if at >= 0 and self.rows[at].need else None

    @property
    def chosen(self) -> str:
        """Its id; empty where there is none."""
        under = self.under_cursor
        return under.need.standing.rollout.id if under else ""

    def line_of(self, rollout: str) -> int | None:
        """Where a rollout begins."""
        ids = (
            number
            for number, (at, offset) in enumerate(self._lines)
            if not offset and self.rows[at].id == rollout
        )
        return next(ids, None) if rollout else None

    def go_to_number(self, number: int) -> None:
        """Stand on the rollout at a place, counted from 1."""
        places = enumerate(zip(self.rows, self._numbers, strict=True))
        found = (at for at, (row, place) in places if row.need and place == number)
        for at in found:
            self.put_cursor(self._lines.index((at, 0)))

    def moved(self) -> None:
        """Tell that another rollout is at the cursor."""
        say(self, self.Moved())

    def reveal(self, target: int) -> None:
        """All lines of the rollout; from the first one also what is above it."""
        super().reveal(target + self._high - 1)
        super().reveal(0 if target <= 1 else target)

    # --- what changed ------------------------------------------------------------------------

    def take(self, rows: list[Row], now: int, at: str = "") -> None:
        """Show these rows; the cursor stays on its rollout, and that on its line of the screen.

        at: the rollout to stand on, if not the one that is under the cursor.
        """
        keep, line_before = at or self.chosen, self.cursor
        self.rows, self.now = rows, now
        self._measure()
        found = self.line_of(keep)
        if found is None:
            self.cursor = min(line_before, max(0, len(self._lines) - 1))
        elif found != line_before:
            self.cursor = found
            if not at:
                self.jump(round(self.scroll_y) + found - line_before)
        if self._lines:
            self.put_cursor(self.cursor)
        self.draw_changed()

    def draw_changed(self) -> None:
        """Draw again when a line on the screen says something else."""
        self._made.clear()
        first = round(self.scroll_y)
        shown = range(first, min(self.line_count(), first + self.size.height))
        looks = [self.line_at(number) for number in shown]
        if looks != self._shown or self.virtual_size.height != self.line_count():
            self._shown = looks
            self.show()

    def show(self) -> None:
        """Measured again: the width decides how many lines a rollout takes."""
        found = self.chosen
        self._measure()
        place = self.line_of(found)
        self.cursor = min(self.cursor, max(0, len(self._lines) - 1)) if place is None else place
        super().show()

    def touched(self) -> None:
        """Nothing changes the order for some seconds."""
        self.order.reading.touched()

    def on_click(self, event: Any) -> None:
        """A click on the rollout at the cursor opens it; on another, it goes there."""
        event.prevent_default()  # the list's own, which knows of no second lines
        at = round(self.scroll_y) + event.get_content_offset_capture(self).y
        if at >= len(self._lines):
            return
        row, before = self._lines[at][0], self.chosen
        self.put_cursor(self._lines.index((row, 0)))
        if before and before == self.rows[row].id:
            say(self, self.Opened())
