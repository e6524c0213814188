"""The list of the home screen: rollouts in one or two lines each, and folds of what has ended.

Renders names, needs, actions and people beside the columns of `screens.home_columns`; the widget
keeps the cursor where it is while the list changes. Filtering, marking, unfolding and opening are
in `screens.home_screen`.
"""

from collections.abc import Sequence
from typing import Any

from rich.style import Style
from textual import events
from textual.message import Message

from houston_console.app.console_state import NOTHING_SPENT, RolloutSpending
from houston_console.app.key_bindings import actions_by_key
from houston_console.commands.rollout_summary import is_settled
from houston_console.screens.base_screen import post_message_as
from houston_console.screens.home_columns import (
    HomeEntry,
    HomeViewContext,
    best_only_cells,
    column_cells,
    column_head_line,
    columns_width,
)
from houston_console.screens.job_lines import job_summary
from houston_console.screens.rollout_lists import (
    STATE_GLYPHS,
    ListOrder,
    ListRow,
    handover_note,
    is_unseen,
    name_within_task,
    other_viewers,
    own_note,
    person_name,
    rollout_state_text,
    urgency_mark,
)
from houston_console.widgets.line_view import LineView
from houston_console.widgets.styled_text import (
    LOADING_LINE,
    TextLine,
    TextSpan,
    Tone,
    fit_name,
    fit_text,
    justify_line,
    line,
    line_width,
    span,
)
from houston_shared.safe_text import SafeText
from houston_shared.store.attention_ranking import RolloutNeed
from houston_shared.task import BudgetSettings
from houston_shared.times_and_counts import pluralize

FOLDED_GLYPH, UNFOLDED_GLYPH = "▸", "▾"
UNSEEN_GLYPH = "•"
"""Before a rollout that has ended, asks for nobody, and was looked at by nobody since."""
ONE_LINE_MIN_COLUMNS = 180
"""Columns from which a rollout takes one line, where two for each do not fit."""
REASON_INLINE_MIN_COLUMNS = 130
"""Columns from which the reason stands beside the name, in the first line of two."""
MIN_REASON_CELLS = 24
"""Cells that it then has at least."""
MIN_STATE_CELLS = 10
"""Cells from which the state of a settled rollout is said, beside its glyph."""
NAME_CELLS = 24
"""Cells of a name with the reason beside it; else it has what the columns leave."""
MIN_NAME_CELLS, MAX_NAME_CELLS = 20, 34
NAME_EDGE_CELLS = 9
"""Cells around a name: mark, number, state, and the gap behind it."""
PEOPLE_CELLS = 26
"""Cells of who looks, in one line."""


def is_inline(view: HomeViewContext) -> bool:
    """Whether the reason stands beside the name."""
    return view.lines == 1 or view.width >= REASON_INLINE_MIN_COLUMNS


def first_line_columns(view: HomeViewContext) -> tuple[str, ...]:
    """Columns of the first line of a rollout: what its name and a reason beside it leave."""
    name = NAME_CELLS if is_inline(view) else MIN_NAME_CELLS
    return view.columns(_room_beside_reason(view) - name)


def name_cells(view: HomeViewContext) -> int:
    """Cells of a name: all that the columns leave, where no reason stands beside it."""
    if is_inline(view):
        return NAME_CELLS
    room = _room_beside_reason(view) - columns_width(first_line_columns(view))
    return max(MIN_NAME_CELLS, min(MAX_NAME_CELLS, room))


def _room_beside_reason(view: HomeViewContext) -> int:
    """Cells for the name and the columns."""
    people = PEOPLE_CELLS if view.lines == 1 else 0
    return view.width - NAME_EDGE_CELLS - people - (MIN_REASON_CELLS if is_inline(view) else 0)


def column_heads(view: HomeViewContext) -> TextLine:
    """What stands above the list: names of the columns."""
    words = "why it needs somebody" if is_inline(view) else ""
    left = line(span(f"       {'rollout':<{name_cells(view) + 2}}{words}".rstrip(), "faint"))
    right = column_head_line(first_line_columns(view))
    if view.lines == 1:
        right = (*right, span(f"{'who is there':<{PEOPLE_CELLS}}", "faint"))
    return justify_line(left, right, view.width)


