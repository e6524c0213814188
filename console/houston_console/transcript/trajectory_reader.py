"""Reads of one rollout's trajectory, and the ways to find a step in it.

Short read transactions for blocks of folded rows, one whole step, its annotations, the nearest
step of a kind (error, guidance, score drop, ...), the step at a time. Also parses what a person
types to go somewhere (`1234`, `+5`, `03:15`, `-2h`, `R@1234`). `RolloutSource` offers it all for
one rollout over the asynchronous reader. Nothing is drawn here.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from houston_console.commands import step_outcomes
from houston_console.commands.command_options import SECONDS_PER_UNIT
from houston_console.commands.step_outcomes import CallOutcome
from houston_shared.context_messages import with_critique
from houston_shared.errors import HoustonError
from houston_shared.records import Refinement, StepRecord, ToolCall
from houston_shared.store import (
    annotation_queries,
    journal_events,
    process_reward_queries,
    rollout_queries,
    step_queries,
)
from houston_shared.store.annotation_queries import BookmarkRow, NoteRow, SourceVerdict
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.event_bodies import VerdictGiven
from houston_shared.store.journal_events import CHANGED_STEPS, OPEN_END, ReadPlan, Row, RunSql
from houston_shared.store.journal_events import OUT_OF_STEP_EVENTS as APART
from houston_shared.store.process_reward_queries import ProcessRewardRow
from houston_shared.store.step_queries import QUARANTINED_TEXT

PLACE_HELP = "1234, +5, 50%, 03:15 active time, -2h ago, ROLLOUT@1234"
_STEP_PATTERN = re.compile(r"[+-]?[0-9]{1,9}")
_PERCENT_PATTERN = re.compile(r"([0-9]{1,3})%")
_ACTIVE_TIME_PATTERN = re.compile(r"([0-9]{1,5}):([0-5]?[0-9])(?::([0-5]?[0-9]))?")
_AGO_PATTERN = re.compile(r"-([0-9]{1,6})([smhd])")
_PERMALINK_PATTERN = re.compile(r"([^\s@]{1,200})@([0-9]{1,9})")


class StepTarget(NamedTuple):
    """A place to go to."""

    kind: Literal["step", "percent", "active", "ended", "link"]
    value: int
    """A step, a part of all steps in percent, or microseconds: of active time, or of the clock in
    UTC."""
    rollout: str = ""
    """Of a link: the rollout's id or a unique part of it."""


def parse_step_target(text: str, cursor: int, now_us: int) -> StepTarget | None:
    """The place that `text` names, seen from step `cursor` at `now_us`; None when it names none."""
    text = text.strip()
    if _STEP_PATTERN.fullmatch(text):
        return StepTarget("step", max(0, int(text) + (cursor if text[0] in "+-" else 0)))
    if match := _PERCENT_PATTERN.fullmatch(text):
        return StepTarget("percent", min(100, int(match[1])))
    if match := _ACTIVE_TIME_PATTERN.fullmatch(text):
        hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return StepTarget("active", (hours * 3600 + minutes * 60 + seconds) * 1_000_000)
    if match := _AGO_PATTERN.fullmatch(text):
        return StepTarget("ended", now_us - int(match[1]) * SECONDS_PER_UNIT[match[2]] * 1_000_000)
    if match := _PERMALINK_PATTERN.fullmatch(text):
        return StepTarget("link", int(match[2]), match[1])
    return None


