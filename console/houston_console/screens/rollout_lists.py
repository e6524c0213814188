"""How rollouts are listed: their order and their words.

Rollouts are sorted by need, but not while somebody reads: for some seconds after a key nothing
moves, and the rollout at the cursor keeps its place for a minute. Ended rollouts that need nobody
may be folded by task. The words cover state, reasons, the score's direction, people who look or
hold a claim, and costs. Pure: it reads nothing and knows no widget.
"""

import time
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Literal, NamedTuple, TypeVar

from houston_console.commands.rollout_summary import format_score, is_settled
from houston_console.widgets.styled_text import (
    TextLine,
    TextSpan,
    Tone,
    hanging_block,
    justify_line,
    line,
    span,
)
from houston_shared.records import ELSEWHERE, ENDED_STATES
from houston_shared.store.attention_ranking import RolloutNeed, RolloutOverview
from houston_shared.store.presence_queries import AttentionCost, ClaimStatus, LastSeen, PresenceRow
from houston_shared.store.process_reward_queries import (
    StepReward,
    reward_curve,
    summarize_process_rewards,
)
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.times_and_counts import format_age, format_duration, pluralize

MICROSECONDS_PER_DAY = 86_400_000_000


def format_moment(at: int, now: int) -> str:
    """A moment in local time: `14:05`, or `Nov 19 14:05` when it was not within a day."""
    form = "%H:%M" if 0 <= now - at < MICROSECONDS_PER_DAY else "%b %d %H:%M"
    return time.strftime(form, time.localtime(at / 1e6))


def person_name(name: str, verified: bool | int, person: str) -> str:
    """How somebody is called here; with a question mark where only they say so."""
    return "you" if name == person else name if verified else f"{name}?"


def other_viewers(overview: RolloutOverview, person: str) -> list[PresenceRow]:
    """Who else looks at a rollout now."""
    return [look for look in overview.viewers if look.name != person]


def claim_text(claim: ClaimStatus | None, person: str, now: int) -> str:
    """Who looks after a rollout since when; empty for nobody."""
    if claim is None or not claim.holder:
        return ""
    holder = person_name(claim.holder, claim.verified, person)
    return f"{holder} since {format_moment(claim.since, now)}"


def handover_note(claim: ClaimStatus | None, person: str) -> ClaimStatus | None:
    """The note for this person, unless somebody else has taken the rollout since."""
    if claim is None or not claim.is_note_for(person):
        return None
    return claim if claim.holder in ("", person, claim.note_by) else None


def own_note(claim: ClaimStatus | None, person: str) -> ClaimStatus | None:
    """A hand-over of this person's own that nobody has taken."""
    return claim if claim and claim.is_handed_over and claim.note_by == person else None


def read_text(claim: ClaimStatus, now: int) -> str:
    """Whether a note was read, for its author."""
    if not claim.read_by:
        return "unread"
    return f"read by {claim.read_by} {format_age(claim.read_at, now)}"


def unread_note(
    claim: ClaimStatus | None, last_seen: LastSeen | None, person: str
) -> ClaimStatus | None:
    """A note that this person had not read before this visit."""
    if claim is None or not claim.is_note_for(person):
        return None
    is_unread = not claim.read_by and bool(claim.note_to)
    return claim if is_unread or last_seen is None or last_seen.at < claim.note_at else None


def people_text(overview: RolloutOverview, person: str, now: int) -> list[tuple[str, str]]:
    """Glyph and words: who looks and where, who holds it, what was left."""
    facts = [
        ("◉", f"{person_name(look.name, look.verified, person)} at step {look.step}")
        for look in other_viewers(overview, person)
    ]
    if claim := claim_text(overview.holding, person, now):
        mine = overview.holding is not None and overview.holding.holder == person
        facts.append(("☞", f"{claim}, C lets go" if mine else claim))
    if note := handover_note(overview.holding, person):
        to = " to you" if note.note_to else ""
        facts.append(("✉", f"{note.note_by}{to}, {format_age(note.note_at, now)}: {note.note}"))
    if handed := own_note(overview.holding, person):
        to = handed.note_to or "anybody"
        facts.append(("✉", f"you to {to}, {read_text(handed, now)}: {handed.note}"))
    return facts


ORDER_HOLD_SECONDS = 8.0
"""After a key or the mouse nothing in a list changes its order for so long."""
CURSOR_HOLD_SECONDS = 60.0
"""After it the rollout at the cursor keeps its place for so long: somebody reads there."""