def task_line(task: str, needs_shown: Sequence[RolloutNeed], width: int) -> TextLine:
    """A task above its rollouts."""
    needy = sum(need.weight > 0 for need in needs_shown)
    tail = f", {needy} need{'s' * (needy == 1)} somebody" if needy else ""
    count = f"{pluralize(len(needs_shown), 'rollout')}{tail} "
    return justify_line(line(span(" "), span(task, "title")), line(span(count, "faint")), width)


def fold_line(row: ListRow, view: HomeViewContext) -> TextLine:
    """What has ended of a task: how many, how many nobody has looked at, and the best score."""
    scores = [need.overview.rollout.best_score for need in row.ended]
    best = max((score for score in scores if score is not None), default=None)
    unseen = sum(map(is_unseen, row.ended))
    glyph = UNFOLDED_GLYPH if row.is_open else FOLDED_GLYPH
    fold_label = line(
        span("     "),
        span(f"{glyph} ", "title" if row.is_open else "dim"),
        span(row.task, "strong"),
        span(f"  {len(row.ended)} ended", "dim"),
        span(f"  {UNSEEN_GLYPH} {unseen} unseen" if unseen else "", "warning"),
    )
    return justify_line(fold_label, best_only_cells(first_line_columns(view), best), view.width)


def settled_line(entry: HomeEntry, view: HomeViewContext) -> TextLine:
    """One line for a rollout that has ended and asks for nobody."""
    rollout = entry.need.overview.rollout
    name = _name_cells(entry, name_cells(view))
    right = column_cells(first_line_columns(view), entry)
    if view.lines == 1:
        right = (*right, *_pad_line(_people_cells(entry.need, view), PEOPLE_CELLS))
    room = view.width - line_width(name) - line_width(right)
    state_span = span(rollout_state_text(rollout) if room >= MIN_STATE_CELLS else "", "dim")
    return justify_line((*name, state_span), right, view.width)


def rollout_lines(entry: HomeEntry, view: HomeViewContext) -> list[TextLine]:
    """A rollout in as many lines as `HomeViewContext.lines` says."""
    jobs, action = job_summary(entry.need.overview, view.now_us), _activity_text(entry.need)
    figures = column_cells(first_line_columns(view), entry)
    name = _name_cells(entry, name_cells(view))
    if view.lines == 1:
        right = (*figures, *_pad_line(_people_cells(entry.need, view), PEOPLE_CELLS))
        half = (view.width - line_width(right) - line_width(name)) * 3 // 5
        reason_span = span(f"{fit_text(_need_text(entry.need), half)}  ", _need_tone(entry.need))
        left = (*name, reason_span, *jobs, *action)
        return [justify_line(left, right, view.width)]
    people, pad = _people_cells(entry.need, view), span("       ")
    reason = span(_need_text(entry.need), _need_tone(entry.need))
    if is_inline(view):
        first, second = (*name, reason), (pad, *jobs, *action)
    else:
        gap = span(" · " if reason.text and action else "")
        first, second = name, (pad, *jobs, reason, gap, *action)
    return [
        justify_line(first, figures, view.width),
        justify_line(second, people, view.width),
    ]


def _name_cells(entry: HomeEntry, width: int) -> TextLine:
    rollout = entry.need.overview.rollout
    glyph, tone = STATE_GLYPHS.get(rollout.state, ("?", "dim"))
    name = name_within_task(rollout.id, rollout.task) if entry.under_task else rollout.id
    mark = span("×", "guidance") if entry.marked else urgency_mark(entry.need)
    if is_settled(entry.need) and is_unseen(entry.need) and not entry.marked:
        mark = span(UNSEEN_GLYPH, "warning")
    number = span(f"{entry.number:>3} ", "number")
    return line(
        mark, number, span(f"{glyph} ", tone), span(fit_name(name, width), "strong"), span("  ")
    )


def _need_text(need: RolloutNeed) -> str:
    if need.reasons:
        return need.text
    rollout = need.overview.rollout
    return rollout_state_text(rollout) if rollout.state != "running" else ""


