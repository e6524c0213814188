"""Steps: folded rows for lists, whole records built from the journal, and what repairs took.

Also what repairs set aside of a rollout, by step and in words, and steps of which only that is
left: a row of kind `aside` keeps the place of an event, and a `repaired` event of the home vouches
for it. The JSON of a step is in `step_json`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from houston_shared.records import (
    ENDED_STATES,
    CallIntent,
    DeliveredGuidance,
    ObservationBody,
    QuarantinedEvents,
    SampleBody,
    StepRecord,
    ToolCall,
    ToolResult,
)
from houston_shared.store import annotation_queries, journal_events, rollout_queries
from houston_shared.store.event_bodies import QUARANTINED_KIND, JournalRepaired
from houston_shared.store.journal_events import (
    ERASED_TEXT,
    OPEN_END,
    OUT_OF_STEP_EVENTS,
    JournalEvent,
    ReadPlan,
    RowRecord,
    RunSql,
    read_event_record,
    read_out_of_step_records,
    select_records,
)
from houston_shared.times_and_counts import iso_time, pluralize


class StepRow(RowRecord, frozen=True):
    """A row of `steps`: what a folded step shows, without a look at its bodies."""

    rollout: str
    step: int
    attempt: int
    current: int
    """0 for attempts that purification replaced, and for look-aheads."""
    sample_seq: int
    observation_seq: int | None
    """None while the step is open."""
    last_seq: int
    """Newest of its sample, its observation and what was joined to that; no call's."""
    policy: str
    drift: str
    tools: str
    """Names of the calls, comma separated."""
    calls: int
    errors: int
    guided: int
    """How much guidance was joined to its observation."""
    attention: str
    score: float | None
    snapshot: str
    started_at: int
    closed_at: int | None
    active_us: int


ERASED_SAMPLE = SampleBody(
    role="policy",
    parent_seq=None,
    kept=0,
    new_prompt_ids=None,
    token_ids=None,
    logprobs=None,
    logprob_kind="none",
    finish_reason="",
    policy="",
    engine="",
    parameters={},
    drift="clean",
    thought=ERASED_TEXT,
)
QUARANTINED_TEXT = "[set aside by a repair]"
"""Stands for what a step would say that lost it to a repair."""
_QUARANTINED_SAMPLE = replace(ERASED_SAMPLE, thought=QUARANTINED_TEXT)
_ERASED_CALL = ToolCall(id="", name="erased", arguments={})
_ERASED_RESULT = ToolResult(call=_ERASED_CALL, kind="erased", success=True, text=ERASED_TEXT)


def list_step_rows(
    rollout: str, first: int = 1, last: int = OPEN_END, attempts: bool = False
) -> ReadPlan[list[StepRow]]:
    """Rows of steps `first` to `last` (both included), in order; all attempts if asked.

    A row of the past that a branch shares names the rollout whose step it is.
    """
    source = (
        "steps WHERE rollout = ?1 AND step >= ?2 AND step <= ?3 AND (?4 OR current = 1)"
        " ORDER BY step, attempt"
    )
    rows: list[StepRow] = []
    for part in (yield from rollout_queries.step_ranges(rollout, first, last)):
        rows += yield from select_records(StepRow, source, (*part, attempts))
    return rows


def find_last_step(rollout: str) -> ReadPlan[int]:
    """Number of the newest step, open or closed; 0 when there is none.

    A branch that has not begun has that which it shares last.
    """
    ((last,),) = yield RunSql(
        "SELECT coalesce((SELECT max(step) FROM steps WHERE rollout = ?1),"
        " (SELECT parent_step FROM rollouts WHERE id = ?1), 0)",
        (rollout,),
    )
    return int(last)


def read_steps(
    rollout: str, first: int = 1, last: int = OPEN_END, attempts: bool = False
) -> ReadPlan[list[StepRecord]]:
    """Steps `first` to `last` (both included) with everything they hold, in order.

    attempts: also those that purification replaced, and its look-aheads. A body that was erased
    reads as `ERASED_TEXT`.
    """
    rows = yield from list_step_rows(rollout, first, last, attempts)
    steps = []
    for owner, group in groupby(rows, key=lambda row: row.rollout):
        own_rows = list(group)
        span = (own_rows[0].step, own_rows[-1].step)
        parts = yield from _read_worker_events(owner, *span)
        guidance = yield from annotation_queries.list_delivered_guidance(owner, *span)
        for row in own_rows:
            events = parts.get((row.step, row.attempt), [])
            joined = guidance.get(row.step, ()) if row.current else ()
            step = yield from _build_step(row, events, joined)
            steps.append(step if owner == rollout else replace(step, inherited=owner))
    return steps