T = TypeVar("T")


class ListAttention:
    """Whether somebody is at a list."""

    def __init__(self) -> None:
        self.clock: Callable[[], float] = time.monotonic
        self._active_at: float | None = None

    def note_activity(self) -> None:
        """A key was pressed there, or the mouse moved."""
        self._active_at = self.clock()

    def forget_activity(self) -> None:
        """Nobody is there any more."""
        self._active_at = None

    @property
    def is_moving(self) -> bool:
        """Whether somebody moves through it: its order is held."""
        return self._was_active_within(ORDER_HOLD_SECONDS)

    @property
    def is_reading(self) -> bool:
        """Whether somebody may still read at the cursor."""
        return self._was_active_within(CURSOR_HOLD_SECONDS)

    def _was_active_within(self, seconds: float) -> bool:
        return self._active_at is not None and self.clock() - self._active_at < seconds


def keep_order(items: Sequence[T], before: Sequence[T], key: Callable[[T], Hashable]) -> list[T]:
    """`items` in the order of before; what is new comes last, in its own order."""
    places = {key(item): at for at, item in enumerate(before)}
    return sorted(items, key=lambda item: places.get(key(item), len(places)))


class ListRow(NamedTuple):
    """One entry of a list: a rollout, a fold of ended ones, or else the task over what follows."""

    task: str
    need: RolloutNeed | None = None
    ended: tuple[RolloutNeed, ...] = ()
    """The rollouts of a fold; empty for all other rows."""
    is_open: bool = False
    """Whether the rollouts of a fold are listed below it."""
    is_settled: bool = False
    """Whether a rollout has ended and asks for nobody: it takes one line."""

    @property
    def id(self) -> str:
        """The id of the rollout; empty for a task and a fold."""
        return self.need.overview.rollout.id if self.need else ""

    @property
    def is_task(self) -> bool:
        """Whether it is the name of a task over its rollouts."""
        return self.need is None and not self.ended


def is_unseen(need: RolloutNeed) -> bool:
    """Whether nobody has had the newest event of a rollout before their eyes."""
    return need.overview.seen_seq < need.overview.rollout.last_seq


def fold_settled(
    rows: Sequence[ListRow], settled: Collection[str], unfolded: Collection[str]
) -> list[ListRow]:
    """`rows` with the rollouts `settled` behind all others, each task's as one fold.

    Under its task where tasks are listed, else by the task's name. A single rollout of a task needs
    no fold. unfolded: tasks whose settled rollouts follow their fold one by one.
    """
    by_task: dict[str, list[RolloutNeed]] = {}
    for row in rows:
        if row.need and row.id in settled:
            by_task.setdefault(row.task, []).append(row.need)
    listed: list[ListRow] = []
    under_task = ""
    for row in rows:
        if row.is_task:
            listed += _settled_rows(under_task, by_task.pop(under_task, []), unfolded)
            under_task = row.task
        if row.id not in settled:
            listed.append(row)
    for task in sorted(by_task):
        listed += _settled_rows(task, by_task[task], unfolded)
    return listed


def _settled_rows(
    task: str, needs: Sequence[RolloutNeed], unfolded: Collection[str]
) -> list[ListRow]:
    rows = [ListRow(task, need, is_settled=True) for need in needs]
    if len(needs) < 2:
        return rows
    fold = ListRow(task, ended=tuple(needs), is_open=task in unfolded)
    return [fold, *rows] if fold.is_open else [fold]


def arrange_rows(
    needs: Sequence[RolloutNeed],
    by_task: bool,
    before: Sequence[ListRow] = (),
    keep: str = "",
    hold: bool = False,
) -> list[ListRow]:
    """`needs`, which are sorted by need, as the list shows them.

    by_task: grouped by task, the task with the neediest rollout first. before, keep: the rows shown
    before, and the rollout whose place stays as it is. hold: all rows keep their order.
    """
    rows = [ListRow(need.overview.rollout.task, need) for need in needs]
    if hold:
        rows, keep = keep_order(rows, [row for row in before if row.need], lambda row: row.id), ""
    if not by_task:
        return _pin_row(rows, [row for row in before if row.need], keep)
    by: dict[str, list[ListRow]] = {}
    if keep or hold:
        by = {row.task: [] for row in before}
    for row in rows:
        by.setdefault(row.task, []).append(row)
    listed: list[ListRow] = []
    for task, ones in by.items():
        if ones:
            stood = [row for row in before if row.need and row.task == task]
            listed += [ListRow(task), *_pin_row(ones, stood, keep)]
    return listed