def _need_tone(need: RolloutNeed) -> Tone:
    mark: Tone = urgency_mark(need).tone
    return mark if need.weight else "dim"


def _activity_text(need: RolloutNeed) -> TextLine:
    """What it does now, or did last."""
    acted, rollout = need.overview.acted, need.overview.rollout
    if acted is None:
        return ()
    now = rollout.activity if rollout.state == "running" else ""
    if acted.text.startswith(now) or now in need.text:  # it is said already
        return line(span(acted.text, "dim"))
    return line(span(f"{now}: ", "tool"), span(acted.text, "dim"))


def _people_cells(need: RolloutNeed, view: HomeViewContext) -> TextLine:
    overview, parts = need.overview, []
    for look in other_viewers(overview, view.person):
        parts.append(span(f"◉{person_name(look.name, look.verified, view.person)} ", "tool"))
    if overview.holding is not None and overview.holding.holder:
        holder = person_name(overview.holding.holder, overview.holding.verified, view.person)
        parts.append(span(f"☞{holder} ", "guidance"))
    if handover_note(overview.holding, view.person):
        parts.append(span("✉ ", "guidance"))
    if mine := own_note(overview.holding, view.person):
        parts.append(span(f"✉{mine.note_to or 'anybody'} ", "guidance"))
        parts.append(span("read " if mine.read_by else "unread ", "dim"))
    return line(*parts)


def _pad_line(parts: TextLine, width: int) -> TextLine:
    """Exactly `width` cells."""
    room, spans = width, []
    for part in parts:
        cells = min(room, line_width((part,)))
        spans.append(TextSpan(fit_text(part.text, cells), part.tone))
        room -= cells
    return (*spans, TextSpan(SafeText(" " * room)))


def home_summary(
    needs: Sequence[RolloutNeed], at_home: Sequence[str], person: str, visible: bool = True
) -> TextLine:
    """The lower edge of the frame: how many need somebody, who else is at home, what is yours.

    visible: whether others see that this console is here.
    """
    needy = sum(need.weight > 0 for need in needs)
    parts = [f"{needy} of {len(needs)} need somebody" if needy else "nobody is needed"]
    mine = [need.overview.holding for need in needs if need.overview.holding]
    yours = sum(claim.holder == person for claim in mine)
    if yours:
        parts.append(f"you look after {yours}")
    if at_home:
        parts.append(f"also at home: {', '.join(at_home)}")
    if not visible:
        parts.append("others do not see you")
    return line(span("   ".join(parts), "dim"))


