"""What a worker starts from: the rollout as the database has it, and its steps in pages.

Uses the same read queries as every reader, on the writer's connection, so that a resumed worker
and `houston context` read the same bytes.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from houston_daemon.recorder import control_state
from houston_daemon.recorder.refusal import Refusal
from houston_daemon.recorder.steps import guidance
from houston_daemon.recorder.store import Rollout, Store
from houston_shared.records import ForkBody, Head, Record, RolloutSpec, SampleBody, StepRecord
from houston_shared.store import blobs
from houston_shared.store.plan import Fetch, Plan
from houston_shared.store.queries import scores, steps, world
from houston_shared.store.queries.scores import Score
from houston_shared.wire import Steps, SummaryTry, Welcome, encode

T = TypeVar("T")
R = TypeVar("R", bound=Record)

EVERY = 1_000_000
"""More scores than a rollout has."""
PAGE_BYTES = 4 * 1024 * 1024
"""A page of steps ends once it has this many bytes; one step is always in it."""


def welcome(store: Store, row: Rollout) -> Welcome:
    """Everything a worker starts from. Raises Refusal when the spec was erased."""
    spec = record(store, row.spec_seq, RolloutSpec)
    if spec is None:
        raise Refusal("UNKNOWN", f"What {row.id} was started with was erased.")
    fork = record(store, row.fork_seq, ForkBody)
    forks, evaluations, best, last = store.connection.execute(
        "SELECT forks, evaluations, best_score, last_score FROM rollouts WHERE id = ?", (row.id,)
    ).fetchone()
    epoch = store.connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
    control = control_state.control(store, row.id)
    worker = store.workers.of(row.id)
    if worker:
        worker.told = control
    since_gain, gained_us = _gain(run(store, scores.history([row.id], EVERY))[row.id], row)
    return Welcome(
        spec=spec,
        head=record(store, row.head_seq, Head),
        fork=fork,
        fork_guidance=guidance.by_ids(store, row.id, fork.guidance) if fork else (),
        forks=forks,
        summaries=_summaries(store, row),
        next_step=row.steps + 1,
        first_step=row.first_step,
        active_us=row.active_us,
        evaluations=evaluations,
        best_score=best,
        last_score=last,
        since_gain=since_gain,
        gained_us=gained_us,
        evaluation_seconds=sum(one.seconds for one in run(store, world.evaluations(row.id))),
        epoch=int(epoch[0]),
        control=control,
        home=str(store.home.path.resolve()),
    )


def _gain(found: Sequence[Score], row: Rollout) -> tuple[int, int]:
    """Scores since the first of the best ones, and the active time at it in microseconds."""
    if not found:
        return 0, 0
    best = max(one.score for one in found)
    at = next(number for number, one in enumerate(found) if one.score == best)
    return len(found) - at - 1, found[at].active_us or row.active_us  # its step is open still


def _summaries(store: Store, row: Rollout) -> tuple[SummaryTry, ...]:
    """Tries at a summary before the step that is open or comes next, in order."""
    found = store.connection.execute(
        "SELECT seq, part FROM events WHERE rollout = ? AND step = ? AND attempt = 1"
        " AND part GLOB 'summary.*' ORDER BY seq",
        (row.id, row.steps + 1),
    ).fetchall()
    tries = ((seq, part, record(store, seq, SampleBody)) for seq, part in found)
    return tuple(
        SummaryTry(seq=seq, part=part, sample=sample) for seq, part, sample in tries if sample
    )


def page(store: Store, row: Rollout, first: int) -> Steps:
    """Steps from number `first` on, as many as a page holds; the open step too."""
    newest: int = run(store, steps.last(row.id))
    found: list[StepRecord] = []
    size = 0
    for number in range(max(1, first), newest + 1):
        one = run(store, steps.record(row.id, number))
        if one is None:
            continue
        size += len(encode(one))
        if found and size > PAGE_BYTES:
            return Steps(steps=tuple(found), more=True)
        found.append(one)
    return Steps(steps=tuple(found), more=False)


def open_step(store: Store, row: Rollout) -> StepRecord | None:
    """The step that was sampled and not closed."""
    found: StepRecord | None = run(store, steps.record(row.id, row.steps + 1))
    return None if found is None or found.observation is not None else found


def record(store: Store, seq: int | None, kind: type[R]) -> R | None:
    """The body of an event; None where there is no event or its body was erased."""
    if seq is None:
        return None
    body, blob = store.connection.execute(
        "SELECT body, blob FROM events WHERE seq = ?", (seq,)
    ).fetchone()
    data = blobs.read(store.home, blob) if blob else body
    return None if data is None else msgspec.msgpack.decode(data, type=kind)


def run(store: Store, plan: Plan[T]) -> T:
    """What a read plan returns, on the writer's own connection."""
    try:
        asked = next(plan)
        while True:
            if isinstance(asked, Fetch):
                asked = plan.send(blobs.read(store.home, asked.sha256))
            else:
                asked = plan.send(store.connection.execute(*asked[:2]).fetchall())
    except StopIteration as end:
        result: T = end.value
        return result
