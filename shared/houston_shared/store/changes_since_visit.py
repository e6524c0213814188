"""What happened in a rollout after an event: "since you were here", in one short read.

Counts and lists for a glance, and `events`: everything worth a stop, in order, so that one key can
step through it. A branch has only its own events here: the past that it shares happened before it
began.
"""

from typing import Any, NamedTuple

from houston_shared.store import (
    annotation_queries,
    attention_ranking,
    event_text,
    job_queries,
    journal_events,
    last_actions,
)
from houston_shared.store.job_queries import JobRow
from houston_shared.store.journal_events import JournalEvent, ReadPlan, RunSql
from houston_shared.store.last_actions import LastAction
from houston_shared.times_and_counts import pluralize

PEOPLE_EVENT_KINDS = ("state", "cancel", "verdict", "bookmark", "claim", "fork")
"""Kinds of events, besides those of steps, that are worth a stop."""
MAX_NAMED_FILES = 12
"""Files that are named at most: those changed most."""
MAX_REASONS_READ = 200
"""Marked steps whose reasons are read: the newest."""


class NotableEvent(NamedTuple):
    """One thing worth a stop."""

    seq: int
    step: int
    """0 where it belongs to no step."""
    at: int
    """UTC microseconds."""
    kind: str
    """`error`, `attention`, `evaluation`, `guidance`, or one of `PEOPLE`."""
    text: str


class HeardGuidance(NamedTuple):
    """Guidance that was delivered meanwhile, and what the agent did next."""

    id: str
    author: str
    text: str
    step: int
    """The step whose observation it was joined to."""
    at: int
    followed: LastAction | None
    """The step after; None while there is none."""


class TouchedFile(NamedTuple):
    """A file that steps changed."""

    path: str
    times: int
    added: int
    removed: int
    step: int
    """The last that did."""


class ScoredEvaluation(NamedTuple):
    """An evaluation."""

    step: int
    score: float | None
    """None when the evaluator failed or the format was wrong."""
    state: str
    at: int
    seq: int


class ChangesSinceEvent(NamedTuple):
    """All of it."""

    rollout: str
    after: int
    """The event behind which it begins."""
    seq: int
    """The newest event of the rollout."""
    first: int
    """First step that was closed meanwhile; 0 for none."""
    last: int
    steps: int
    errors: int
    """Of these steps, those in which a call failed."""
    active_us: int
    """Active time that they took, microseconds."""
    evaluations: tuple[ScoredEvaluation, ...]
    best_before: float | None
    guidance: tuple[HeardGuidance, ...]
    files: tuple[TouchedFile, ...]
    more_files: int
    events: tuple[NotableEvent, ...]


class _StepSummary(NamedTuple):
    step: int
    errors: int
    attention: str
    tools: str
    seq: int
    at: int
    active_us: int


def read_changes_since(rollout: str, after: int) -> ReadPlan[ChangesSinceEvent]:
    """What came behind the sequence `after` (0: everything)."""
    first_step = yield from journal_events.step_at_seq(rollout, after)
    steps = yield from _read_step_summaries(rollout, first_step, after)
    scored = yield from _read_evaluations(rollout, after)
    deliveries = yield from _read_heard_guidance(rollout, after)
    files = yield from _read_touched_files(rollout, first_step, after)
    events = [
        *(yield from _read_marked_steps(steps)),
        *(yield from _read_people_events(rollout, after)),
    ]
    events += [_evaluation_event(evaluation) for evaluation in scored]
    ended = yield from job_queries.list_jobs_ended_since(rollout, after)
    events += [_job_event(job) for job in ended]
    events += [
        NotableEvent(seq, message.step, message.at, "guidance", f"{message.author}: {message.text}")
        for seq, message in deliveries
    ]
    rows = yield RunSql("SELECT last_seq FROM rollouts WHERE id = ?", (rollout,))
    return ChangesSinceEvent(
        rollout=rollout,
        after=after,
        seq=rows[0][0] if rows else 0,
        first=steps[0].step if steps else 0,
        last=steps[-1].step if steps else 0,
        steps=len(steps),
        errors=sum(step.errors > 0 for step in steps),
        active_us=(yield from _read_active_time(rollout, steps)),
        evaluations=tuple(scored),
        best_before=(yield from _read_best_score(rollout, after)),
        guidance=tuple(message for _, message in deliveries),
        files=tuple(files[:MAX_NAMED_FILES]),
        more_files=max(0, len(files) - MAX_NAMED_FILES),
        events=tuple(sorted(events)),
    )