def _pin_row(rows: list[ListRow], before: Sequence[ListRow], keep: str) -> list[ListRow]:
    """`rows`, but with the rollout `keep` at the place that it had."""
    place = next((at for at, row in enumerate(before) if keep and row.id == keep), None)
    mine = next((row for row in rows if keep and row.id == keep), None)
    if place is None or mine is None:
        return rows
    other_rows = [row for row in rows if row is not mine]
    return [*other_rows[:place], mine, *other_rows[place:]]


class ListOrder:
    """How one list of rollouts stands, from one read to the next."""

    def __init__(self, folds: bool = False) -> None:
        """folds: whether what has ended and asks for nobody stands behind all others."""
        self._folds = folds
        self.attention = ListAttention()
        self.rows: list[ListRow] = []
        self.is_held = False
        """Whether it would be another if nobody moved through the list."""
        self.settled: frozenset[str] = frozenset()
        """Rollouts that stand behind the others, because they have ended and ask for nobody."""
        self._sorted_ids: set[str] = set()
        """Rollouts that were there when it was by need last."""

    def arrange(
        self, needs: Sequence[RolloutNeed], by_task: bool, cursor: str, hold: bool = True
    ) -> list[ListRow]:
        """`needs` as it is listed now. cursor: the rollout there, empty to keep no place.

        hold: keep the order while somebody moves through the list.
        """
        keep = cursor if self.attention.is_reading else ""
        rows = wanted_rows = arrange_rows(needs, by_task, self.rows, keep)
        settled = wanted_settled = self._find_settled(needs, keep)
        if hold and self.attention.is_moving and self.rows:
            rows = arrange_rows(needs, by_task, self.rows, hold=True)
            settled = self._hold_settled(rows, wanted_settled)
        self.rows, self.settled = rows, settled
        self.is_held = rows != wanted_rows or settled != wanted_settled
        if not self.is_held:
            self._sorted_ids = {row.id for row in rows}
        return rows

    def fold(self, unfolded: Collection[str]) -> list[ListRow]:
        """The rows, what has ended and asks for nobody as folds behind the others."""
        return fold_settled(self.rows, self.settled, unfolded)

    def _find_settled(self, needs: Sequence[RolloutNeed], keep: str) -> frozenset[str]:
        """As things stand; the rollout `keep` stays where it is."""
        if not self._folds:
            return frozenset()
        settled = {need.overview.rollout.id for need in needs if is_settled(need)} - {keep}
        return frozenset(settled | ({keep} & self.settled))

    def _hold_settled(self, rows: Sequence[ListRow], now: frozenset[str]) -> frozenset[str]:
        """Those that stood behind before, and of the new ones those that have ended."""
        before, ids = {row.id for row in self.rows}, {row.id for row in rows}
        return frozenset((self.settled & ids) | (now - before))

    @property
    def is_due(self) -> bool:
        """Whether it was held, and need not be any more."""
        return self.is_held and not self.attention.is_moving

    def hold_text(self, key: str) -> str:
        """That it is held, and what is new; empty where it is by need. key: what sorts at once."""
        new = len({row.id for row in self.rows} - self._sorted_ids)
        return f"{f'{new} new, ' if new else ''}order held: {key} sorts" if self.is_held else ""


def filter_needs(needs: Sequence[RolloutNeed], words: str) -> list[RolloutNeed]:
    """Those that hold every word somewhere: in name, task, state, reasons, action, or people."""
    wanted_words = words.lower().split()
    return [need for need in needs if all(word in searchable_text(need) for word in wanted_words)]


def searchable_text(need: RolloutNeed) -> str:
    """Name, task, state, reasons, action and people of a rollout, in small letters."""
    overview, rollout = need.overview, need.overview.rollout
    parts = [rollout.id, rollout.task, rollout.state, rollout.activity, rollout.policy, need.text]
    parts += [look.name for look in overview.viewers]
    parts += [overview.holding.holder] if overview.holding else []
    parts += [overview.acted.text] if overview.acted else []
    return "\n".join(parts).lower()


