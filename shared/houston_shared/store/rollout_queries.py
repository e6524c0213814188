"""Rollouts and tasks: lists, one by its abbreviated id, forks, samples, usage and scores.

A branch shares the steps of its parent up to where it began, and nothing of the shared past is
stored twice. A range of steps is therefore read as several ranges, each from the rollout that has
it (`step_ranges`), to any depth. Also: the newest event of the journal, the events after a
sequence, the rollouts that a command selects, and, without a daemon, the time of the newest data.
Steps are in `step_queries`; who needs a person is in `attention_ranking`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from houston_shared import home_lock
from houston_shared.errors import (
    ExitCode,
    HoustonError,
    UsageError,
    abbreviated_names,
    close_matches,
)
from houston_shared.records import (
    AT_REST_ACTIVITY,
    AWAY_ACTIVITY,
    AWAY_MARK,
    PURIFIED_ENGINE,
    ContextHead,
    ForkBody,
    RolloutSpec,
    TaskRecord,
)
from houston_shared.store import journal_events, store_reader
from houston_shared.store.journal_events import (
    OPEN_END,
    JournalEventHeader,
    ReadPlan,
    RowRecord,
    RunSql,
    column_list,
    kinds_condition,
    rows_to_records,
    select_first_record,
    select_records,
    split_for_in,
)
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import local_time

LINEAGE_SQL = """
WITH RECURSIVE line (id, first, last, parent) AS (
    SELECT id, CASE WHEN parent = '' THEN 1 ELSE coalesce(parent_step, 0) + 1 END, ?2, parent
    FROM rollouts WHERE id = ?1
    UNION ALL
    SELECT r.id, CASE WHEN r.parent = '' THEN 1 ELSE coalesce(r.parent_step, 0) + 1 END,
           line.first - 1, r.parent
    FROM line JOIN rollouts r ON r.id = line.parent WHERE line.first > 1
)
"""
"""A rollout (?1) and those it shares steps with, newest first: the steps up to ?2 that each has."""


class OwnedStepRange(NamedTuple):
    """Consecutive steps of one rollout."""

    rollout: str
    first: int
    last: int


def step_ranges(
    rollout: str, first: int = 1, last: int = OPEN_END
) -> ReadPlan[list[OwnedStepRange]]:
    """Where steps `first` to `last` (both included) of a rollout lie, in order."""
    rows = yield RunSql(
        f"{LINEAGE_SQL} SELECT id, first, last FROM line ORDER BY first", (rollout, last)
    )
    if not rows:  # not a rollout of this home: then nothing is shared
        return [OwnedStepRange(rollout, first, last)]
    parts = (OwnedStepRange(owner, max(first, begin), min(last, end)) for owner, begin, end in rows)
    return [part for part in parts if part.first <= part.last]


def owner_of_step(rollout: str, step: int) -> ReadPlan[str]:
    """The rollout whose step it is: `rollout` itself, or one that it is a branch of."""
    ranges = yield from step_ranges(rollout, step, step)
    return ranges[-1].rollout if ranges else rollout


_IDS_NAMED = 5
"""Ids that an error names at most."""


class RolloutRow(RowRecord, frozen=True):
    """A row of `rollouts`; times in microseconds UTC."""

    id: str
    task: str
    state: str
    paused_by: str
    reason: str
    engine: str
    policy: str
    group_id: str
    parent: str
    parent_step: int | None
    sandbox: str
    forks: int
    first_step: int
    """First step of the current context."""
    steps: int
    """Closed steps."""
    active_us: int
    evaluations: int
    best_score: float | None
    last_score: float | None
    errors: int
    activity: str
    created_at: int
    updated_at: int
    last_seq: int
    spec_seq: int
    head_seq: int | None
    cancelling: str = ""
    """Who asked to cancel it while a worker still runs it."""
    role_engines: str = "{}"
    """JSON: role → `engine` and `policy`, of roles that have an engine of their own."""


def role_engines(rollout: RolloutRow) -> dict[str, dict[str, str]]:
    """Role → `engine` and `policy`, of roles that have an engine of their own."""
    return dict(msgspec.json.decode(rollout.role_engines))


def sampling_engines(rollout: RolloutRow) -> list[str]:
    """All engines that a rollout samples with, that of its steps first."""
    return [rollout.engine, *(own["engine"] for own in role_engines(rollout).values())]


def is_at_rest(rollout: RolloutRow) -> bool:
    """Whether a rollout is paused and nothing of it runs any more: no step is under way.

    A worker that an engine refused asks it again, and does nothing else.
    """
    return rollout.state == "paused" and (
        rollout.activity == AT_REST_ACTIVITY or rollout.activity.startswith(AWAY_ACTIVITY)
    )


class EngineWaitedFor(NamedTuple):
    """An engine that workers cannot sample from."""

    engine: str
    activity: str
    """What one of the workers says of it; cut."""
    rollouts: int

    @property
    def sentence(self) -> str:
        """Both, as a sentence."""
        count_text = "1 rollout is" if self.rollouts == 1 else f"{self.rollouts} rollouts are"
        return f"{count_text} {self.activity}"


class TaskRow(RowRecord, frozen=True):
    """A row of `tasks`, with how many rollouts it has."""

    name: str
    seq: int
    first_seen: int
    rollouts: int
    running: int
    """Rollouts that have not ended."""
    best_score: float | None


def list_rollouts(task: str = "", state: str = "") -> ReadPlan[list[RolloutRow]]:
    """Every rollout, newest first; of one task or in one state when named."""
    source = (
        "rollouts WHERE (?1 = '' OR task = ?1) AND (?2 = '' OR state = ?2)"
        " ORDER BY created_at DESC, id DESC"
    )
    return (yield from select_records(RolloutRow, source, (task, state)))


def list_engines_waited_for() -> ReadPlan[list[EngineWaitedFor]]:
    """Engines that rollouts wait for, by name, as their workers said last."""
    rows = yield RunSql(
        "SELECT engine, activity FROM rollouts"
        " WHERE (state = 'running' OR paused_by = 'engine') AND substr(activity, 1, ?) = ?",
        (len(AWAY_ACTIVITY), AWAY_ACTIVITY),
    )
    by_engine: dict[str, list[str]] = {}
    for engine, activity in rows:
        by_engine.setdefault(engine_waited_for(activity, engine), []).append(activity)
    return [
        EngineWaitedFor(name, max(texts), len(texts)) for name, texts in sorted(by_engine.items())
    ]


def engine_waited_for(activity: str, engine: str) -> str:
    """The engine that a worker waits for: that of a role, which its activity names, or `engine`."""
    return activity.removeprefix(AWAY_ACTIVITY).partition(AWAY_MARK)[0].strip() or engine


def find_rollout(name: str) -> ReadPlan[RolloutRow]:
    """The rollout with this id, or a unique beginning or else ending of one.

    Raises HoustonError naming those that are meant, or near ones.
    """
    exact = yield from select_first_record(RolloutRow, "rollouts WHERE id = ?", (name,))
    if exact:
        return exact
    rows = yield RunSql("SELECT id FROM rollouts ORDER BY created_at DESC, id DESC")
    ids = [row[0] for row in rows]
    matching, match_word = abbreviated_names(name, ids)
    if len(matching) == 1:
        return (yield from find_rollout(matching[0]))
    raise _unknown_rollout(name, ids, matching, match_word)


def resolve_rollout_id(name: str) -> ReadPlan[str]:
    """The full id that `name` stands for; raises HoustonError naming near ones."""
    return (yield from find_rollout(name)).id


def read_rollout_spec(rollout: RolloutRow) -> ReadPlan[RolloutSpec]:
    """What the rollout was started with; raises HoustonError when it was erased."""
    spec = yield from read_spec_if_kept(rollout)
    if spec is None:
        raise HoustonError(f"What rollout {rollout.id} was started with was erased.")
    return spec


def read_workspace_folder(rollout: RolloutRow) -> ReadPlan[str | None]:
    """Folder of the workspace on the rollout's host; None where that was erased or is none."""
    spec = yield from read_spec_if_kept(rollout)
    root = spec.host_root if spec else ""
    return f"{root}/rollouts/{rollout.id}/workspace" if root else None