def _read_step_summaries(rollout: str, first_step: int, after: int) -> ReadPlan[list[_StepSummary]]:
    rows = yield RunSql(
        "SELECT step, errors, attention, tools, observation_seq, closed_at, active_us FROM steps"
        " WHERE rollout = ? AND step >= ? AND current AND observation_seq > ? ORDER BY step",
        (rollout, first_step, after),
    )
    return [_StepSummary(*row) for row in rows]


def _read_active_time(rollout: str, steps: list[_StepSummary]) -> ReadPlan[int]:
    if not steps:
        return 0
    rows = yield RunSql(
        "SELECT active_us FROM steps WHERE rollout = ? AND step = ? AND current",
        (rollout, steps[0].step - 1),
    )
    return max(0, steps[-1].active_us - (rows[0][0] if rows else 0))


def _read_evaluations(rollout: str, after: int) -> ReadPlan[list[ScoredEvaluation]]:
    rows = yield RunSql(
        "SELECT step, score, state, at, seq FROM evaluations WHERE rollout = ? AND seq > ?"
        " ORDER BY number",
        (rollout, after),
    )
    return [ScoredEvaluation(*row) for row in rows]


def _read_best_score(rollout: str, after: int) -> ReadPlan[float | None]:
    rows = yield RunSql(
        "SELECT max(score) FROM evaluations WHERE rollout = ? AND seq <= ?", (rollout, after)
    )
    best: float | None = rows[0][0]
    return best


def _evaluation_event(evaluation: ScoredEvaluation) -> NotableEvent:
    score = evaluation.score
    text = f"score {score:.4g}" if score is not None else f"no score ({evaluation.state})"
    return NotableEvent(evaluation.seq, evaluation.step, evaluation.at, "evaluation", text)


def _job_event(job: JobRow) -> NotableEvent:
    command = job_queries.describe_job_command(job.command)
    text = f"{command}: {'failed, ' if job.failed else ''}{job_queries.describe_end(job)}"
    return NotableEvent(job.seq, job.step, job.ended_at or 0, "job", text)


def _read_heard_guidance(rollout: str, after: int) -> ReadPlan[list[tuple[int, HeardGuidance]]]:
    """With the sequence of each delivery."""
    rows = yield RunSql(
        "SELECT id, delivered_seq, delivered_at FROM guidance WHERE rollout = ?"
        " AND state = 'delivered' AND delivered_seq > ? ORDER BY place",
        (rollout, after),
    )
    if not rows:
        return []
    messages = yield from annotation_queries.list_guidance(rollout)
    by_id = {message.id: message for message in messages}
    entries: list[tuple[int, HeardGuidance]] = []
    for id, seq, at in rows:
        guidance = by_id[id]
        step = guidance.step or 0
        followed = yield from last_actions.read_action_of_step(rollout, step + 1)
        entries.append((seq, HeardGuidance(id, guidance.author, guidance.text, step, at, followed)))
    return entries


def _read_touched_files(rollout: str, first_step: int, after: int) -> ReadPlan[list[TouchedFile]]:
    """Changed most often first."""
    rows = yield RunSql(
        "SELECT path, count(*), sum(added), sum(removed), max(step) FROM file_changes c"
        " JOIN steps s USING (rollout, step, attempt) WHERE rollout = ? AND step >= ?"
        " AND s.current AND c.seq > ? GROUP BY path"
        " ORDER BY count(*) DESC, sum(added) + sum(removed) DESC, path",
        (rollout, first_step, after),
    )
    return [TouchedFile(*row) for row in rows]