class FoldedStepRow(NamedTuple):
    """One step as its folded line shows it; columns of `steps`, then what is joined to them."""

    step: int
    attempt: int
    tools: str
    calls: int
    errors: int
    guidance_count: int
    attention: str
    score: float | None
    drift: str
    last_seq: int
    is_open: int
    """1 while it has no observation."""
    begins_context: int
    """1 when a new context begins before it."""
    files: int
    """Files that it changed."""
    added: int
    removed: int
    verdict: str
    """Source and 1 for keep or 0 for mask, e.g. `human0`; the one that counts, empty for none."""
    has_bookmark: int
    """1 with somebody's bookmark."""
    thought: str
    """The first words of its thought."""
    has_note: bool = False
    """Whether somebody left a note on it."""
    reward: float | None = None
    """What a process reward model gives its decision, 0 to 1."""
    is_weak: bool = False
    """Whether that is below the threshold."""
    started_at: int = 0
    """UTC microseconds."""
    score_before: float | None = None
    """The newest score before this one."""
    outcomes: tuple[CallOutcome, ...] = ()
    """Its calls and what became of them."""
    malformed: str = ""
    """Why what was sampled is no action."""

    @property
    def seconds(self) -> float:
        """How long its calls took."""
        return sum(outcome.seconds for outcome in self.outcomes)


class FoldMarks(NamedTuple):
    """What stands beside the steps of a run of equal failures."""

    verdicts: Mapping[str, int] = {}
    """How many steps have which verdict that counts, written as in `FoldedStepRow`."""
    bookmarks: int = 0
    """Steps with somebody's bookmark."""
    notes: int = 0
    seconds: float = 0.0
    """From the start of the first to the end of the last."""


class StepAnnotations(NamedTuple):
    """What was said of one step: what an unfolded step shows beside its own words."""

    verdicts: tuple[SourceVerdict, ...] = ()
    """The source that counts first."""
    bookmarks: tuple[BookmarkRow, ...] = ()
    notes: tuple[NoteRow, ...] = ()
    reward: ProcessRewardRow | None = None


NO_ANNOTATIONS = StepAnnotations()


MAX_THOUGHT_CHARACTERS = 240
"""Characters of a thought that a folded line keeps: more than any screen shows."""


class _SampleFields(msgspec.Struct, frozen=True):
    """Of a sample, what a folded line shows."""

    thought: str = ""
    calls: tuple[ToolCall, ...] = ()
    malformed: str = ""


class _ResultFields(msgspec.Struct, frozen=True):
    """Of a result, the same; its text is passed over."""

    call: ToolCall
    kind: str
    success: bool
    fields: dict[str, Any] = {}
    seconds: float = 0.0


class TrajectoryChanges(NamedTuple):
    """What is new in one rollout."""

    touched: list[int]
    """Steps that have new events, in order."""
    steps: int
    """The newest step, open or closed."""
    seq: int


def read_changes(rollout: str, since: int) -> ReadPlan[TrajectoryChanges]:
    """Steps of `rollout` with events after `since`; for 0 only how many steps there are."""
    last = yield from step_queries.find_last_step(rollout)
    newest = yield from rollout_queries.newest_seq(rollout)
    touched: set[int] = set()
    if since:
        rows = yield RunSql(CHANGED_STEPS, (rollout, since))
        touched.update(row[0] for row in rows)
        touched.update((yield from _read_judged_steps(rollout, since)))
    return TrajectoryChanges(sorted(touched - {0}), last, newest)


def _read_judged_steps(rollout: str, since: int) -> ReadPlan[set[int]]:
    """Steps that were judged after `since`: one event tells of a range."""
    rows = yield RunSql(
        f"SELECT seq, step, body FROM events WHERE rollout = ? AND {APART} AND kind = 'verdict'"
        " AND seq > ? AND body IS NOT NULL",
        (rollout, since),
    )
    steps: set[int] = set()
    for seq, first, raw in rows:
        last = journal_events.decode_body(seq, "verdict", raw, VerdictGiven).last
        steps.update(range(first, last + 1))
    return steps