STATE_GLYPHS: dict[str, tuple[str, Tone]] = {
    "running": ("●", "success"),
    "paused": ("‖", "warning"),
    "queued": ("○", "dim"),
    "finished": ("✓", "dim"),
    "failed": ("✗", "error"),
    "cancelled": ("⊘", "faint"),
}
"""Glyph and tone of each state of a rollout."""
URGENT_WEIGHT = 40.0
"""Weight from which a need is shown as one that should not wait."""
LAST_KNOWN_TEXT = "when the daemon was last here"
"""What is said of a rollout that ran then: whether it runs now is not known without it."""
MAX_REASON_LINES = 5
"""Lines of a state and its reason on the card."""


def selector_line(row: ListRow, width: int, chosen: str, first: bool = False) -> TextLine:
    """A line of the selector: a task (the first names the columns), or a rollout under it."""
    if row.need is None:
        heads = line(span("best steps " if first else "", "faint"))
        return justify_line(line(span(" "), span(row.task, "title")), heads, width)
    rollout = row.need.overview.rollout
    glyph, tone = STATE_GLYPHS.get(rollout.state, ("?", "dim"))
    name: Tone = "strong" if rollout.id == chosen else "text"
    name_text = name_within_task(rollout.id, rollout.task)
    label: TextLine = (urgency_mark(row.need), span(f"{glyph} ", tone), span(name_text, name))
    marks: list[TextSpan] = [span(" ")]
    if row.need.overview.queued:
        marks.append(span(f"✎{row.need.overview.queued} ", "guidance"))
    if rollout.errors:
        marks.append(span(f"✗{rollout.errors} ", "error"))
    if rollout.best_score is not None:
        scores = [point.score for point in row.need.overview.scores]
        direction = score_direction(scores, rollout.best_score)
        mark, tone = DIRECTION_MARKS[direction]
        best = "text" if direction == "none" else tone  # it was not read yet how it moves
        marks.append(span(f"{format_score(rollout.best_score):>5}{mark}", best))
    marks.append(span(f"{rollout.steps:>4} ", "number"))
    return justify_line(label, tuple(marks), width)


def urgency_mark(need: RolloutNeed) -> TextSpan:
    """One cell: how much a rollout needs somebody."""
    if need.weight >= URGENT_WEIGHT:
        return span("▲", "error")
    return span("△", "warning") if need.weight else span(" ")


def name_within_task(rollout: str, task: str) -> str:
    """What tells a rollout from the others of its task: the id without the task's name."""
    return rollout.removeprefix(f"{task}-") or rollout


def rollout_state_text(rollout: RolloutRow, down: bool = False) -> str:
    """A rollout's state, who owns its pause, and why; for what runs without a daemon: when."""
    text = rollout.state
    if rollout.paused_by:
        text += f" by {rollout.paused_by}"
    if rollout.cancelling and rollout.state not in ENDED_STATES:
        text += f", being cancelled by {rollout.cancelling}"
    if rollout.reason == "finish":
        text += ": the agent called finish"
    elif rollout.reason:  # which may say all of it: "cancelled by person:ada: …"
        text = (
            rollout.reason
            if rollout.reason.startswith(rollout.state)
            else f"{text}: {rollout.reason}"
        )
    return f"{text} {LAST_KNOWN_TEXT}" if down and rollout.state == "running" else text


def ending_text(rollout: RolloutRow) -> tuple[str, Tone]:
    """What stands after the newest step of a rollout that does not go on: why; else nothing."""
    if rollout.state == "running" and not rollout.cancelling:
        return "", "text"
    glyph, tone = STATE_GLYPHS.get(rollout.state, ("?", "dim"))
    return f"{glyph} {rollout_state_text(rollout)}", tone


ScoreDirection = Literal["none", "single", "at best", "rising", "falling", "level"]
"""How the newest score stands to the best and to the one before it."""
DIRECTION_MARKS: dict[ScoreDirection, tuple[str, Tone]] = {
    "none": (" ", "faint"),
    "single": (" ", "text"),
    "at best": ("=", "score"),
    "rising": ("↑", "tool"),
    "falling": ("↓", "error"),
    "level": ("→", "warning"),
}
"""Glyph and tone: at its best; below it and going up, down, or neither."""


def score_direction(scores: Sequence[float], best: float | None = None) -> ScoreDirection:
    """Where the newest of some scores, the oldest first, stands.

    best: of all scores of the rollout, where these are only its newest.
    """
    if len(scores) < 2:
        return "single" if scores else "none"
    newest, before = scores[-1], scores[-2]
    if newest >= max(*scores, newest if best is None else best):
        return "at best"
    return "rising" if newest > before else "falling" if newest < before else "level"