def _read_marked_steps(steps: list[_StepSummary]) -> ReadPlan[list[NotableEvent]]:
    """Steps with signals or failed calls; the reasons of old ones among many are not read."""
    marked = [step for step in steps if step.attention or step.errors]
    events = yield from journal_events.events_by_seq(
        [step.seq for step in marked[-MAX_REASONS_READ:] if step.attention]
    )
    stops: list[NotableEvent] = []
    for run in _merge_repeated_stops(marked):
        first, last = run[0], run[-1]
        reasons: dict[str, str] = {}
        if event := events.get(last.seq):
            reasons = yield from attention_ranking.read_signal_reasons(event)
        names = first.attention.split(",") if first.attention else ["error"]
        kind = "error" if first.errors else "attention"
        text = _signal_text(kind, names, reasons, first.tools)
        if last is not first:
            text += f", to step {last.step}"
        stops.append(NotableEvent(first.seq, first.step, first.at, kind, text))
    return stops


def _merge_repeated_stops(marked: list[_StepSummary]) -> list[list[_StepSummary]]:
    """Steps behind each other with the same signals are one stop, at their first."""
    runs: list[list[_StepSummary]] = []
    for step in marked:
        before = runs[-1][-1] if runs else None
        if (
            before is not None
            and step.step == before.step + 1
            and (step.attention, step.errors > 0) == (before.attention, before.errors > 0)
        ):
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs


def _signal_text(kind: str, names: list[str], reasons: dict[str, str], tools: str) -> str:
    """The signals with their reasons; the tools where no reason names one."""
    words = []
    for name in names:
        called = "" if name == kind else name.replace("_", " ")
        words.append(": ".join(filter(None, (called, reasons.get(name)))))
    return "; ".join(filter(None, words)) or tools


def _read_people_events(rollout: str, after: int) -> ReadPlan[list[NotableEvent]]:
    events = yield from journal_events.select_events(
        f"rollout = ? AND {journal_events.OUT_OF_STEP_EVENTS} AND seq > ?"
        f" {journal_events.kinds_condition(PEOPLE_EVENT_KINDS)} ORDER BY seq",
        (rollout, after, *PEOPLE_EVENT_KINDS),
    )
    notable: list[NotableEvent] = []
    judged: dict[str, list[tuple[JournalEvent, dict[str, Any]]]] = {}
    for event in events:
        fields = yield from journal_events.read_event_fields(event)
        if fields.get("asked"):  # a run of rules or a judge says much at once: it is one stop
            judged.setdefault(str(fields.get("request")), []).append((event, fields))
            continue
        person = str(fields.get("by") or fields.get("author") or "").removeprefix("person:")
        text = event_text.describe_event(event.kind, fields, event.step)
        lead = f"{person}: " if person and event.kind not in ("state", "fork") else ""
        line = " ".join(f"{lead}{text}".split())
        notable.append(NotableEvent(event.seq, event.step, event.at, event.kind, line))
    return [*notable, *map(_verdict_event, judged.values())]


def _verdict_event(verdicts: list[tuple[JournalEvent, dict[str, Any]]]) -> NotableEvent:
    """A run of rules or a judge: how many steps it keeps and masks; leads to the first masked."""
    counts: dict[str, int] = {}
    for event, fields in verdicts:
        steps = int(fields.get("last", event.step)) - event.step + 1
        verdict = str(fields.get("verdict"))
        counts[verdict] = counts.get(verdict, 0) + steps
    first = next(
        (event for event, fields in verdicts if fields.get("verdict") == "mask"), verdicts[0][0]
    )
    last, fields = verdicts[-1]
    words = ", ".join(f"{name} {pluralize(counts[name], 'step')}" for name in sorted(counts))
    text = f"{fields.get('asked')}: {words} by {fields.get('by')}"
    return NotableEvent(last.seq, first.step, last.at, "verdict", text)
