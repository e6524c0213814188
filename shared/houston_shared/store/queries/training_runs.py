"""Training runs: what was asked, how they stand. How far one has come, its own folder says."""

from houston_shared.store import journal
from houston_shared.store.bodies_training import TrainingAsked
from houston_shared.store.plan import Ask, Plan, RowRecord, columns, from_rows


class TrainingRun(RowRecord, frozen=True):
    """A row of `training_runs`."""

    id: str
    kind: str
    state: str
    reason: str
    alone: int
    """Whether somebody runs it beside the daemon."""
    cancelling: str
    """Who asked to cancel it while its process lives."""
    policy: str
    """What came of it; empty while nothing did."""
    starts: int
    """Processes that it took."""
    by: str
    seq: int
    queued_at: int
    started_at: int | None
    ended_at: int | None
    last_seq: int


def every(unfinished: bool = False) -> Plan[list[TrainingRun]]:
    """All training runs, oldest first; only those that have not ended where asked."""
    found = yield Ask(
        f"SELECT {columns(TrainingRun)} FROM training_runs"
        " WHERE NOT ? OR state IN ('queued', 'running') ORDER BY seq",
        (unfinished,),
    )
    return from_rows(TrainingRun, found)


def one(id: str) -> Plan[TrainingRun | None]:
    """The run of that name."""
    found = yield Ask(f"SELECT {columns(TrainingRun)} FROM training_runs WHERE id = ?", (id,))
    return next(iter(from_rows(TrainingRun, found)), None)


def asked(run: TrainingRun) -> Plan[TrainingAsked | None]:
    """What was asked of it; None where that was erased or set aside."""
    events = yield from journal.by_seq([run.seq])
    event = events.get(run.seq)
    if event is None:
        return None
    gone = TrainingAsked(by="", run="", kind="sft")
    found: TrainingAsked = yield from journal.record(event, TrainingAsked, gone)
    return found if found.run else None