SPARKLINE_BLOCKS = "▁▂▃▄▅▆▇█"
SPARKLINE_TOP_SCORE = 100.0
"""Scores go from 0 to 100; what is higher stretches the scale."""


def render_sparkline(
    values: Sequence[float], max_cells: int, min_top: float = SPARKLINE_TOP_SCORE
) -> str:
    """The last `max_cells` values, one character each, on a scale from 0 to 100 (or `min_top`)."""
    if max_cells <= 0:
        return ""
    shown_values = values[-max_cells:]
    top = max([min_top, *shown_values])
    return "".join(SPARKLINE_BLOCKS[_sparkline_level(value, top)] for value in shown_values)


def _sparkline_level(value: float, top: float) -> int:
    share = min(max(value / top, 0.0), 1.0)
    return min(len(SPARKLINE_BLOCKS) - 1, int(share * len(SPARKLINE_BLOCKS)))


def rollout_facts(
    need: RolloutNeed,
    spent: Sequence[AttentionCost],
    rewards: Sequence[StepReward],
    down: bool,
    person: str,
    now: int,
    width: int,
) -> list[TextLine]:
    """What the selector says about the rollout under its cursor; down: there is no daemon.

    spent: what people gave to it. rewards: what a process reward model gives its decisions. person:
    the name of who sits here. now: UTC microseconds.
    """
    rollout = need.overview.rollout
    glyph, tone = STATE_GLYPHS.get(rollout.state, ("?", "dim"))
    rows = hanging_block(span(f" {glyph} ", tone), rollout_state_text(rollout, down), width, tone)
    if len(rows) > MAX_REASON_LINES:
        more = span("   … in full after the newest step", "dim")
        rows = [*rows[: MAX_REASON_LINES - 1], line(more)]
    scores = f"{format_score(rollout.best_score)} best, {format_score(rollout.last_score)} last"
    facts = {
        "now": rollout.activity if rollout.state == "running" and not down else "",
        "id": rollout.id,
        "active": format_duration(rollout.active_us / 1e6),
        "score": scores if rollout.last_score is not None else "none yet",
        "reward": _reward_text(rewards),
        "": _reward_curve(rewards, width),
        "engine": rollout.policy or rollout.engine,
    }
    for name, value in facts.items():
        if value:
            rows += hanging_block(span(f"   {name:<7} ", "key"), value, width, "text")
    for reason in need_reasons(need)[:3]:
        rows += hanging_block(span("   ! ", "warning"), reason, width, "warning")
    for head, text in people_text(need.overview, person, now):
        rows += hanging_block(span(f"   {head} ", "key"), text, width, "text")
    rows += [
        row
        for cost in spent
        for row in hanging_block(span("   ◷ ", "key"), person_cost(cost, person), width, "dim")
    ]
    return rows


FACT_LABEL_CELLS = 12
"""Cells before the value of a fact, and one behind it."""
LONGEST_CURVE_CELLS = 40


def _reward_text(rewards: Sequence[StepReward]) -> str:
    summary = summarize_process_rewards(rewards)
    if summary is None:
        return ""
    return f"{summary.mean:.2f} mean, {summary.lowest:.2f} at {summary.lowest_step}"


def _reward_curve(rewards: Sequence[StepReward], width: int) -> str:
    """Process rewards over the active time."""
    cells = max(1, min(LONGEST_CURVE_CELLS, width - FACT_LABEL_CELLS))
    return render_sparkline(reward_curve(rewards, cells), cells, 1.0)


def need_reasons(need: RolloutNeed) -> list[str]:
    """Why somebody should look, but what the first line says already."""
    rollout = need.overview.rollout
    reasons = [
        reason.text for reason in need.reasons if reason.kind not in ("paused", "failed", "gpu")
    ]
    if need.overview.queued:
        reasons.append(f"{need.overview.queued} waiting")
    if rollout.errors:
        reasons.append(f"{rollout.errors} with errors")
    if rollout.sandbox == "none":
        reasons.append("no sandbox")
    elif rollout.sandbox == ELSEWHERE:
        reasons.append("sampled elsewhere")
    return reasons


def person_cost(cost: AttentionCost, person: str) -> str:
    """What a rollout had of one person: `ada 42 min, 118 words`."""
    name = "you" if cost.name == person else cost.name if cost.verified else f"{cost.name}?"
    parts = [format_duration(cost.active_us / 1e6)] if cost.active_us or not cost.words else []
    if cost.words:
        parts.append(pluralize(cost.words, "word"))
    return f"{name} {', '.join(parts)}"