_STEP_ROWS_SQL = """
SELECT s.step, s.attempt, s.tools, s.calls, s.errors, s.guided, s.attention, s.score, s.drift,
       s.last_seq, s.observation_seq IS NULL,
       EXISTS (SELECT 1 FROM forks f WHERE f.rollout = s.rollout AND f.step = s.step),
       coalesce(f.files, 0), coalesce(f.added, 0), coalesce(f.removed, 0),
       EXISTS (SELECT 1 FROM bookmarks b WHERE b.rollout IN (?1, ?4) AND b.step = s.step),
       s.started_at,
       CASE WHEN s.score IS NOT NULL THEN (
           SELECT e.score FROM evaluations e WHERE e.rollout = ?1 AND e.score IS NOT NULL
           AND e.step < s.step ORDER BY e.number DESC LIMIT 1) END,
       s.sample_seq
FROM steps s LEFT JOIN (
    SELECT step, attempt, count(*) AS files, sum(added) AS added, sum(removed) AS removed
    FROM file_changes WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3 GROUP BY step, attempt
) f ON f.step = s.step AND f.attempt = s.attempt
WHERE s.rollout = ?1 AND s.step BETWEEN ?2 AND ?3 AND s.current = 1 ORDER BY s.step
"""
_SMALL_RESULTS = (
    "rollout = ? AND step BETWEEN ? AND ? AND part >= 'call.' AND part < 'call/'"
    " AND body IS NOT NULL"
)
"""What calls returned. Bodies so large that they lie in a blob are left out: of such a result a
folded line says only whether it failed."""
_NO_RESULT = _ResultFields(ToolCall(id="", name="", arguments={}), "", True)


def read_step_rows(rollout: str, first: int, last: int) -> ReadPlan[list[FoldedStepRow]]:
    """Folded lines of the steps `first` to `last`, in order; newest attempts only."""
    rows: list[Row] = []
    results: dict[tuple[int, int], list[_ResultFields]] = {}
    for part in (yield from rollout_queries.step_ranges(rollout, first, last)):
        rows += yield RunSql(_STEP_ROWS_SQL, (*part, rollout))
        for event in (yield from journal_events.select_events(_SMALL_RESULTS, tuple(part))):
            returned = yield from journal_events.read_event_record(event, _ResultFields, _NO_RESULT)
            results.setdefault((event.step, event.attempt), []).append(returned)
    notes = yield RunSql("SELECT step FROM notes WHERE rollout = ?", (rollout,))
    noted_steps = {step for (step,) in notes}
    counts = annotation_queries.effective_verdicts(
        (yield from annotation_queries.list_verdicts(rollout, first, last))
    )
    rewards = yield from process_reward_queries.list_process_rewards(rollout, first, last)
    samples = yield from journal_events.events_by_seq([row[-1] for row in rows])
    folded: list[FoldedStepRow] = []
    for *columns, has_bookmark, started_at, score_before, sample_seq in rows:
        key = (columns[0], columns[1])
        sample = _SampleFields(journal_events.ERASED_TEXT)
        if sample_seq in samples:
            sample = yield from journal_events.read_event_record(
                samples[sample_seq], _SampleFields, sample
            )
        effective, reward = counts.get(key), rewards.get(key)
        effective_text = f"{effective.source}{effective.keep}" if effective else ""
        marks = (effective_text, has_bookmark, sample.thought.strip()[:MAX_THOUGHT_CHARACTERS],
                 columns[0] in noted_steps)  # fmt: skip
        scored = (reward.score, bool(reward.weak)) if reward else (None, False)
        outcomes = _row_outcomes(sample, results.get(key, ()))
        outcome = (started_at, score_before, outcomes, sample.malformed)
        folded.append(FoldedStepRow._make((*columns, *marks, *scored, *outcome)))
    return sorted(folded + (yield from _read_lost_rows(rollout, first, last, folded)))


def _row_outcomes(
    sample: _SampleFields, results: Sequence[_ResultFields]
) -> tuple[CallOutcome, ...]:
    by_call = {result.call.id: result for result in results}
    return tuple(step_outcomes.call_outcome(call, by_call.get(call.id)) for call in sample.calls)