def read_spec_if_kept(rollout: RolloutRow) -> ReadPlan[RolloutSpec | None]:
    """What the rollout was started with; None when it was erased. Raises HoustonError when it is
    damaged."""
    event = (yield from journal_events.events_by_seq([rollout.spec_seq])).get(rollout.spec_seq)
    raw = None if event is None else (yield from journal_events.read_event_body(event))
    if event is None or raw is None:
        return None
    return journal_events.decode_body(event.seq, event.kind, raw, RolloutSpec)


def read_rollout_head(rollout: RolloutRow) -> ReadPlan[ContextHead | None]:
    """The head of the rollout's contexts as rendered; None before its first prompt."""
    if rollout.head_seq is None:
        return None
    return (yield from journal_events.read_record_at(rollout.head_seq, ContextHead, ERASED_HEAD))


def list_tasks() -> ReadPlan[list[TaskRow]]:
    """Every task of the home, by name."""
    rows = yield RunSql(
        "SELECT name, seq, first_seen, coalesce(rollouts, 0), coalesce(running, 0), best_score"
        " FROM tasks LEFT JOIN (SELECT task, count(*) AS rollouts,"
        " count(*) FILTER (WHERE state IN ('queued', 'running', 'paused')) AS running,"
        " max(best_score) AS best_score FROM rollouts GROUP BY task) ON task = name ORDER BY name"
    )
    return rows_to_records(TaskRow, rows)


