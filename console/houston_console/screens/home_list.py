"""The list of the home screen: rollouts in one or two lines each, and the card of one of them.

Renders columns by the width there is, with score sparklines, needs and people; the widget keeps
the cursor where it is while the list changes. Filtering, marking and opening are in
`screens.home_screen`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.style import Style
from textual.message import Message

from houston_console.commands.rollout_summary import format_score
from houston_console.screens.base_screen import post_from
from houston_console.screens.job_lines import job_summary
from houston_console.screens.rollout_lists import (
    STATE_GLYPHS,
    ListOrder,
    ListRow,
    format_age,
    format_moment,
    handover_note,
    name_within_task,
    need_reasons,
    other_viewers,
    own_note,
    people_text,
    person_cost,
    person_name,
    render_sparkline,
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
    gain_tone,
    hanging_block,
    justify_line,
    line,
    line_width,
    span,
)
from houston_shared.safe_text import SafeText
from houston_shared.store.attention_ranking import RolloutNeed
from houston_shared.store.presence_queries import AttentionCost
from houston_shared.store.refinement_queries import RefinementTree
from houston_shared.task import BudgetSettings

ONE_LINE_MIN_COLUMNS = 180
"""Columns from which a rollout takes one line, where two for each do not fit."""
REASON_INLINE_MIN_COLUMNS = 110
"""Columns from which the reason stands beside the name, in the first line of two."""
NAME_CELLS = 24
"""Cells of a name; less on a narrow screen."""
NARROW_NAME_CELLS = 20
SPARKLINE_CELLS = 12
PEOPLE_CELLS = 26
"""Cells of who looks, in one line."""


class HomeEntry(NamedTuple):
    """One rollout as a list shows it."""

    number: int
    """Its place, from 1."""
    need: RolloutNeed
    budget: BudgetSettings
    marked: bool = False
    """Whether it was chosen to be compared."""
    under_task: bool = False
    """Whether its task stands above it."""


class HomeViewContext(NamedTuple):
    """Who looks, when, and how wide the screen is."""

    person: str
    now_us: int
    """UTC microseconds."""
    width: int
    lines: int = 2
    """That one rollout takes."""


def format_hours(seconds: float) -> str:
    """Active time, short: `57m`, `3h05`, `30h`."""
    minutes = int(seconds // 60)
    if minutes < 100:
        return f"{minutes}m"
    return f"{minutes // 60}h{minutes % 60:02}" if minutes % 60 else f"{minutes // 60}h"


def column_heads(view: HomeViewContext) -> TextLine:
    """What stands above the list: names of the columns."""
    name = NAME_CELLS if view.width >= REASON_INLINE_MIN_COLUMNS else NARROW_NAME_CELLS
    words = "why it needs somebody" if view.width >= REASON_INLINE_MIN_COLUMNS else ""
    left = f"       {'rollout':<{name + 2}}{words}".rstrip()
    parts = [span(left, "faint")]
    numbers = (
        f"{'steps':>10}{'best':>6}{'last':>6}  {'scores':<{SPARKLINE_CELLS}}{'active':>7}{'/of':<7}"
    )
    if view.lines == 1:
        numbers += f"{'who is there':<{PEOPLE_CELLS}}"
    return justify_line(tuple(parts), line(span(numbers, "faint")), view.width)


def task_line(task: str, needs_shown: Sequence[RolloutNeed], width: int) -> TextLine:
    """A task above its rollouts."""
    needy = sum(need.weight > 0 for need in needs_shown)
    count = f"{len(needs_shown)} rollout{'s' * (len(needs_shown) != 1)}"
    tail = f", {needy} need{'s' * (needy == 1)} somebody" if needy else ""
    return justify_line(
        line(span(" "), span(task, "title")), line(span(f"{count}{tail} ", "faint")), width
    )


def rollout_lines(entry: HomeEntry, view: HomeViewContext) -> list[TextLine]:
    """A rollout in as many lines as `HomeViewContext.lines` says."""
    jobs, action = job_summary(entry.need.standing, view.now_us), _activity_text(entry.need)
    if view.lines == 1:
        right = (*_number_cells(entry), *_pad_line(_people_cells(entry.need, view), PEOPLE_CELLS))
        room = view.width - line_width(right)
        half = (room - line_width(_name_cells(entry, NAME_CELLS))) * 3 // 5
        reason_span = span(f"{fit_text(_need_text(entry.need), half)}  ", _need_tone(entry.need))
        return [
            justify_line(
                (*_name_cells(entry, NAME_CELLS), reason_span, *jobs, *action),
                right,
                view.width,
            )
        ]
    people, pad = _people_cells(entry.need, view), span("       ")
    reason = span(_need_text(entry.need), _need_tone(entry.need))
    if view.width >= REASON_INLINE_MIN_COLUMNS:
        first, second = (*_name_cells(entry, NAME_CELLS), reason), (pad, *jobs, *action)
    else:
        gap = span(" · " if reason.text and action else "")
        first, second = _name_cells(entry, NARROW_NAME_CELLS), (pad, *jobs, reason, gap, *action)
    return [
        justify_line(first, _number_cells(entry), view.width),
        justify_line(second, people, view.width),
    ]


def _name_cells(entry: HomeEntry, width: int) -> TextLine:
    rollout = entry.need.standing.rollout
    glyph, tone = STATE_GLYPHS.get(rollout.state, ("?", "dim"))
    name = name_within_task(rollout.id, rollout.task) if entry.under_task else rollout.id
    mark = span("×", "guidance") if entry.marked else urgency_mark(entry.need)
    number = span(f"{entry.number:>3} ", "number")
    return line(
        mark, number, span(f"{glyph} ", tone), span(fit_name(name, width), "strong"), span("  ")
    )


def _need_text(need: RolloutNeed) -> str:
    if need.reasons:
        return need.text
    rollout = need.standing.rollout
    return rollout_state_text(rollout) if rollout.state != "running" else ""


def _need_tone(need: RolloutNeed) -> Tone:
    mark: Tone = urgency_mark(need).tone
    return mark if need.weight else "dim"


def _activity_text(need: RolloutNeed) -> TextLine:
    """What it does now, or did last."""
    acted, rollout = need.standing.acted, need.standing.rollout
    if acted is None:
        return ()
    now = rollout.activity if rollout.state == "running" else ""
    if acted.text.startswith(now) or now in need.text:  # it is said already
        return line(span(acted.text, "dim"))
    return line(span(f"{now}: ", "tool"), span(acted.text, "dim"))


def _number_cells(entry: HomeEntry) -> TextLine:
    rollout, budget = entry.need.standing.rollout, entry.budget
    steps = f"{rollout.steps}/{budget.steps}"
    active = format_hours(rollout.active_us / 1e6)
    near = rollout.active_us / 1e6 > 0.9 * budget.active_seconds
    scores = [score.score for score in entry.need.standing.scores]
    return line(
        span(f"{steps:>10}", "number" if rollout.steps <= 0.9 * budget.steps else "warning"),
        span(
            f"{format_score(rollout.best_score) if scores else '–':>6}",
            "score" if scores else "faint",
        ),
        span(
            f"{format_score(rollout.last_score) if scores else '–':>6}",
            "text" if scores else "faint",
        ),
        span(f"  {render_sparkline(scores, SPARKLINE_CELLS):<{SPARKLINE_CELLS}}", "score"),
        span(f"{active:>7}", "warning" if near else "text"),
        span(f"/{format_hours(budget.active_seconds):<5} ", "faint"),
    )


def _people_cells(need: RolloutNeed, view: HomeViewContext) -> TextLine:
    overview, parts = need.standing, []
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


MOST_REFINEMENTS = 6
"""Refinements of a tree that are shown: the first ones."""


def refinement_tree_lines(tree: RefinementTree, rollout: str, width: int) -> list[TextLine]:
    """An attempt and its refinements, each with its score, gain and what it was told; the one at
    the cursor stands out."""
    score = "no score" if tree.score is None else f"score {tree.score:g}"
    count = len(tree.tried)
    head = f"{tree.attempt}, {score}, tried again {count} time{'s' * (count > 1)}"
    lines = [line(span(" ↻ ", "key"), span(fit_text(head, max(0, width - 3)), "text"))]
    shown = tree.tried[:MOST_REFINEMENTS]
    for number, each in enumerate(shown, 1):
        branch = "└" if number == count else "├"
        result = "–" if each.score is None else f"{each.score:g}"
        gain = each.state if each.gain is None else f"{each.gain:+.2f}"
        parts = line(
            span(f"   {branch} ", "faint"),
            span(f"{each.rollout}  ", "strong" if each.rollout == rollout else "dim"),
            span(f"{result:>4} ", "score"),
            span(f"{gain:>6}  ", gain_tone(each.gain)),
            span(f"{each.critic}: ", "key"),
            span(each.text, "guidance_text"),
        )
        lines.append(_pad_line(parts, width))
    if count > len(shown):
        lines.append(line(span(f"   └ {count - len(shown)} more", "dim")))
    return lines


def rollout_card(
    entry: HomeEntry,
    spent: Sequence[AttentionCost],
    view: HomeViewContext,
    tree: RefinementTree | None = None,
) -> list[TextLine]:
    """Everything that is known of the rollout at the cursor from afar."""
    overview, rollout = entry.need.standing, entry.need.standing.rollout
    glyph, tone = STATE_GLYPHS.get(rollout.state, ("?", "dim"))
    where = f"{rollout.task} · {rollout.policy or rollout.engine}"
    head = line(span(f" {glyph} ", tone), span(rollout.id, "strong"), span(f"  {where}  ", "dim"),
                span(rollout_state_text(rollout), tone))  # fmt: skip
    rows = [head]
    if rollout.parent:
        rows += _card_block(
            "⑂", f"branch of {rollout.parent} at step {rollout.parent_step}", "dim", view
        )
    if tree is not None:
        rows += refinement_tree_lines(tree, rollout.id, view.width)
    for text in need_reasons(entry.need):
        rows += _card_block("!", text, urgency_mark(entry.need).tone, view)
    if (acted := overview.acted) is not None:
        when = format_moment(acted.at, view.now_us)
        text = f"step {acted.step}, {when} ({format_age(acted.at, view.now_us)}): {acted.text}"
        rows += _card_block("▸", text, "dim", view)
    if overview.new_steps:
        many = f"{overview.new_steps} step{'s' * (overview.new_steps > 1)}"
        rows += _card_block("+", f"{many} since you were here", "text", view)
    for mark, text in people_text(overview, view.person, view.now_us):
        rows += _card_block(mark, text, "guidance_text" if mark == "✉" else "text", view)
    if spent:
        rows += _card_block(
            "◷",
            "attention: " + "; ".join(person_cost(cost, view.person) for cost in spent),
            "dim",
            view,
        )
    return rows


def _card_block(mark: str, text: str, tone: Tone, view: HomeViewContext) -> list[TextLine]:
    return hanging_block(span(f" {mark} ", "key"), text, view.width, tone)


def home_summary(
    needs: Sequence[RolloutNeed], at_home: Sequence[str], person: str, visible: bool = True
) -> TextLine:
    """The lower edge of the frame: how many need somebody, who else is at home, what is yours.

    visible: whether others see that this console is here.
    """
    needy = sum(need.weight > 0 for need in needs)
    parts = [f"{needy} of {len(needs)} need somebody" if needy else "nobody is needed"]
    mine = [need.standing.holding for need in needs if need.standing.holding]
    yours = sum(claim.holder == person for claim in mine)
    if yours:
        parts.append(f"you look after {yours}")
    if at_home:
        parts.append(f"also at home: {', '.join(at_home)}")
    if not visible:
        parts.append("others do not see you")
    return line(span("   ".join(parts), "dim"))


class HomeList(LineView):
    """Rollouts, each in one line or two, and the tasks above them where they are grouped."""

    class Moved(Message):
        """The cursor is on another rollout."""

    class Opened(Message):
        """A click: open the rollout at the cursor."""

    def __init__(self, person: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.person = person
        self.rows: list[ListRow] = []
        self.budgets: dict[str, BudgetSettings] = {}
        self.marks: tuple[str, ...] = ()
        self.now_us = 0
        self.empty = LOADING_LINE
        self.order = ListOrder()
        self._lines: list[tuple[int, int]] = []
        """(row, line of it) for every line."""
        self._lines_per_rollout = 2
        """Lines of a rollout, as `_lines` were measured: the size may be another one by now."""
        self._numbers: list[int] = []
        """Of each row its place among the rollouts, from 1."""
        self._visible_lines: list[TextLine] = []
        self._lines_of_rows: dict[int, list[TextLine]] = {}
        """Lines of rows, for as long as nothing changes."""

    # --- lines -------------------------------------------------------------------------------

    @property
    def view(self) -> HomeViewContext:
        """What the lines are made for."""
        return HomeViewContext(self.person, self.now_us, self.line_cells, self._lines_per_rollout)

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
        if row.need is None:
            needs = [
                other_row.need
                for other_row in self.rows
                if other_row.task == row.task and other_row.need
            ]
            return [task_line(row.task, needs, self.line_cells)]
        return rollout_lines(self._entry_at(at), self.view)

    def _entry_at(self, at: int) -> HomeEntry:
        row = self.rows[at]
        assert row.need is not None
        number, marked = self._numbers[at], row.id in self.marks
        budget = self.budgets.get(row.id) or BudgetSettings()
        return HomeEntry(number, row.need, budget, marked, self.rows[0].need is None)

    def selectable(self, number: int) -> bool:
        """First lines of rollouts."""
        at, offset = self._lines[number]
        return not offset and self.rows[at].need is not None

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
        fits = 2 * len(self.rows) <= self.size.height
        self._lines_per_rollout = 1 if self.line_cells >= ONE_LINE_MIN_COLUMNS and not fits else 2
        self._lines = [
            (at, offset)
            for at, row in enumerate(self.rows)
            for offset in range(self._lines_per_rollout if row.need else 1)
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
    def under_cursor(self) -> HomeEntry | None:
        """The rollout at the cursor."""
        at = self._row_at_cursor
        return self._entry_at(at) if at >= 0 and self.rows[at].need else None

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
        matches = (at for at, (row, place) in places if row.need and place == number)
        for at in matches:
            self.set_cursor(self._lines.index((at, 0)))

    def cursor_moved(self) -> None:
        """Tell that another rollout is at the cursor."""
        post_from(self, self.Moved())

    def bring_into_view(self, target: int) -> None:
        """All lines of the rollout; from the first one also what is above it."""
        super().bring_into_view(target + self._lines_per_rollout - 1)
        super().bring_into_view(0 if target <= 1 else target)

    # --- what changed ------------------------------------------------------------------------

    def show_rows(self, rows: list[ListRow], now: int, at: str = "") -> None:
        """Show these rows; the cursor stays on its rollout, and that on its line of the screen.

        at: the rollout to stand on, if not the one that is under the cursor.
        """
        keep, line_before = at or self.chosen, self.cursor
        self.rows, self.now_us = rows, now
        self._measure()
        place = self.line_of(keep)
        if place is None:
            self.cursor = min(line_before, max(0, len(self._lines) - 1))
        elif place != line_before:
            self.cursor = place
            if not at:
                self.jump(round(self.scroll_y) + place - line_before)
        if self._lines:
            self.set_cursor(self.cursor)
        self.redraw_if_changed()

    def redraw_if_changed(self) -> None:
        """Draw again when a line on the screen says something else."""
        self._lines_of_rows.clear()
        first = round(self.scroll_y)
        shown_lines = range(first, min(self.line_count(), first + self.size.height))
        looks = [self.line_at(number) for number in shown_lines]
        if looks != self._visible_lines or self.virtual_size.height != self.line_count():
            self._visible_lines = looks
            self.show()

    def show(self) -> None:
        """Measured again: the width decides how many lines a rollout takes."""
        chosen = self.chosen
        self._measure()
        place = self.line_of(chosen)
        self.cursor = min(self.cursor, max(0, len(self._lines) - 1)) if place is None else place
        super().show()

    def note_activity(self) -> None:
        """Hold the order for some seconds."""
        self.order.attention.note_activity()

    def on_click(self, event: Any) -> None:
        """A click on the rollout at the cursor opens it; on another, it goes there."""
        event.prevent_default()  # the list's own, which knows of no second lines
        at = round(self.scroll_y) + event.get_content_offset_capture(self).y
        if at >= len(self._lines):
            return
        row, before = self._lines[at][0], self.chosen
        self.set_cursor(self._lines.index((row, 0)))
        if before and before == self.rows[row].id:
            post_from(self, self.Opened())