def _read_lost_rows(
    rollout: str, first: int, last: int, rows: Sequence[FoldedStepRow]
) -> ReadPlan[list[FoldedStepRow]]:
    """Rows of steps that a repair has left without any."""
    lost = {
        event.step
        for event in (yield from step_queries.list_quarantined_events(rollout))
        if first <= event.step <= last
    }
    steps = yield from step_queries.list_steps_without_row(
        rollout, lost - {row.step for row in rows}
    )
    lost_fields = (1, "", 0, 0, 0, "", None, "", 0, 0, 0, 0, 0, 0, "", 0, QUARANTINED_TEXT)
    return [FoldedStepRow(step, *lost_fields) for step in steps]


def read_fold_marks(rollout: str, first: int, last: int) -> ReadPlan[FoldMarks]:
    """What stands beside the steps `first` to `last`, counted."""
    verdicts = annotation_queries.effective_verdicts(
        (yield from annotation_queries.list_verdicts(rollout, first, last))
    )
    marked: dict[str, set[int]] = {"bookmarks": set(), "notes": set()}
    times: list[int] = []
    for part in (yield from rollout_queries.step_ranges(rollout, first, last)):
        ends = yield RunSql(
            "SELECT started_at, closed_at FROM steps WHERE rollout = ? AND step IN (?, ?)"
            " AND current = 1",
            tuple(part),
        )
        times += [at for row in ends for at in row if at]
        for table, steps in marked.items():
            rows = yield RunSql(
                f"SELECT step FROM {table} WHERE rollout IN (?1, ?4) AND step BETWEEN ?2 AND ?3",
                (*part, rollout),
            )
            steps.update(step for (step,) in rows)
    # A newer attempt has verdicts of its own; those on one that it replaced do not count.
    newest = dict(sorted(verdicts))
    counts = Counter(
        f"{verdict.source}{verdict.keep}"
        for (step, attempt), verdict in verdicts.items()
        if attempt == newest[step]
    )
    seconds = (max(times) - min(times)) / 1_000_000 if times else 0.0
    return FoldMarks(counts, len(marked["bookmarks"]), len(marked["notes"]), seconds)


def read_step_record(rollout: str, step: int) -> ReadPlan[StepRecord | None]:
    """Everything of one step, or what a repair has left of it; None when there is none."""
    records = yield from step_queries.read_steps_with_attempts(rollout, step, step)
    marked = yield from step_queries.mark_quarantined_steps(rollout, records, step, step)
    return marked[0] if marked else None


def read_annotations(rollout: str, step: int) -> ReadPlan[StepAnnotations]:
    """Verdicts, bookmarks, notes and the score of one step, also those on a parent's own step."""
    verdicts = (yield from annotation_queries.read_verdicts_with_reasons(rollout, step, step)).get(
        step, []
    )
    owner = yield from rollout_queries.owner_of_step(rollout, step)
    marks: list[annotation_queries.BookmarkRow] = []
    notes: list[annotation_queries.NoteRow] = []
    for holder in dict.fromkeys((owner, rollout)):
        marks += [
            mark
            for mark in (yield from annotation_queries.list_bookmarks(holder))
            if mark.step == step
        ]
        notes += [
            note for note in (yield from annotation_queries.list_notes(holder)) if note.step == step
        ]
    rewards = yield from process_reward_queries.list_process_rewards(rollout, step, step)
    newest = rewards[max(rewards)] if rewards else None
    return StepAnnotations(tuple(verdicts), tuple(marks), tuple(notes), newest)


class _TaskInstructions(msgspec.Struct, frozen=True):
    instructions: str = ""


class _OpeningSpec(msgspec.Struct, frozen=True):
    task: _TaskInstructions = _TaskInstructions(journal_events.ERASED_TEXT)
    host_root: str = ""
    refines: Refinement | None = None


class TrajectoryOpening(NamedTuple):
    """The start of a rollout: what its task asks, and where its host keeps what it owns."""

    instructions: str
    system: str
    """Empty before the first prompt."""
    host_root: str


