"""Reads of a trajectory: keys and small columns, in blocks, never a whole rollout.

Each is a plan (`houston_shared.store.plan`): one short read transaction. Whole steps, contexts,
guidance and searches are read through the shared queries.
"""

from typing import NamedTuple

import msgspec

from houston_console.app.transcript.records import Beside, StepRow
from houston_shared.records import StepRecord
from houston_shared.store import journal
from houston_shared.store.bodies import VerdictGiven
from houston_shared.store.in_order import ASIDE as APART
from houston_shared.store.in_order import TOUCHED
from houston_shared.store.plan import Ask, Plan, Row
from houston_shared.store.queries import aside, lineage, people, progress, rollouts, steps, verdicts
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
    touched: set[int] = set()
    if since:
        found = yield Ask(TOUCHED, (rollout, since))
        touched.update(row[0] for row in found)
        touched.update((yield from _judged(rollout, since)))
    return Changes(sorted(touched - {0}), last, newest)


def _judged(rollout: str, since: int) -> Plan[set[int]]:
    """Steps that were judged after `since`: one event tells of a range."""
    rows = yield Ask(
        f"SELECT step, body FROM events WHERE rollout = ? AND {APART} AND kind = 'verdict'"
        " AND seq > ? AND body IS NOT NULL",
        (rollout, since),
    )
    found: set[int] = set()
    for first, raw in rows:
        found.update(range(first, msgspec.msgpack.decode(raw, type=VerdictGiven).last + 1))
    return found


_STEP_ROWS = """
SELECT s.step, s.attempt, s.tools, s.calls, s.errors, s.guided, s.attention, s.score, s.drift,
       s.last_seq, s.observation_seq IS NULL,
       EXISTS (SELECT 1 FROM forks f WHERE f.rollout = s.rollout AND f.step = s.step),
       coalesce(f.files, 0), coalesce(f.added, 0), coalesce(f.removed, 0),
       EXISTS (SELECT 1 FROM bookmarks b WHERE b.rollout IN (?1, ?4) AND b.step = s.step),
       s.sample_seq
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
        rows += yield Ask(_STEP_ROWS, (*part, rollout))
    notes = yield Ask("SELECT step FROM notes WHERE rollout = ?", (rollout,))
    noted = {step for (step,) in notes}
    counts = people.standing((yield from people.verdicts(rollout, first, last)))
    samples = yield from journal.by_seq([row[-1] for row in rows])
    found: list[StepRow] = []
    for row in rows:
        thought = journal.ERASED
        if row[-1] in samples:
            sample = yield from journal.record(samples[row[-1]], _Thought, _Thought(journal.ERASED))
            thought = sample.thought.strip()[:THOUGHT]
        given = counts.get((row[0], row[1]))
        verdict = f"{given.source}{given.keep}" if given else ""
        found.append(StepRow._make((*row[:-2], verdict, row[-2], thought, row[0] in noted)))
    lost = {one.step for one in (yield from aside.holes(rollout)) if first <= one.step <= last}
    for step in (yield from aside.without_row(rollout, lost - {row.step for row in found})):
        lost_row = (step, 1, "", 0, 0, 0, "", None, "", 0, 0, 0, 0, 0, 0, "", 0, ASIDE)
        found.append(StepRow._make((*lost_row, False)))
    return sorted(found)


def step_record(rollout: str, step: int) -> Plan[StepRecord | None]:
    """Everything of one step, or what a repair has left of it; None when there is none."""
    found = yield from steps.records(rollout, step, step)
    marked = yield from aside.marked(rollout, found, step, step)
    return marked[0] if marked else None


def beside(rollout: str, step: int) -> Plan[Beside]:
    """Verdicts, bookmarks and notes on one step, also those left on a parent's own step."""
    given = (yield from verdicts.standing(rollout, step, step)).get(step, [])
    owner = yield from lineage.owner(rollout, step)
    marks: list[people.Bookmark] = []
    notes: list[people.Note] = []
    for one in dict.fromkeys((owner, rollout)):
        marks += [mark for mark in (yield from people.bookmarks(one)) if mark.step == step]
        notes += [note for note in (yield from people.notes(one)) if note.step == step]
    return Beside(tuple(given), tuple(marks), tuple(notes))


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
