"""Steps: folded rows for lists, and whole records built from the journal."""

from itertools import groupby

import msgspec
from msgspec.structs import replace

from houston_shared.clock import iso
from houston_shared.records import (
    Call,
    Delivered,
    Intent,
    ObservationBody,
    Result,
    SampleBody,
    StepRecord,
)
from houston_shared.store import journal
from houston_shared.store.in_order import TOUCHED
from houston_shared.store.journal import ERASED, Event
from houston_shared.store.plan import END, Ask, Plan, RowRecord, columns, from_rows
from houston_shared.store.queries import guidance, lineage


class StepRow(RowRecord, frozen=True):
    """A row of `steps`: what a folded step shows, without a look at its bodies."""

    rollout: str
    step: int
    attempt: int
    current: int
    """0 for attempts that purification replaced."""
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
    thought=ERASED,
)
ASIDE = "[set aside by a repair]"
"""Stands for what a step would say that lost it to a repair."""
_LOST_SAMPLE = msgspec.structs.replace(ERASED_SAMPLE, thought=ASIDE)
_ERASED_CALL = Call(id="", name="erased", arguments={})
_ERASED_RESULT = Result(call=_ERASED_CALL, kind="erased", success=True, text=ERASED)


def rows(
    rollout: str, first: int = 1, last: int = END, attempts: bool = False
) -> Plan[list[StepRow]]:
    """Rows of steps `first` to `last` (both included), in order; all attempts if asked.

    A row of the past that a branch shares names the rollout whose step it is.
    """
    found: list[StepRow] = []
    for part in (yield from lineage.stretches(rollout, first, last)):
        mine = yield Ask(
            f"SELECT {columns(StepRow)} FROM steps WHERE rollout = ?1 AND step >= ?2"
            " AND step <= ?3 AND (?4 OR current = 1) ORDER BY step, attempt",
            (*part, attempts),
        )
        found += from_rows(StepRow, mine)
    return found


def last(rollout: str) -> Plan[int]:
    """Number of the newest step, open or closed; 0 when there is none.

    A branch that has not begun has that which it shares last.
    """
    found = yield Ask(
        "SELECT coalesce((SELECT max(step) FROM steps WHERE rollout = ?1),"
        " (SELECT parent_step FROM rollouts WHERE id = ?1), 0)",
        (rollout,),
    )
    return int(found[0][0])


def changed_since(rollout: str, seq: int) -> Plan[list[StepRow]]:
    """Rows of steps with an event after `seq`: what a follower reads again."""
    found = yield Ask(
        f"SELECT {columns(StepRow)} FROM steps WHERE rollout = ?1 AND current = 1 AND step IN"
        f" ({TOUCHED}) ORDER BY step",
        (rollout, seq),
    )
    return from_rows(StepRow, found)


def records(
    rollout: str, first: int = 1, last: int = END, attempts: bool = False
) -> Plan[list[StepRecord]]:
    """Steps `first` to `last` (both included) with everything they hold, in order.

    attempts: also those that purification replaced. A body that was erased reads as `ERASED`.
    """
    found = yield from rows(rollout, first, last, attempts)
    steps = []
    for owner, group in groupby(found, key=lambda row: row.rollout):
        mine = list(group)
        span = (mine[0].step, mine[-1].step)
        parts = yield from _parts(owner, *span)
        said = yield from guidance.delivered(owner, *span)
        for row in mine:
            events = parts.get((row.step, row.attempt), [])
            joined = said.get(row.step, ()) if row.current else ()
            one = yield from _record(row, events, joined)
            steps.append(one if owner == rollout else replace(one, inherited=owner))
    return steps


def record(rollout: str, step: int, attempt: int | None = None) -> Plan[StepRecord | None]:
    """One step (its current attempt unless named); None when there is none."""
    found = yield from records(rollout, step, step, attempts=attempt is not None)
    return next((one for one in found if attempt in (None, one.attempt)), None)


def left(rollout: str, step: int) -> Plan[StepRecord]:
    """What is left of a step that has no row any more: its sample was set aside by a repair.

    Where no event is left, the end of the step before stands for its time.
    """
    parts = yield from _parts(rollout, step, step)
    attempt = max((attempt for _, attempt in parts), default=1)
    events = parts.get((step, attempt), [])
    said = yield from guidance.delivered(rollout, step, step)
    ((before,),) = yield Ask(
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
    return (yield from _record(row, events, said.get(step, ())))


def _parts(rollout: str, first: int, last: int) -> Plan[dict[tuple[int, int], list[Event]]]:
    """The workers' events of a range, by step and attempt, in the order they were stored."""
    found = yield from journal.events(
        "rollout = ? AND step BETWEEN ? AND ? AND part IS NOT NULL ORDER BY seq",
        (rollout, first, last),
    )
    parts: dict[tuple[int, int], list[Event]] = {}
    for event in found:
        parts.setdefault((event.step, event.attempt), []).append(event)
    return parts


def _record(row: StepRow, events: list[Event], said: tuple[Delivered, ...]) -> Plan[StepRecord]:
    sample = _LOST_SAMPLE
    intents: list[Intent] = []
    results: list[Result] = []
    observation: ObservationBody | None = None
    for event in events:
        part = (event.part or "").partition(".")[0]
        if part == "sample":
            sample = yield from journal.record(event, SampleBody, ERASED_SAMPLE)
        elif part == "intent":
            intents.append((yield from journal.record(event, Intent, Intent(call=_ERASED_CALL))))
        elif part == "call":
            results.append((yield from journal.record(event, Result, _ERASED_RESULT)))
        elif part == "observation":
            erased = ObservationBody(tail=ERASED)
            observation = yield from journal.record(event, ObservationBody, erased)
    return StepRecord(
        step=row.step,
        attempt=row.attempt,
        sample_seq=row.sample_seq,
        sample=sample,
        intents=tuple(intents),
        results=tuple(results),
        observation=observation,
        guidance=said,
        at=iso(row.closed_at or row.started_at),
        active_seconds=row.active_us / 1_000_000,
        seq=max([row.last_seq, *(event.seq for event in events)]),
    )
