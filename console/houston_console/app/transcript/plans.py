"""Reads of a trajectory: keys and small columns, in blocks, never a whole rollout.

Each is a plan (`houston_shared.store.plan`): one short read transaction. Whole steps, contexts,
guidance and searches are read through the shared queries.
"""

from typing import NamedTuple

import msgspec

from houston_console.app.transcript.records import StepRow
from houston_shared.records import StepRecord
from houston_shared.store import journal
from houston_shared.store.in_order import TOUCHED
from houston_shared.store.plan import Ask, Plan, Row
from houston_shared.store.queries import aside, lineage, progress, rollouts, steps
from houston_shared.store.queries.steps import ASIDE

THOUGHT = 240
"""Characters of a thought that a folded line keeps: more than any screen shows."""


class _Thought(msgspec.Struct, frozen=True):
    thought: str = ""


class Changes(NamedTuple):
    """What is new in one rollout."""

    touched: list[int]
    """Steps that have new events, in order."""
    steps: int
    """The newest step, open or closed."""
    seq: int


def changes(rollout: str, since: int) -> Plan[Changes]:
    """Steps of `rollout` with events after `since`; for 0 only how many steps there are."""
    last = yield from steps.last(rollout)
    newest = yield from progress.last_seq(rollout)
    touched: list[Row] = []
    if since:
        touched = yield Ask(f"{TOUCHED} ORDER BY 1", (rollout, since))
    return Changes([row[0] for row in touched if row[0]], last, newest)


_STEP_ROWS = """
SELECT s.step, s.attempt, s.tools, s.calls, s.errors, s.guided, s.attention, s.score, s.drift,
       s.last_seq, s.observation_seq IS NULL,
       EXISTS (SELECT 1 FROM forks f WHERE f.rollout = s.rollout AND f.step = s.step),
       coalesce(f.files, 0), coalesce(f.added, 0), coalesce(f.removed, 0), s.sample_seq
FROM steps s LEFT JOIN (
    SELECT step, attempt, count(*) AS files, sum(added) AS added, sum(removed) AS removed
    FROM file_changes WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3 GROUP BY step, attempt
) f ON f.step = s.step AND f.attempt = s.attempt
WHERE s.rollout = ?1 AND s.step BETWEEN ?2 AND ?3 AND s.current = 1 ORDER BY s.step
"""


def step_rows(rollout: str, first: int, last: int) -> Plan[list[StepRow]]:
    """Folded lines of the steps `first` to `last`, in order; newest attempts only."""
    rows: list[Row] = []
    for part in (yield from lineage.stretches(rollout, first, last)):
        rows += yield Ask(_STEP_ROWS, part)
    samples = yield from journal.by_seq([row[-1] for row in rows])
    found: list[StepRow] = []
    for row in rows:
        thought = journal.ERASED
        if row[-1] in samples:
            sample = yield from journal.record(samples[row[-1]], _Thought, _Thought(journal.ERASED))
            thought = sample.thought.strip()[:THOUGHT]
        found.append(StepRow._make((*row[:-1], thought)))
    lost = {one.step for one in (yield from aside.holes(rollout)) if first <= one.step <= last}
    for step in (yield from aside.without_row(rollout, lost - {row.step for row in found})):
        found.append(StepRow._make((step, 1, "", 0, 0, 0, "", None, "", 0, 0, 0, 0, 0, 0, ASIDE)))
    return sorted(found)


def step_record(rollout: str, step: int) -> Plan[StepRecord | None]:
    """Everything of one step, or what a repair has left of it; None when there is none."""
    found = yield from steps.records(rollout, step, step)
    marked = yield from aside.marked(rollout, found, step, step)
    return marked[0] if marked else None


def neighbour(rollout: str, step: int, column: str, forward: bool) -> Plan[int | None]:
    """The nearest step after (or before) `step` with a non-zero `column`: errors or guided."""
    if column not in ("errors", "guided"):
        raise ValueError(column)
    side, order = (">", "ASC") if forward else ("<", "DESC")
    rows = yield Ask(
        f"SELECT step FROM steps WHERE rollout = ? AND step {side} ? AND current = 1"
        f" AND {column} > 0 ORDER BY step {order} LIMIT 1",
        (rollout, step),
    )
    return rows[0][0] if rows else None


class _Task(msgspec.Struct, frozen=True):
    instructions: str = ""


class _Spec(msgspec.Struct, frozen=True):
    task: _Task = _Task(journal.ERASED)
    host_root: str = ""


class Opening(NamedTuple):
    """The start of a rollout: what its task asks, and where its host keeps what it owns."""

    instructions: str
    system: str
    """Empty before the first prompt."""
    host_root: str


def opening(rollout: str) -> Plan[Opening]:
    """Row 0 of a trajectory."""
    one = yield from rollouts.rollout(rollout)
    event = (yield from journal.by_seq([one.spec_seq]))[one.spec_seq]
    spec = yield from journal.record(event, _Spec, _Spec())
    head = yield from rollouts.head(one)
    return Opening(spec.task.instructions, head.system if head else "", spec.host_root)
