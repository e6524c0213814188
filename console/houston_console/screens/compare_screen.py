"""Two rollouts of a task side by side: a plot of scores over active time, facts, guidance.

Holds the one short read, the character plot (series differ by glyph and tone), the lines and the
screen that keeps itself up to date. The headless `rollout compare` is in
`commands.rollout_view_commands`.
"""

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical

from houston_console.app.console_state import ConsoleState
from houston_console.app.key_bindings import Area, bindings_for
from houston_console.commands.rollout_summary import format_score
from houston_console.commands.rollout_view_commands import read_comparison
from houston_console.screens.base_screen import HoustonScreen
from houston_console.screens.rollout_lists import (
    STATE_GLYPHS,
    person_cost,
    rollout_state_text,
)
from houston_console.widgets.line_view import FixedLines, set_frame_title
from houston_console.widgets.styled_text import (
    TextLine,
    TextSpan,
    Tone,
    fit_text,
    line,
    line_width,
    span,
    text_block,
)
from houston_shared.errors import HoustonError
from houston_shared.records import Guidance
from houston_shared.safe_text import SafeText
from houston_shared.store import annotation_queries, process_reward_queries, rollout_queries
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.journal_events import ReadPlan, RunSql
from houston_shared.store.presence_queries import AttentionCost
from houston_shared.store.process_reward_queries import StepReward
from houston_shared.store.rollout_queries import RolloutRow, ScorePoint
from houston_shared.times_and_counts import format_duration

MAX_COMPARED_SCORES = 4_000
"""Scores of one rollout: more than a screen has columns, by far."""


class ComparedRollout(NamedTuple):
    """One of the two, with the guidance that it was given."""

    rollout: RolloutRow
    scores: list[ScorePoint]
    costs: list[AttentionCost]
    delivered: list[tuple[int, Guidance]]
    """Guidance that was delivered, with the active time of its step in microseconds."""
    queued: int
    """Guidance that is queued."""
    rewards: Sequence[StepReward] = ()
    """What a process reward model gives its decisions."""


def read_compared_rollouts(
    first: str, second: str
) -> ReadPlan[tuple[ComparedRollout, ComparedRollout]]:
    """Both. Raises HoustonError where one is not there."""
    sides: list[ComparedRollout] = []
    for side in (yield from read_comparison((first, second), MAX_COMPARED_SCORES)):
        name = side.rollout.id
        messages = yield from annotation_queries.list_guidance(name)
        deliveries = [
            message
            for message in messages
            if message.state == "delivered" and message.step is not None
        ]
        at = yield from _read_active_times(name, [message.step or 0 for message in deliveries])
        heard_at = [(at.get(message.step or 0, 0), message) for message in deliveries]
        waiting = sum(message.state == "queued" for message in messages)
        rewards = yield from process_reward_queries.list_step_rewards(name)
        sides.append(ComparedRollout(*side, heard_at, waiting, rewards))
    return sides[0], sides[1]


def _read_active_times(rollout: str, steps: list[int]) -> ReadPlan[dict[int, int]]:
    """Active time at the end of steps, of those of a past that a branch shares too."""
    times: dict[int, int] = {}
    if steps:
        for part in (yield from rollout_queries.step_ranges(rollout, min(steps), max(steps))):
            marks = ", ".join(str(step) for step in sorted(set(steps)))
            rows = yield RunSql(
                "SELECT step, active_us FROM steps WHERE rollout = ? AND step BETWEEN ? AND ?"
                f" AND current AND step IN ({marks})",
                part,
            )
            times.update(dict(rows))
    return times


AXIS_CELLS = 5
"""Cells left of the plot."""
PLOT_TOP_SCORE = 100.0
SHARED_POINT_GLYPH = "◈"
"""Where two evaluations fall into one cell."""


class ScoreSeries(NamedTuple):
    """One rollout's scores."""

    points: Sequence[tuple[float, float]]
    """(active time in hours, score), in order of time."""
    glyph: str
    line_glyph: str
    """Drawn between two evaluations."""
    tone: Tone
    guidance_hours: Sequence[float] = ()
    """Hours at which it heard guidance."""


_PlotCell = tuple[str, Tone]