def list_newest_tasks(limit: int) -> ReadPlan[dict[str, int]]:
    """Tasks that were told of last → the event that did; counts nothing, however many there are."""
    rows = yield RunSql("SELECT name, seq FROM tasks ORDER BY seq DESC LIMIT ?", (limit,))
    return {str(name): int(seq) for name, seq in rows}


def read_task_folder(seq: int) -> ReadPlan[str]:
    """Where a task lies that the event `seq` told of; empty where that was erased."""
    erased = TaskRecord(name="", folder="", definition="", instructions="")
    return (yield from journal_events.read_record_at(seq, TaskRecord, erased)).folder


def read_task_record(task: TaskRow) -> ReadPlan[TaskRecord]:
    """The newest definition of a task."""
    erased = TaskRecord(
        name=task.name, folder="", definition="", instructions=journal_events.ERASED_TEXT
    )
    return (yield from journal_events.read_record_at(task.seq, TaskRecord, erased))


ERASED_HEAD = ContextHead(
    system=journal_events.ERASED_TEXT,
    task=journal_events.ERASED_TEXT,
    tools=(),
    rendered="",
    token_ids=None,
    dialect="",
    tokenizer="",
)


def _unknown_rollout(
    name: str, ids: list[str], matching: list[str], match_word: str
) -> HoustonError:
    if matching:
        named = ", ".join(matching[:_IDS_NAMED]) + (", …" if len(matching) > _IDS_NAMED else "")
        cause = f"{len(matching)} rollouts {match_word} with {name!r}: {named}."
    else:
        near = close_matches(name, ids, _IDS_NAMED, cutoff=0.6)
        cause = f"There is no rollout {name!r} in this home."
        if near:
            cause += f" Near it: {', '.join(near)}."
    code = ExitCode.USAGE if matching else ExitCode.NOT_FOUND
    return HoustonError(cause, "Nothing was done.", "houston rollout list", code)


class ForkRow(RowRecord, frozen=True):
    """A row of `forks`: a context that began by summarising."""

    number: int
    step: int
    """The step that the new context comes before."""
    k: int
    first_kept_step: int
    mechanical: int
    sample_seq: int | None
    seq: int


class SampleRow(RowRecord, frozen=True):
    """A row of `samples`: the ledger's counts, without ids."""

    seq: int
    rollout: str
    step: int
    attempt: int
    role: str
    parent_seq: int | None
    kept: int
    new_ids: int | None
    sampled_ids: int | None
    prompt_tokens: int | None
    cached_tokens: int | None
    finish_reason: str
    logprob_kind: str
    engine: str
    policy: str
    drift: str
    guided: int
    seconds: float
    completion_tokens: int | None
    reasoning_tokens: int | None
    cost: float | None = None


class RolloutTokenUsage(RowRecord, frozen=True):
    """Tokens of all samples of a rollout, summaries included; None where no engine said."""

    samples: int
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    cost: float | None
    """Of the samples whose engine has a price; None where none has."""
    reckoned: int
    """Of those, the samples whose endpoint did not count its tokens."""


def newest_seq(rollout: str = "") -> ReadPlan[int]:
    """Newest sequence of the journal, or of one rollout; 0 when there is none."""
    if rollout:
        rows = yield RunSql("SELECT last_seq FROM rollouts WHERE id = ?", (rollout,))
    else:
        rows = yield RunSql("SELECT coalesce(max(seq), 0) FROM events")
    return int(rows[0][0]) if rows else 0