def read_opening(rollout: str) -> ReadPlan[TrajectoryOpening]:
    """Row 0 of a trajectory."""
    row = yield from rollout_queries.find_rollout(rollout)
    event = (yield from journal_events.events_by_seq([row.spec_seq]))[row.spec_seq]
    spec = yield from journal_events.read_event_record(event, _OpeningSpec, _OpeningSpec())
    head = yield from rollout_queries.read_rollout_head(row)
    instructions = with_critique(spec.task.instructions, spec.refines)
    return TrajectoryOpening(instructions, head.system if head else "", spec.host_root)


_STEPS_SQL = (
    "SELECT step FROM steps s WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3 AND current = 1"
)
MAX_SEARCHED_TOOLS = 8
"""Tools of one step that are looked for at most."""
_SCORE_DROPS_SQL = (
    "SELECT step FROM (SELECT step, score, lag(score) OVER (ORDER BY number) AS before"
    " FROM evaluations WHERE rollout = ?1 AND score IS NOT NULL)"
    " WHERE score < before AND step BETWEEN ?2 AND ?3"
)
_MARKED_STEPS_SQL = (
    "SELECT step FROM (SELECT step, rollout FROM bookmarks UNION SELECT step, rollout FROM notes)"
    " WHERE rollout IN (?1, ?4) AND step BETWEEN ?2 AND ?3"
)


class StepKind(NamedTuple):
    """One kind of step to go to."""

    word: str
    """What such a step has, for `No … after step 7.`"""
    select: str
    """Parameters: rollout, first and last step, `extra`."""
    extra: str = ""
    """`tools`: those that are looked for; `open`: the rollout that is open."""


STEP_KINDS = {
    "error": StepKind("error", f"{_STEPS_SQL} AND errors > 0"),
    "guidance": StepKind("guidance", f"{_STEPS_SQL} AND guided > 0"),
    "attention": StepKind("attention mark", f"{_STEPS_SQL} AND attention NOT IN ('', 'error')"),
    "tool": StepKind("step with the same tool", _STEPS_SQL, "tools"),
    "file": StepKind(
        "change of a file",
        "SELECT f.step FROM file_changes f JOIN steps USING (rollout, step, attempt)"
        " WHERE f.rollout = ?1 AND f.step BETWEEN ?2 AND ?3 AND current = 1",
    ),
    "evaluation": StepKind(
        "evaluation", "SELECT step FROM evaluations WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3"
    ),
    "drop": StepKind("fall of the score", _SCORE_DROPS_SQL),
    "fork": StepKind(
        "new context", "SELECT step FROM forks WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3"
    ),
    "bookmark": StepKind("bookmark or note", _MARKED_STEPS_SQL, "open"),
    "verdict": StepKind(
        "verdict", "SELECT step FROM verdicts WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3"
    ),
}


def find_nearest_step(
    rollout: str, step: int, kind: str, forward: bool, tools: str = ""
) -> ReadPlan[int | None]:
    """The nearest step after (or before) `step` of a kind in `STEP_KINDS`; None when there is none.

    tools: for the kind `tool`, comma separated; empty for steps without an action.
    """
    first, last = (step + 1, OPEN_END) if forward else (1, step - 1)
    parts = yield from rollout_queries.step_ranges(rollout, first, last)
    way, order = STEP_KINDS[kind], f"ORDER BY 1 {'ASC' if forward else 'DESC'} LIMIT 1"
    condition, extra = _kind_condition(way.extra, rollout, tools)
    for part in parts if forward else parts[::-1]:
        rows = yield RunSql(f"{way.select} {condition} {order}", (*part, *extra))
        if rows:
            return int(rows[0][0])
    return None


