"""The columns of figures on the home screen, and which of them a width has room for.

Steps, scores with their direction, time left, time used, cost and tokens. Where a list becomes
narrow, columns go in a fixed order (`DROP_ORDER`), the direction and the best score never.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from houston_console.app.console_state import NOTHING_SPENT, RolloutSpending
from houston_console.commands.rollout_summary import format_score
from houston_console.screens.rollout_lists import (
    DIRECTION_MARKS,
    render_sparkline,
    score_direction,
)
from houston_console.widgets.styled_text import TextLine, TextSpan, Tone, line, span
from houston_shared.records import ENDED_STATES
from houston_shared.store.attention_ranking import RolloutNeed
from houston_shared.task import BudgetSettings
from houston_shared.times_and_counts import format_compact_duration, format_cost

SPARKLINE_CELLS = 12
NEAR_BUDGET = 0.9
"""Share of a budget from which it is shown as nearly used up."""
THOUSAND, MILLION, BILLION = 1_000, 1_000_000, 1_000_000_000


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
    spent: RolloutSpending = NOTHING_SPENT

    @property
    def scores(self) -> list[float]:
        """Its newest scores, the oldest first."""
        return [point.score for point in self.need.overview.scores]

    @property
    def direction_mark(self) -> tuple[str, Tone]:
        """Glyph and tone of the direction that its newest score goes."""
        best = self.need.overview.rollout.best_score
        return DIRECTION_MARKS[score_direction(self.scores, best)]


class HomeViewContext(NamedTuple):
    """Who looks, when, and how wide the screen is."""

    person: str
    now_us: int
    """UTC microseconds."""
    width: int
    lines: int = 2
    """That one rollout takes."""
    has_cost: bool = False
    """Whether any rollout has a cost; without one there is no such column."""
    has_tokens: bool = False
    """The same of tokens."""

    def columns(self, room: int) -> tuple[str, ...]:
        """The columns for as many cells."""
        return columns_that_fit(room, self.has_cost, self.has_tokens)


def format_tokens(tokens: int) -> str:
    """A count in at most five characters: `812`, `48k`, `3.1M`, `120M`, `2.4G`."""
    for size, unit in ((BILLION, "G"), (MILLION, "M")):
        if tokens >= size:
            return f"{tokens / size:.{1 if tokens < 100 * size else 0}f}{unit}"
    return f"{tokens // THOUSAND}k" if tokens >= THOUSAND else str(tokens)


def _steps_cell(entry: HomeEntry, cells: int) -> TextLine:
    steps, most = entry.need.overview.rollout.steps, entry.budget.steps
    tone: Tone = "number" if steps <= NEAR_BUDGET * most else "warning"
    return line(span(f"{f'{steps}/{most}':>{cells}}", tone))


def _score_cell(entry: HomeEntry, value: float | None, cells: int) -> TextSpan:
    """A score in the tone of the direction that the newest one goes."""
    tone = entry.direction_mark[1]
    return span(f"{format_score(value) if entry.scores else '–':>{cells}}", tone)


def _best_cell(entry: HomeEntry, cells: int) -> TextLine:
    return line(_score_cell(entry, entry.need.overview.rollout.best_score, cells))


def _last_cell(entry: HomeEntry, cells: int) -> TextLine:
    return line(_score_cell(entry, entry.need.overview.rollout.last_score, cells))


def _direction_cell(entry: HomeEntry, cells: int) -> TextLine:
    glyph, tone = entry.direction_mark
    return line(span(f"{glyph:<{cells}}", tone))


def _curve_cell(entry: HomeEntry, cells: int) -> TextLine:
    curve = render_sparkline(entry.scores, SPARKLINE_CELLS)
    return line(span(f" {curve:<{cells - 1}}", entry.direction_mark[1]))


def time_left_text(entry: HomeEntry) -> tuple[str, Tone]:
    """Active time that the budget leaves a rollout; nothing of one that has ended."""
    rollout, most = entry.need.overview.rollout, entry.budget.active_seconds
    if rollout.state in ENDED_STATES:
        return "–", "faint"
    used = rollout.active_us / 1e6
    tone: Tone = "warning" if used > NEAR_BUDGET * most else "text"
    return format_compact_duration(most - used), tone


def _left_cell(entry: HomeEntry, cells: int) -> TextLine:
    text, tone = time_left_text(entry)
    return line(span(f"{text:>{cells}}", tone))


def _active_cell(entry: HomeEntry, cells: int) -> TextLine:
    active = format_compact_duration(entry.need.overview.rollout.active_us / 1e6)
    most = format_compact_duration(entry.budget.active_seconds)
    return line(span(f"{active:>{cells - 7}}", "text"), span(f"/{most:<6}", "faint"))


def _cost_cell(entry: HomeEntry, cells: int) -> TextLine:
    cost = entry.spent.cost
    if cost is None:
        return line(span(f"{'–':>{cells}}", "faint"))
    near = bool(entry.budget.cost) and cost > NEAR_BUDGET * entry.budget.cost
    return line(span(f"{format_cost(cost):>{cells}}", "warning" if near else "text"))


def _tokens_cell(entry: HomeEntry, cells: int) -> TextLine:
    tokens = entry.spent.tokens
    return line(span(f"{format_tokens(tokens) if tokens else '–':>{cells}}", "number"))


class HomeColumn(NamedTuple):
    """One column."""

    head: str
    """What stands above it, in its cells."""
    cells: int
    cell: Callable[[HomeEntry, int], TextLine]


COLUMNS: dict[str, HomeColumn] = {
    "steps": HomeColumn(f"{'steps':>10}", 10, _steps_cell),
    "best": HomeColumn(f"{'best':>6}", 6, _best_cell),
    "last": HomeColumn(f"{'last':>6}", 6, _last_cell),
    "direction": HomeColumn("  ", 2, _direction_cell),
    "scores": HomeColumn(f" {'scores':<12}", 13, _curve_cell),
    "left": HomeColumn(f"{'left':>6}", 6, _left_cell),
    "active": HomeColumn(f"{'active':>7}{'/of':<7}", 14, _active_cell),
    "cost": HomeColumn(f"{'cost':>8}", 8, _cost_cell),
    "tokens": HomeColumn(f"{'tokens':>7}", 7, _tokens_cell),
}
"""In the order in which they stand."""
DROP_ORDER = ("active", "tokens", "cost", "scores", "last", "steps", "left")
"""In this order columns go where a list is narrow; the direction and the best score stay."""
EDGE_CELLS = 1
"""Cells behind the last column."""


def columns_width(names: Sequence[str]) -> int:
    """Cells that columns take."""
    return sum(COLUMNS[name].cells for name in names) + EDGE_CELLS


@lru_cache(maxsize=64)
def columns_that_fit(room: int, has_cost: bool, has_tokens: bool) -> tuple[str, ...]:
    """The columns that `room` cells hold. has_cost, has_tokens: whether any rollout has some."""
    names = [
        name
        for name in COLUMNS
        if (name != "cost" or has_cost) and (name != "tokens" or has_tokens)
    ]
    for column in DROP_ORDER:
        if columns_width(names) <= room:
            break
        names = [name for name in names if name != column]
    return tuple(names)


def column_head_line(names: Sequence[str]) -> TextLine:
    """The names of columns."""
    heads = "".join(COLUMNS[name].head for name in names)
    return line(span(heads + " " * EDGE_CELLS, "faint"))


def column_cells(names: Sequence[str], entry: HomeEntry) -> TextLine:
    """The figures of a rollout."""
    parts = [part for name in names for part in COLUMNS[name].cell(entry, COLUMNS[name].cells)]
    return line(*parts, span(" " * EDGE_CELLS))


def best_only_cells(names: Sequence[str], best: float | None) -> TextLine:
    """The best score of several rollouts in its column, nothing in those behind it."""
    behind = names[names.index("best") + 1 :]
    blank = sum(COLUMNS[name].cells for name in behind) + EDGE_CELLS
    return line(span(f"{format_score(best):>{COLUMNS['best'].cells}}{' ' * blank}", "text"))