def events_since(
    seq: int, rollout: str = "", limit: int = 1000, kinds: tuple[str, ...] = ()
) -> ReadPlan[list[JournalEventHeader]]:
    """Events after `seq`, oldest first: what a reader missed while it was away."""
    if rollout:
        rows = yield from journal_events.events_forward(
            column_list(JournalEventHeader), rollout, seq, limit, kinds
        )
    else:
        rows = yield RunSql(
            f"SELECT {column_list(JournalEventHeader)} FROM events WHERE seq > ?"
            f" {kinds_condition(kinds)} ORDER BY seq LIMIT ?",
            (seq, *kinds, limit),
        )
    return rows_to_records(JournalEventHeader, rows)


def newest_events(limit: int, rollout: str = "") -> ReadPlan[list[JournalEventHeader]]:
    """The last `limit` events, oldest first."""
    if rollout:
        return (yield from newest_events_until(OPEN_END - 1, rollout, limit))
    source = "events WHERE seq > 0 ORDER BY seq DESC LIMIT ?"
    return (yield from select_records(JournalEventHeader, source, (limit,)))[::-1]


def newest_events_until(
    seq: int, rollout: str, limit: int, kinds: tuple[str, ...] = ()
) -> ReadPlan[list[JournalEventHeader]]:
    """The last `limit` events of a rollout up to `seq`, oldest first."""
    rows = yield from journal_events.events_backward(
        column_list(JournalEventHeader), rollout, seq + 1, limit, kinds
    )
    return rows_to_records(JournalEventHeader, rows[::-1])


def count_drifts(rollout: str) -> ReadPlan[dict[str, int]]:
    """Steps of a rollout by class: clean, stripped, realigned, forked."""
    rows = yield RunSql(
        "SELECT drift, count(*) FROM steps WHERE rollout = ? AND current = 1 GROUP BY drift",
        (rollout,),
    )
    return dict(rows)


def list_forks(rollout: str) -> ReadPlan[list[ForkRow]]:
    """Forks of a rollout, in order; of a branch those of the past that it shares, too."""
    source = "forks WHERE rollout = ? AND step BETWEEN ? AND ? ORDER BY number"
    forks: list[ForkRow] = []
    for part in (yield from step_ranges(rollout)):
        forks += yield from select_records(ForkRow, source, part)
    return forks


def read_fork_body(fork: ForkRow) -> ReadPlan[ForkBody]:
    """What a fork put into the context."""
    erased = ForkBody(
        k=fork.k, first_kept_step=fork.first_kept_step, summary=journal_events.ERASED_TEXT
    )
    return (yield from journal_events.read_record_at(fork.seq, ForkBody, erased))


def read_token_usage(rollout: str) -> ReadPlan[RolloutTokenUsage]:
    """What a rollout's own samples cost, as the engines counted it."""
    rows = yield RunSql(
        "SELECT count(*), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens),"
        " sum(reasoning_tokens), sum(cost), count(cost) FILTER (WHERE completion_tokens IS NULL AND"
        " sampled_ids IS NULL) FROM samples WHERE engine <> ? AND seq IN"
        " (SELECT seq FROM events WHERE rollout = ? AND part IS NOT NULL)",
        (PURIFIED_ENGINE, rollout),
    )
    return RolloutTokenUsage(*rows[0])


class RolloutCost(RowRecord, frozen=True):
    """What a rollout cost, by the prices of its engines as they were then; None without one."""

    samples: float | None = None
    """Its own samples, those of its roles too."""
    review: float | None = None
    """What judges and critics took to read it."""


def read_costs(rollout: str = "") -> ReadPlan[dict[str, RolloutCost]]:
    """By rollout what it cost; without a name all rollouts. Those without a price are left out."""
    only = "AND rollout = ?" if rollout else ""
    sums: list[dict[str, float]] = []
    for table in ("samples", "review_costs"):
        rows = yield RunSql(
            f"SELECT rollout, sum(cost) FROM {table} WHERE cost IS NOT NULL {only}"
            " GROUP BY rollout",
            (rollout,) if rollout else (),
        )
        sums.append({name: float(cost) for name, cost in rows})
    samples, review = sums
    return {name: RolloutCost(samples.get(name), review.get(name)) for name in {*samples, *review}}


def find_sample(seq: int | None) -> ReadPlan[SampleRow | None]:
    """The ledger's entry with this sequence; None when there is none."""
    return (yield from select_first_record(SampleRow, "samples WHERE seq = ?", (seq,)))