def _kind_condition(kind: str, rollout: str, tools: str) -> tuple[str, tuple[str, ...]]:
    """A condition, and the parameters from the fourth on."""
    if kind == "open":
        return "", (rollout,)
    if kind != "tools":
        return "", ()
    names = tools.split(",")[:MAX_SEARCHED_TOOLS] if tools else []
    same = (f"instr(',' || tools || ',', ?{number + 4}) > 0" for number in range(len(names)))
    condition = " OR ".join(same) or "tools = ''"
    return f"AND ({condition})", tuple(f",{name}," for name in names)


def read_step_tools(rollout: str, step: int) -> ReadPlan[str]:
    """The tools that a step called, comma separated; empty for none."""
    for part in (yield from rollout_queries.step_ranges(rollout, step, step)):
        rows = yield RunSql(
            "SELECT tools FROM steps WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3 AND current = 1",
            part,
        )
        if rows:
            return str(rows[0][0])
    return ""


def find_step_at_time(rollout: str, kind: str, since: int) -> ReadPlan[int | None]:
    """The first step at which `since` microseconds were reached; None when none is that late.

    kind: `active` for active time, `ended` for the wall clock, UTC.
    """
    column = {"active": "active_us", "ended": "coalesce(closed_at, started_at)"}[kind]
    for part in (yield from rollout_queries.step_ranges(rollout)):
        rows = yield RunSql(
            f"{_STEPS_SQL} AND {column} >= ?4 ORDER BY step LIMIT 1", (*part, since)
        )
        if rows:
            return int(rows[0][0])
    return None


T = TypeVar("T")


class RolloutSource:
    """Reads one rollout: a trajectory by its own methods, all else by plans of the rooms.

    Every method may raise HoustonError.
    """

    def __init__(self, reader: AsyncReader, rollout: str) -> None:
        self.rollout = rollout
        self._reader = reader
        self.seq = 0
        """Newest event of the rollout that was read."""

    async def read(self, plan: ReadPlan[T]) -> T:
        """What a plan reads, in one short transaction."""
        return await self._reader.run(plan)

    async def rows(self, first: int, last: int) -> list[FoldedStepRow]:
        """Folded rows of the steps `first` to `last` that there are."""
        return await self.read(read_step_rows(self.rollout, first, last))

    async def fold_marks(self, first: int, last: int) -> FoldMarks:
        """What stands beside the steps `first` to `last`, counted."""
        return await self.read(read_fold_marks(self.rollout, first, last))

    async def record(self, step: int) -> StepRecord | None:
        """Everything of one step; None when there is none."""
        return await self.read(read_step_record(self.rollout, step))

    async def opening(self) -> TrajectoryOpening:
        """What the task asks, and the system prompt."""
        return await self.read(read_opening(self.rollout))

    async def changes(self, since: int) -> TrajectoryChanges:
        """What is new after the sequence `since`."""
        changes = await self.read(read_changes(self.rollout, since))
        self.seq = changes.seq
        return changes

    async def annotations(self, step: int) -> StepAnnotations:
        """What people and judges said of one step."""
        return await self.read(read_annotations(self.rollout, step))

    async def at_time(self, kind: str, since: int) -> int | None:
        """The first step after so much active time, or at a time of the clock."""
        return await self.read(find_step_at_time(self.rollout, kind, since))

    async def lowest(self, step: int, back: bool) -> int | None:
        """The step with the lowest process reward; from that on the next lowest, or `back`.

        Raises HoustonError where no step was scored.
        """
        rewards = await self.read(process_reward_queries.list_step_rewards(self.rollout))
        if not rewards:
            raise HoustonError(
                "No process reward model has scored a step of this rollout.",
                next="[review] process_reward in houston.toml names one (docs/process-rewards.md)",
            )
        return process_reward_queries.find_next_lowest(rewards, step, back)

    async def nearest(self, step: int, kind: str, forward: bool) -> int | None:
        """The nearest step of a kind in `STEP_KINDS` after or before `step`."""
        tools = await self.read(read_step_tools(self.rollout, step)) if kind == "tool" else ""
        return await self.read(find_nearest_step(self.rollout, step, kind, forward, tools))