class HomeList(LineView):
    """Rollouts, each in one line or two, folds of ended ones, and the tasks they are grouped by."""

    class Moved(Message):
        """The cursor is on another rollout."""

    class Opened(Message):
        """A click: open the rollout at the cursor, or unfold what has ended."""

    def __init__(self, person: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.person = person
        self.rows: list[ListRow] = []
        self.budgets: dict[str, BudgetSettings] = {}
        self.spending: dict[str, RolloutSpending] = {}
        self.marks: tuple[str, ...] = ()
        self.now_us = 0
        self.empty = LOADING_LINE
        self.order = ListOrder(folds=True)
        self._moves_by_key = actions_by_key("lines")
        self._lines: list[tuple[int, int]] = []
        """(row, line of it) for every line."""
        self._lines_per_rollout = 2
        """Lines of a rollout, as `_lines` were measured: the size may be another one by now."""
        self._numbers: list[int] = []
        """Of each row its place among the rollouts, from 1."""
        self._has_cost = self._has_tokens = False
        """Whether any rollout has some."""
        self._is_grouped = False
        """Whether rollouts stand under their tasks."""
        self._visible_lines: list[TextLine] = []
        self._first_drawn = 0
        """The first of them."""
        self._lines_of_rows: dict[int, list[TextLine]] = {}
        """Lines of rows, for as long as nothing changes."""

    # --- lines -------------------------------------------------------------------------------

    @property
    def view(self) -> HomeViewContext:
        """What the lines are made for."""
        return HomeViewContext(
            self.person,
            self.now_us,
            self.line_cells,
            self._lines_per_rollout,
            self._has_cost,
            self._has_tokens,
        )

    def line_count(self) -> int:
        """Of all rows."""
        return len(self._lines)

    def line_at(self, number: int) -> TextLine:
        """The line at this position."""
        at, offset = self._lines[number]
        lines = self._lines_of_rows.get(at)
        if lines is None:
            lines = self._lines_of_rows[at] = self._row_lines(at)
        return lines[offset]

    def _row_lines(self, at: int) -> list[TextLine]:
        row = self.rows[at]
        if row.is_task:
            return [task_line(row.task, self._needs_of_task(row.task), self.line_cells)]
        if row.ended:
            return [fold_line(row, self.view)]
        if row.is_settled:
            return [settled_line(self._entry_at(at), self.view)]
        return rollout_lines(self._entry_at(at), self.view)

    def _needs_of_task(self, task: str) -> list[RolloutNeed]:
        rows = [row for row in self.rows if row.task == task]
        needs = [row.need for row in rows if row.need]
        return needs + [need for row in rows if not row.is_open for need in row.ended]

    def _entry_at(self, at: int) -> HomeEntry:
        row = self.rows[at]
        assert row.need is not None
        number, marked = self._numbers[at], row.id in self.marks
        budget = self.budgets.get(row.id) or BudgetSettings()
        spent = self.spending.get(row.id, NOTHING_SPENT)
        return HomeEntry(number, row.need, budget, marked, self._is_grouped, spent)

    def selectable(self, number: int) -> bool:
        """First lines of rollouts, and folds."""
        at, offset = self._lines[number]
        return not offset and not self.rows[at].is_task

    def _cursor_style(self, number: int) -> Style | None:
        """Both lines of the rollout at the cursor."""
        if self._lines[number][0] == self._row_at_cursor:
            return super()._cursor_style(self.cursor)
        return None

    def redraw_cursor_line(self, number: int) -> None:
        """All lines of the rollout."""
        self.refresh_lines(number, self._lines_per_rollout)

    def _measure(self) -> None:
        self._lines_of_rows.clear()
        self._is_grouped = any(row.is_task for row in self.rows)
        fits = 2 * len(self.rows) <= self.size.height
        self._lines_per_rollout = 1 if self.line_cells >= ONE_LINE_MIN_COLUMNS and not fits else 2
        self._lines = [
            (at, offset) for at in range(len(self.rows)) for offset in range(self._lines_of(at))
        ]
        self._numbers, count = [], 0
        for row in self.rows:
            count += row.need is not None
            self._numbers.append(count)

    def _lines_of(self, at: int) -> int:
        """How many lines a row takes."""
        row = self.rows[at]
        return self._lines_per_rollout if row.need and not row.is_settled else 1

    # --- the rollout at the cursor -----------------------------------------------------------

    @property
    def fold_at_cursor(self) -> ListRow | None:
        """The fold at the cursor."""
        row = self._cursor_row
        return row if row and row.ended else None

    @property
    def _row_at_cursor(self) -> int:
        return self._lines[self.cursor][0] if self.cursor < len(self._lines) else -1

    @property
    def _cursor_row(self) -> ListRow | None:
        at = self._row_at_cursor
        return self.rows[at] if at >= 0 else None

    @property
    def under_cursor(self) -> HomeEntry | None:
        """The rollout at the cursor."""
        at = self._row_at_cursor
        return self._entry_at(at) if at >= 0 and self.rows[at].need else None

    @property
    def chosen(self) -> str:
        """Its id; empty where there is none."""
        under = self.under_cursor
        return under.need.overview.rollout.id if under else ""

    def line_of(self, rollout: str) -> int | None:
        """Where a rollout begins, or the fold that it is in."""
        if not rollout:
            return None
        starts = [(number, self.rows[at]) for number, (at, offset) in enumerate(self._lines)
                  if not offset]  # fmt: skip
        listed = (number for number, row in starts if row.id == rollout)
        folded = (
            number
            for number, row in starts
            if any(need.overview.rollout.id == rollout for need in row.ended)
        )
        place = next(listed, None)
        return next(folded, None) if place is None else place

    def _line_of_fold(self, task: str) -> int | None:
        folds = (n for n, (at, _) in enumerate(self._lines)
                 if self.rows[at].ended and self.rows[at].task == task)  # fmt: skip
        return next(folds, None)

    def _line_of_row(self, row: ListRow | None) -> int | None:
        """Where a row of before stands now."""
        if row is None:
            return None
        return self._line_of_fold(row.task) if row.ended else self.line_of(row.id)

    def go_to_number(self, number: int) -> None:
        """Stand on the rollout at a place, counted from 1."""
        places = enumerate(zip(self.rows, self._numbers, strict=True))
        matches = (at for at, (row, place) in places if row.need and place == number)
        for at in matches:
            self.set_cursor(self._lines.index((at, 0)))

    def cursor_moved(self) -> None:
        """Tell that another rollout is at the cursor."""
        post_message_as(self, self.Moved())

    def scroll_line_into_view(self, target: int) -> None:
        """All lines of the rollout; from the first one also what is above it."""
        super().scroll_line_into_view(target + self._lines_of(self._lines[target][0]) - 1)
        super().scroll_line_into_view(0 if target <= 1 else target)

    def reveal_fold(self) -> None:
        """Have what a fold lists below itself on the screen, and the fold still."""
        at, before = self._row_at_cursor, self.cursor
        if at >= 0 and self.rows[at].is_open:
            self.scroll_line_into_view(min(len(self._lines) - 1, before + len(self.rows[at].ended)))
            self.scroll_line_into_view(before)

    # --- what changed ------------------------------------------------------------------------

    def show_rows(self, rows: list[ListRow], now: int, at: str = "") -> None:
        """Show these rows; the cursor stays on its own, and that on its line of the screen.

        at: the rollout to stand on, if not the one that is under the cursor.
        """
        row, line_before = self._cursor_row, self.cursor
        self.rows, self.now_us = rows, now
        self._has_cost = any(spent.cost is not None for spent in self.spending.values())
        self._has_tokens = any(spent.tokens for spent in self.spending.values())
        self._measure()
        place = self.line_of(at) if at else self._line_of_row(row)
        if place is None:
            self.cursor = min(line_before, max(0, len(self._lines) - 1))
        elif place != line_before:
            self.cursor = place
            if not at:
                self.jump(round(self.scroll_y) + place - line_before)
        if self._lines:
            self.set_cursor(self.cursor)
        for line_number in {line_before, self.cursor} if self.cursor != line_before else ():
            self.redraw_cursor_line(line_number)  # also where no line says something else
        self.redraw_if_changed()

    def redraw_if_changed(self) -> None:
        """Draw again when a line on the screen says something else."""
        self._lines_of_rows.clear()
        first = round(self.scroll_y)
        before = self._visible_lines if first == self._first_drawn else []
        self._visible_lines, self._first_drawn = self.redraw_changed(before), first

    def show(self) -> None:
        """Measured again: the width decides how many lines a rollout takes."""
        row = self._cursor_row
        self._measure()
        place = self._line_of_row(row)
        self.cursor = min(self.cursor, max(0, len(self._lines) - 1)) if place is None else place
        super().show()

    async def _on_key(self, event: events.Key) -> None:
        """The cursor moves here, not by bindings: those reach the app behind a key that it takes
        itself, which would then be for the rollout that the cursor was on."""
        if action := self._moves_by_key.get(event.key):
            event.stop()
            event.prevent_default()
            await self.run_action(action)

    def note_activity(self) -> None:
        """Hold the order for some seconds."""
        self.order.attention.note_activity()

    def on_click(self, event: Any) -> None:
        """A click on the rollout at the cursor opens it; on another, it goes there."""
        event.prevent_default()  # the list's own, which knows of no second lines
        at = round(self.scroll_y) + event.get_content_offset_capture(self).y
        if at >= len(self._lines):
            return
        row, before = self._lines[at][0], self._row_at_cursor
        self.set_cursor(self._lines.index((row, 0)))
        if before == row:
            post_message_as(self, self.Opened())