def read_verified_steps(rollout: str) -> ReadPlan[list[StepRecord]]:
    """All steps of a flow whose verifier was asked; none of any other rollout."""
    rows = yield RunSql(
        "SELECT 1 FROM events WHERE rollout = ? AND part >= 'verifier.' AND part < 'verifier/'"
        f" AND {journal_events.OUT_OF_STEP_EVENTS} LIMIT 1",
        (rollout,),
    )
    return (yield from read_steps(rollout)) if rows else []


def read_steps_with_attempts(rollout: str, first: int, last: int) -> ReadPlan[list[StepRecord]]:
    """Steps as `read_steps` gives them, each with the other attempts at it (`others`).

    The last attempt counts that is no look-ahead.
    """
    every = yield from read_steps(rollout, first, last, attempts=True)
    steps = []
    for _, group in groupby(every, key=lambda record: record.step):
        attempts = list(group)
        counting = [record for record in attempts if record.sample.role != "lookahead"] or attempts
        other_attempts = tuple(record for record in attempts if record is not counting[-1])
        steps.append(
            replace(counting[-1], others=other_attempts) if other_attempts else counting[-1]
        )
    return steps


def read_step(rollout: str, step: int, attempt: int | None = None) -> ReadPlan[StepRecord | None]:
    """One step (its current attempt unless named); None when there is none."""
    records = yield from read_steps(rollout, step, step, attempts=attempt is not None)
    return next((record for record in records if attempt in (None, record.attempt)), None)


def read_step_remains(rollout: str, step: int) -> ReadPlan[StepRecord]:
    """What is left of a step that has no row any more: its sample was set aside by a repair.

    Where no event is left, the end of the step before stands for its time.
    """
    parts = yield from _read_worker_events(rollout, step, step)
    attempt = max((attempt for _, attempt in parts), default=1)
    events = parts.get((step, attempt), [])
    guidance = yield from annotation_queries.list_delivered_guidance(rollout, step, step)
    ((before,),) = yield RunSql(
        "SELECT coalesce(max(s.closed_at), r.created_at) FROM rollouts r"
        " LEFT JOIN steps s ON s.rollout = r.id AND s.step < ?2 WHERE r.id = ?1",
        (rollout, step),
    )
    at = events[-1].at if events else before
    row = StepRow(
        rollout=rollout, step=step, attempt=attempt, current=1, sample_seq=0,
        observation_seq=None, last_seq=0, policy="", drift="", tools="", calls=0, errors=0,
        guided=0, attention="", score=None, snapshot="", started_at=at, closed_at=None, active_us=0,
    )  # fmt: skip
    return (yield from _build_step(row, events, guidance.get(step, ())))


def _read_worker_events(
    rollout: str, first: int, last: int
) -> ReadPlan[dict[tuple[int, int], list[JournalEvent]]]:
    """The workers' events of a range, by step and attempt, in the order they were stored."""
    events = yield from journal_events.select_events(
        "rollout = ? AND step BETWEEN ? AND ? AND part IS NOT NULL ORDER BY seq",
        (rollout, first, last),
    )
    parts: dict[tuple[int, int], list[JournalEvent]] = {}
    for event in events:
        parts.setdefault((event.step, event.attempt), []).append(event)
    return parts


def _build_step(
    row: StepRow, events: list[JournalEvent], guidance: tuple[DeliveredGuidance, ...]
) -> ReadPlan[StepRecord]:
    sample = _QUARANTINED_SAMPLE
    intents: list[CallIntent] = []
    results: list[ToolResult] = []
    observation: ObservationBody | None = None
    for event in events:
        part = (event.part or "").partition(".")[0]
        if part in ("sample", "lookahead"):
            sample = yield from read_event_record(event, SampleBody, ERASED_SAMPLE)
        elif part == "intent":
            erased_intent = CallIntent(call=_ERASED_CALL)
            intents.append((yield from read_event_record(event, CallIntent, erased_intent)))
        elif part == "call":
            results.append((yield from read_event_record(event, ToolResult, _ERASED_RESULT)))
        elif part == "observation":
            erased = ObservationBody(tail=ERASED_TEXT)
            observation = yield from read_event_record(event, ObservationBody, erased)
    return StepRecord(
        step=row.step,
        attempt=row.attempt,
        sample_seq=row.sample_seq,
        sample=sample,
        intents=tuple(intents),
        results=tuple(results),
        observation=observation,
        guidance=guidance,
        at=iso_time(row.closed_at or row.started_at),
        active_seconds=row.active_us / 1_000_000,
        seq=max([row.last_seq, *(event.seq for event in events)]),
    )


class QuarantinedEvent(NamedTuple):
    """One event that is set aside."""

    seq: int
    step: int
    """0 where it was none of a step, or nobody knows."""
    repair: str
    """Folder in `damaged/`; empty where no `repaired` event is at hand (an archive)."""
    repaired: int
    """Sequence of the event that says so; 0 where there is none."""