def plot_scores(
    series: Sequence[ScoreSeries],
    hours: float,
    width: int,
    height: int,
    min_top: float = PLOT_TOP_SCORE,
) -> list[TextLine]:
    """`height` lines for the scores, two for the axis, one for the guidance of each series.

    hours: active time at the right edge. min_top: score at the upper edge, unless one is higher.
    """
    columns, hours = max(8, width - AXIS_CELLS), max(hours, 1e-6)
    top = max([min_top, *(score for curve in series for _, score in curve.points)])
    grid: list[list[_PlotCell]] = [[(" ", "text")] * columns for _ in range(height)]
    for curve in series:
        _draw_series(grid, curve, hours, top)
    rows = [_plot_row(grid[y], _score_label(y, height, top)) for y in range(height)]
    axis = span(f"{'':>{AXIS_CELLS - 1}}└{'─' * columns}", "faint")
    rows += [(axis,), _time_labels(columns, hours)]
    return rows + [
        _guidance_marks(curve, columns, hours) for curve in series if curve.guidance_hours
    ]


def _plot_column(at: float, hours: float, columns: int) -> int:
    return min(columns - 1, int(at / hours * columns))


def _draw_series(grid: list[list[_PlotCell]], curve: ScoreSeries, hours: float, top: float) -> None:
    height, columns = len(grid), len(grid[0])
    places = [
        (_plot_column(at, hours, columns), height - 1 - min(height - 1, int(score / top * height)))
        for at, score in curve.points
    ]
    for (x, y), (end, _) in pairwise([*places, (columns, 0)]):
        for between in range(x + 1, end):
            if grid[y][between][0] == " ":
                grid[y][between] = (curve.line_glyph, curve.tone)
    for x, y in places:
        is_shared = grid[y][x][0] not in (" ", curve.line_glyph, curve.glyph, "─", "┄")
        grid[y][x] = (SHARED_POINT_GLYPH, "strong") if is_shared else (curve.glyph, curve.tone)


def _plot_row(cells: Sequence[_PlotCell], label: str) -> TextLine:
    spans: list[TextSpan] = [span(f"{label:>{AXIS_CELLS - 1}}", "faint"), span("│", "faint")]
    for tone, run in groupby(cells, key=lambda cell: cell[1]):
        spans.append(span("".join(character for character, _ in run), tone))
    return tuple(spans)


def _score_label(y: int, height: int, top: float) -> str:
    if y == 0:
        return f"{top:g}"
    if y == height // 2:
        return f"{top / 2:g}"
    return "0" if y == height - 1 else ""


def _time_labels(columns: int, hours: float) -> TextLine:
    """Active time at the start, in the middle and at the right edge."""
    texts = ["0", format_duration(hours * 1800), f"{format_duration(hours * 3600)} active"]
    left = columns // 2 - len(texts[0]) - len(texts[1]) // 2
    right = columns - len(texts[0]) - left - len(texts[1]) - len(texts[2])
    if right < 1:  # no room for the one in the middle
        texts[1], left, right = "", 0, columns - len(texts[0]) - len(texts[2])
    text = texts[0] + " " * left + texts[1] + " " * right + texts[2]
    return (span(" " * AXIS_CELLS + text[:columns], "faint"),)


def _guidance_marks(rollout_scores: ScoreSeries, columns: int, hours: float) -> TextLine:
    """Where guidance was heard."""
    cells = [" "] * columns
    for at in rollout_scores.guidance_hours:
        cells[_plot_column(at, hours, columns)] = "✎"
    return (
        span(f"{rollout_scores.glyph:>{AXIS_CELLS - 1}} ", rollout_scores.tone),
        span("".join(cells), "guidance"),
    )


MICROSECONDS_PER_HOUR = 3_600_000_000
SERIES_GLYPHS: tuple[tuple[str, str, Tone], ...] = (("●", "─", "tool"), ("◆", "┄", "guidance_text"))
"""Of the first and the second: an evaluation, its line, its tone."""
LABEL_CELLS = 12
COLUMN_GAP = 2


def comparison_lines(
    pair: tuple[ComparedRollout, ComparedRollout], person: str, width: int, height: int
) -> list[TextLine]:
    """The plot, the figures beside each other, and what each was told.

    height: lines of the plot.
    """
    lines: list[TextLine] = [
        (),
        *plot_scores(_score_series(pair), _longest_hours(pair), width - 1, height),
        (),
    ]
    if any(side.rewards for side in pair):
        lines += _reward_plot(pair, width, height)
    for label, values in _comparison_facts(pair, person):
        lines += _fact_lines(label, values, width)
    if any(side.delivered for side in pair):
        lines += [(), line(span(" What each was told", "title"))]
        lines += _join_columns(
            [_guidance_effects(side, _half_width(width, 0)) for side in pair],
            1,
            _half_width(width, 0),
        )
    return lines