def scores_around(rollout: str, step: int) -> ReadPlan[tuple[float | None, float | None]]:
    """The last score of a rollout (a whole id) up to a step, and the newest one after it; with
    those of a past that it shares."""
    points = yield from _scores_until(rollout, OPEN_END)
    before = [point.score for point in points if point.step <= step]
    after = [point.score for point in points if point.step > step]
    return before[-1] if before else None, after[-1] if after else None


MAX_SCORES = 32
"""Scores of one rollout that are given unless asked otherwise: the newest."""


_SELECT_SCORES = (
    "SELECT e.rollout, e.step, max(s.active_us), e.at, e.score FROM evaluations e JOIN steps s"
    " ON s.rollout = e.rollout AND s.step = e.step AND s.current WHERE e.score IS NOT NULL AND"
)
_SCORE_ORDER = "GROUP BY e.rollout, e.number ORDER BY e.rollout, e.number"


class ScorePoint(NamedTuple):
    """One submission that gave a score."""

    step: int
    active_us: int
    """Active time of the rollout at that step's end, microseconds."""
    at: int
    score: float


def score_history(
    rollouts: Sequence[str], limit: int = MAX_SCORES
) -> ReadPlan[dict[str, list[ScorePoint]]]:
    """By rollout, its newest scores, oldest of them first; with those of a past that it shares."""
    history: dict[str, list[ScorePoint]] = {rollout: [] for rollout in rollouts}
    for marks, part in split_for_in(rollouts):
        rows = yield RunSql(f"{_SELECT_SCORES} e.rollout IN ({marks}) {_SCORE_ORDER}", part)
        for rollout, *score in rows:
            history[rollout].append(ScorePoint(*score))
        branches = yield RunSql(
            f"SELECT id, parent, parent_step FROM rollouts WHERE parent <> '' AND id IN ({marks})",
            part,
        )
        for id, parent, step in branches:
            history[id] = (yield from _scores_until(parent, step)) + history[id]
    return {rollout: scores[-limit:] for rollout, scores in history.items()}


def _scores_until(rollout: str, last: int) -> ReadPlan[list[ScorePoint]]:
    """Scores up to a step, with those of a past that the rollout shares."""
    scores: list[ScorePoint] = []
    for part in (yield from step_ranges(rollout, 1, last)):
        rows = yield RunSql(
            f"{_SELECT_SCORES} e.rollout = ? AND e.step BETWEEN ? AND ? {_SCORE_ORDER}", part
        )
        scores += [ScorePoint(*score) for _, *score in rows]
    return scores


class RolloutSelection(NamedTuple):
    """What was asked for; one of these."""

    names: Sequence[str] = ()
    """Ids, or parts of them."""
    task: str = ""
    group: str = ""
    everything: bool = False

    @property
    def is_given(self) -> bool:
        """Whether anything was asked for."""
        return any(self)


def select_rollout_ids(
    selection: RolloutSelection, effect: str, as_named: bool = False
) -> ReadPlan[list[str]]:
    """Whole ids of the selected rollouts, sorted or, where ids are named, `as_named`; each once.

    For a task, a group or everything, rollouts that never had a step are skipped. effect: what was
    not done, for the HoustonError where nothing is selected, or more than one thing.
    """
    names, task, group, _ = selection
    if sum(map(bool, selection)) != 1:
        raise UsageError(
            "Name rollouts, or one of --task, --group and --all.", effect, "houston rollout list"
        )
    ids: list[str] = []
    if names:
        for name in names:
            ids.append((yield from resolve_rollout_id(name)))
    else:
        rows = yield from list_rollouts(task)
        ids = [row.id for row in rows if row.steps and group in ("", row.group_id)]
    if not ids:
        scope_text = (
            f"the task {task!r}" if task else f"the group {group!r}" if group else "this home"
        )
        raise HoustonError(
            f"No rollout of {scope_text} has a step.", effect, "houston rollout list"
        )
    return list(dict.fromkeys(ids)) if names and as_named else sorted(set(ids))


def last_known_at(reader: Reader) -> int | None:
    """When the newest event was stored, UTC microseconds, if no daemon runs. None if one runs (the
    data is then current) or there is no event.

    Call it after the other reads, so that a daemon that ends meanwhile is noticed.
    """
    if home_lock.find_running_daemon(reader.home) is not None or not store_reader.has_database(
        reader.home
    ):
        return None
    newest = reader.run(newest_events(1))
    return newest[-1].at if newest else None


def last_known_sentence(at: int) -> str:
    """One line for people."""
    return f"No daemon runs: this is the state of {local_time(at)}; next: houston daemon start"
