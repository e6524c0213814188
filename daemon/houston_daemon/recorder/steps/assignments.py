"""What the supervisor does to rollouts: give them to workers, take note of their ends, engines."""

from houston_daemon.recorder.protocol import Assignment, Wanted
from houston_daemon.recorder.refusal import denial
from houston_daemon.recorder.steps import rebuild, resumable, states
from houston_daemon.recorder.steps.journal import Key
from houston_daemon.recorder.store import Store
from houston_shared.faults import point
from houston_shared.records import RolloutSpec
from houston_shared.store.bodies import Assigned, Clock

SUPERVISOR = "supervisor"


def runnable(store: Store) -> list[str]:
    """Rollouts in `queued` or `running` without a live worker, oldest first."""
    rows = store.connection.execute(
        "SELECT id FROM rollouts WHERE state IN ('queued', 'running') ORDER BY spec_seq"
    )
    return [id for (id,) in rows if store.workers.of(id) is None]


def assign(store: Store, rollout: str) -> Assignment | str:
    """Raise the lease and give the spec; raises HoustonError when it cannot run now.

    What is stored of it and damaged pauses it: then the sentence that says so.
    """
    row = store.rollout(rollout)
    if row is None or row.state not in ("queued", "running"):
        raise denial(f"{rollout} is {row.state if row else 'unknown'} and cannot be assigned.")
    if damage := resumable.pause_if_bad(store, row):
        return damage
    spec = rebuild.record(store, row.spec_seq, RolloutSpec)
    if spec is None:
        raise denial(f"What {rollout} was started with was erased.")
    if row.state == "queued":
        states.move(store, row, "running", SUPERVISOR)
    lease = row.lease + 1
    point("recorder.assign.before")
    store.journal.append(Key(rollout), "assigned", Assigned(lease=lease))
    store.later.append(lambda: store.workers.add(rollout, lease))
    return Assignment(spec, lease)


def worker_ended(store: Store, rollout: str, lease: int, failure: str) -> None:
    """A worker process ended; with a failure the rollout fails, a cancel that waited is done.

    The active time of its last heartbeat is kept, however it ended.
    """
    point("recorder.ended.before")
    active_us = store.workers.remove(rollout, lease)
    row = store.rollout(rollout)
    if row is None or row.lease != lease or states.ended(row):
        return
    if active_us > row.active_us:
        store.journal.append(Key(rollout), "clock", Clock(active_us=active_us))
    if row.cancelling:
        states.move(store, row, "cancelled", row.cancelling, row.reason, active_us)
    elif failure:
        states.move(store, row, "failed", SUPERVISOR, failure, active_us)
    elif row.state == "running":
        store.tells.append(Wanted())
    elif row.state == "paused" and row.paused_by in states.ASKED_AGAIN and not store.draining:
        # Its worker looked for the machine, or asked the engine again; the next one does.
        states.move(store, row, "queued", row.paused_by, "its worker ended", active_us)
    elif row.state == "paused":
        states.stands(store, rollout)


def settle(store: Store) -> None:
    """At a start nobody runs anything: what was being cancelled is cancelled, and what waited for
    an engine or a machine is queued again, until this daemon knows better.
    """
    rows = store.connection.execute(
        "SELECT id FROM rollouts WHERE cancelling <> '' OR state = 'paused'"
    ).fetchall()
    for (id,) in rows:
        row = store.rollout(id)
        if row is None or states.ended(row):
            continue
        if row.cancelling:
            states.move(store, row, "cancelled", row.cancelling, row.reason)
        elif row.paused_by not in states.ASKED_AGAIN:
            states.stands(store, id)
        else:
            states.move(store, row, "queued", row.paused_by, "the daemon started again")


def pause_for_engine(store: Store, engine: str, down: bool, reason: str) -> None:
    """Pause what samples from an engine that is down; resume what was paused so."""
    ids = store.connection.execute(
        "SELECT id FROM rollouts WHERE engine = ? AND state IN ('queued', 'running', 'paused')"
        " ORDER BY spec_seq",
        (engine,),
    ).fetchall()
    for (id,) in ids:
        row = store.rollout(id)
        if row is None or row.cancelling:
            continue
        if down and row.state != "paused":
            states.move(store, row, "paused", states.ENGINE, reason)
        elif not down and row.state == "paused" and row.paused_by == states.ENGINE:
            states.resume(store, row, states.ENGINE, reason)


_HELD = f"SELECT id FROM rollouts WHERE state = 'paused' AND paused_by = '{states.DISK}'"
_GOING_ON = "SELECT id FROM rollouts WHERE state IN ('queued', 'running') AND cancelling = ''"


def disk_differs(store: Store, full: bool) -> bool:
    """Whether `pause_for_disk` has anything to do."""
    query = _GOING_ON if full else _HELD
    return store.connection.execute(f"{query} LIMIT 1").fetchone() is not None


def pause_for_disk(store: Store, reason: str) -> None:
    """Pause whatever could go on while the home's disk is full; resume it when there is room.

    reason: why there is no room; empty where there is.
    """
    for (id,) in store.connection.execute(_GOING_ON if reason else _HELD).fetchall():
        row = store.rollout(id)
        if row is None or row.cancelling:
            continue
        if reason:
            states.move(store, row, "paused", states.DISK, reason)
        else:
            states.resume(store, row, states.DISK, "there is room again")