class LossFromRepair(msgspec.Struct, frozen=True):
    """What one repair set aside of one rollout; the JSON of `rollout show` and `verify`."""

    repair: str
    events: int
    steps: tuple[int, ...]
    """Steps that the events belong to, in order; empty where none is known."""
    rollout: str = ""


def list_quarantined_events(rollout: str) -> ReadPlan[list[QuarantinedEvent]]:
    """Every event of a rollout that is set aside, in order."""
    rows = yield RunSql(
        f"SELECT seq, step FROM events WHERE rollout = ? AND {OUT_OF_STEP_EVENTS}"
        f" AND kind = '{QUARANTINED_KIND}' ORDER BY seq",
        (rollout,),
    )
    if not rows:
        return []
    repairs: dict[int, tuple[str, int]] = {}
    for repair in (yield from read_out_of_step_records("", "repaired", JournalRepaired)):
        for seq in repair.body.seqs:
            repairs.setdefault(seq, (repair_name(repair.body.copies), repair.seq))
    return [QuarantinedEvent(seq, step, *repairs.get(seq, ("", 0))) for seq, step in rows]


def repair_name(copies: str) -> str:
    """What people call a repair: the last part of its folder."""
    return PurePosixPath(copies).name


def group_repair_losses(
    quarantined: Iterable[QuarantinedEvent], rollout: str = ""
) -> list[LossFromRepair]:
    """What each repair set aside, in the order of the repairs."""
    by_repair: dict[str, list[int]] = {}
    for event in quarantined:
        by_repair.setdefault(event.repair, []).append(event.step)
    return [
        LossFromRepair(repair, len(steps), tuple(sorted(set(steps) - {0})), rollout)
        for repair, steps in by_repair.items()
    ]


def describe_repair_loss(loss: LossFromRepair) -> str:
    """`3 events of steps 2, 4 were set aside by repair T`."""
    ranges = _format_step_ranges(loss.steps)
    of = f" of step{'s' if len(loss.steps) > 1 else ''} {ranges}" if loss.steps else ""
    return f"{pluralize(loss.events, 'event')}{of} {_by_repair(loss.events, loss.repair)}"


def describe_quarantine(mark: QuarantinedEvents) -> str:
    """The mark of a step, in words."""
    of = "an earlier run of this step" if mark.again else "this step"
    return f"{pluralize(mark.events, 'event')} of {of} {_by_repair(mark.events, mark.repair)}"


def mark_quarantined_steps(
    rollout: str, steps: Sequence[StepRecord], first: int, last: int
) -> ReadPlan[list[StepRecord]]:
    """`steps` (the records of steps `first` to `last`) with marks, and with what is left of steps
    that a repair has left without a row.
    """
    by_step: dict[int, list[QuarantinedEvent]] = {}
    for event in (yield from list_quarantined_events(rollout)):
        if first <= event.step <= last:
            by_step.setdefault(event.step, []).append(event)
    if not by_step:
        return list(steps)
    records = {
        (record.step, record.attempt): _with_mark(record, by_step.get(record.step, ()))
        for record in steps
    }
    with_record = {record.step for record in steps}
    for step in (yield from list_steps_without_row(rollout, by_step.keys() - with_record)):
        rest = yield from read_step_remains(rollout, step)
        records[step, rest.attempt] = _with_mark(rest, by_step[step])
    return [records[key] for key in sorted(records)]


def list_steps_without_row(rollout: str, steps: Iterable[int]) -> ReadPlan[list[int]]:
    """Those of `steps` steps (which have events set aside) that are over and have no row.

    A running rollout has none: it runs the lost steps again.
    """
    missing = sorted(steps)
    if not missing:
        return []
    ((state,),) = yield RunSql("SELECT state FROM rollouts WHERE id = ?", (rollout,))
    rows: list[StepRow] = yield from list_step_rows(rollout, missing[0], missing[-1])
    with_row = {row.step for row in rows}
    newest = OPEN_END if state in ENDED_STATES else (yield from find_last_step(rollout))
    return [step for step in missing if step < newest and step not in with_row]


def _with_mark(record: StepRecord, quarantined: Iterable[QuarantinedEvent]) -> StepRecord:
    counts = Counter(
        (event.repair, 0 < event.repaired < record.sample_seq) for event in quarantined
    )
    marks = tuple(
        QuarantinedEvents(events=count, repair=repair, again=again)
        for (repair, again), count in counts.items()
    )
    return replace(record, aside=marks)


def _by_repair(count: int, repair: str) -> str:
    repair_text = f"repair {repair}" if repair else "a repair"
    return f"{'was' if count == 1 else 'were'} set aside by {repair_text}"


def _format_step_ranges(numbers: Sequence[int]) -> str:
    """`1, 3 to 5`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