def _score_series(pair: Sequence[ComparedRollout]) -> list[ScoreSeries]:
    return [
        ScoreSeries(
            [(score.active_us / MICROSECONDS_PER_HOUR, score.score) for score in side.scores],
            glyph,
            line_glyph,
            tone,
            [at / MICROSECONDS_PER_HOUR for at, _ in side.delivered],
        )
        for side, (glyph, line_glyph, tone) in zip(pair, SERIES_GLYPHS, strict=True)
    ]


REWARD_PLOT_LINES = 5
"""Lines of the plot of process rewards."""
REWARD_POINTS = 40
"""Points of its curves: each the mean over such a part of a rollout's active time."""


def _reward_plot(pair: Sequence[ComparedRollout], width: int, height: int) -> list[TextLine]:
    """Process rewards over the same hours."""
    series = [
        ScoreSeries(_reward_points(side.rewards), glyph, line_glyph, tone)
        for side, (glyph, line_glyph, tone) in zip(pair, SERIES_GLYPHS, strict=True)
    ]
    title = line(span(" Process reward, mean of decisions", "title"))
    lines = min(height, REWARD_PLOT_LINES)
    return [title, *plot_scores(series, _longest_hours(pair), width - 1, lines, 1.0), ()]


def _reward_points(rewards: Sequence[StepReward]) -> list[tuple[float, float]]:
    if not rewards:
        return []
    curve = process_reward_queries.reward_curve(rewards, REWARD_POINTS)
    end = max(reward.active_us for reward in rewards) / MICROSECONDS_PER_HOUR
    first = REWARD_POINTS - len(curve)
    return [
        ((first + number + 0.5) / REWARD_POINTS * end, mean) for number, mean in enumerate(curve)
    ]


def _longest_hours(pair: Sequence[ComparedRollout]) -> float:
    ends = [side.rollout.active_us for side in pair]
    ends += [score.active_us for side in pair for score in side.scores]
    return max(ends) / MICROSECONDS_PER_HOUR


def _comparison_facts(
    pair: Sequence[ComparedRollout], person: str
) -> list[tuple[str, list[TextLine]]]:
    """What is said of both, by its name."""

    def costs(side: ComparedRollout) -> str:
        return "; ".join(person_cost(cost, person) for cost in side.costs) or "none"

    def each(name: str, text: str, tone: Tone = "text") -> tuple[str, list[TextLine]]:
        values = [getattr(side.rollout, text) for side in pair]
        return name, [line(span(str(value), tone)) for value in values]

    any_rewards = any(side.rewards for side in pair)
    return [
        ("", [_rollout_head(side, at) for at, side in enumerate(pair)]),
        ("state", [_state_cell(side) for side in pair]),
        ("policy", [line(span(side.rollout.policy or side.rollout.engine)) for side in pair]),
        each("steps", "steps", "number"),
        ("active", [line(span(format_duration(side.rollout.active_us / 1e6))) for side in pair]),
        ("score", [_score_cell(side) for side in pair]),
        *([("reward", [_reward_cell(side) for side in pair])] if any_rewards else []),
        each("evaluations", "evaluations"),
        each("errors", "errors"),
        each("summarised", "forks"),
        ("guidance", [line(span(_guidance_count(side))) for side in pair]),
        ("attention", [line(span(costs(side))) for side in pair]),
    ]


def _rollout_head(side: ComparedRollout, at: int) -> TextLine:
    glyph, _, tone = SERIES_GLYPHS[at]
    rollout = side.rollout
    branch = f"  branch of {rollout.parent} at step {rollout.parent_step}" if rollout.parent else ""
    return line(span(f"{glyph} ", tone), span(rollout.id, "strong"), span(branch, "dim"))


def _state_cell(side: ComparedRollout) -> TextLine:
    glyph, tone = STATE_GLYPHS.get(side.rollout.state, ("?", "dim"))
    return line(span(f"{glyph} {rollout_state_text(side.rollout)}", tone))


def _score_cell(side: ComparedRollout) -> TextLine:
    rollout = side.rollout
    text = f"{format_score(rollout.best_score)} best, {format_score(rollout.last_score)} last"
    return line(span("none", "dim") if rollout.last_score is None else span(text, "score"))


def _reward_cell(side: ComparedRollout) -> TextLine:
    summary = process_reward_queries.summarize_process_rewards(side.rewards)
    if summary is None:
        return line(span("none", "dim"))
    lowest = f"lowest {summary.lowest:.2f} at step {summary.lowest_step}"
    return line(span(f"mean {summary.mean:.2f}, {lowest}", "score"))


def _guidance_count(side: ComparedRollout) -> str:
    waiting = f", {side.queued} waiting" if side.queued else ""
    return f"{len(side.delivered)} heard{waiting}"


def _half_width(width: int, label: int) -> int:
    return max(12, (width - 1 - label - COLUMN_GAP) // 2)


def _fact_lines(label: str, values: Sequence[TextLine], width: int) -> list[TextLine]:
    """One fact of both; a long one goes on below itself."""
    half = _half_width(width, LABEL_CELLS)
    rows = _join_columns([_wrap_cell(value, half) for value in values], LABEL_CELLS + 1, half)
    head = span(fit_text(f" {label}", LABEL_CELLS + 1), "key")
    return [(head, *rows[0][1:]), *rows[1:]]


def _wrap_cell(value: TextLine, width: int) -> list[TextLine]:
    if line_width(value) <= width:
        return [value]
    return text_block("".join(part.text for part in value), width, value[0].tone)


def _join_columns(column_pair: Sequence[list[TextLine]], indent: int, half: int) -> list[TextLine]:
    """Two blocks of lines, the second behind the first."""
    first, second = column_pair
    lines: list[TextLine] = []
    for at in range(max(len(first), len(second))):
        left = first[at] if at < len(first) else ()
        right = second[at] if at < len(second) else ()
        room = max(0, half + COLUMN_GAP - line_width(left))
        lines.append(
            (TextSpan(SafeText(" " * indent)), *left, TextSpan(SafeText(" " * room)), *right)
        )
    return lines


def _guidance_effects(side: ComparedRollout, width: int) -> list[TextLine]:
    """Guidance that it heard, and how its score stood before and after."""
    lines: list[TextLine] = []
    for at, guidance in side.delivered:
        before = [score.score for score in side.scores if score.active_us <= at]
        after = [score.score for score in side.scores if score.active_us > at]
        old, became = before[-1] if before else None, after[0] if after else None
        then = f"  score {format_score(old)} → {format_score(became)}"
        head = line(
            span(f"{guidance.step:>6} ", "number"),
            span(guidance.author, "guidance"),
            span(then, "score"),
        )
        lines.append(head)
        lines += text_block(guidance.text, width - 7, "guidance_text", span(" " * 7))
    return lines or [line(span("nothing", "dim"))]


PLOT_LINES = 12
"""Lines of the plot; more on a high screen, fewer on a low one."""
MIN_PLOT_LINES = 6


class CompareScreen(HoustonScreen):
    """Two rollouts."""

    BINDINGS = bindings_for("compare")
    area: Area = "compare"

    def __init__(
        self, state: ConsoleState, reader: AsyncReader, home: str, first: str, second: str
    ) -> None:
        """reader: one that no key waits for."""
        super().__init__(state, home)
        self.text = FixedLines(id="beside")
        self._box = Vertical(self.text, id="compare")
        self._reader = reader
        self._rollout_ids = (first, second)
        self._pair: tuple[ComparedRollout, ComparedRollout] | None = None

    def compose_body(self) -> ComposeResult:
        """Compose the frame and its text."""
        yield self._box

    def on_mount(self) -> None:
        """Read both."""
        set_frame_title(self._box, "Side by side")
        self.hints.show_area("compare")
        self.set_focus(self.text)
        self.show_board()

    def show_board(self) -> None:
        """Something changed: read again. A screen that is being opened reads once it is there."""
        if self.is_mounted:
            self.run_latest(self._read, "compare")

    async def _read(self) -> None:
        try:
            self._pair = await self._reader.run(read_compared_rollouts(*self._rollout_ids))
        except HoustonError as problem:
            self.show_error(problem)
            return
        task = self._pair[0].rollout.task
        set_frame_title(self._box, f"Side by side · {task}")
        self.text.show_lines(self._lines)

    def _lines(self, width: int) -> list[TextLine]:
        if self._pair is None:
            return []
        height = max(MIN_PLOT_LINES, min(2 * PLOT_LINES, self.size.height - PLOT_LINES - 10))
        return comparison_lines(self._pair, self.state.person, width, height)
