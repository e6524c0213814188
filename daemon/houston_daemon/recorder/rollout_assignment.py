"""What the supervisor does to rollouts: assign them, note worker ends, pause them.

Pauses are for an engine that is down and for a full disk. Before a rollout is assigned or resumed,
its current context is checked byte by byte, including the past that a branch shares: damage pauses
the rollout instead of being carried on. Also settles rollouts at a start after a crash. The
supervisor manages the processes.
"""

import logging
import sqlite3

import msgspec

from houston_daemon.maintenance.damage_report import describe_damage
from houston_daemon.recorder import hash_chain
from houston_daemon.recorder.hash_chain import EVENT_COLUMNS, EventRow
from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.recorder.recorder_handle import Assignment, RunnableChanged
from houston_daemon.recorder.recorder_store import RolloutRow, Store
from houston_daemon.recorder.request_checks import denial
from houston_daemon.recorder.rollout_states import (
    PAUSED_BY_DISK,
    PAUSED_BY_ENGINE,
    PAUSED_BY_REPAIR,
    PAUSES_RETRIED_BY_WORKER,
    change_state,
    mark_unattended,
    resume_rollout,
)
from houston_shared.errors import HoustonError
from houston_shared.faults import point
from houston_shared.records import RolloutSpec
from houston_shared.store import event_bodies, journal_events, rollout_queries, store_reader
from houston_shared.store.event_bodies import QUARANTINED_KIND as KIND
from houston_shared.store.event_bodies import ActiveTimeStored, RolloutAssigned
from houston_shared.store.journal_events import OUT_OF_STEP_EVENTS

_COUNT_CLOSED_STEPS = (
    "SELECT count(*) FROM steps WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3 AND current"
    " AND observation_seq <= ?4"
)
_FIND_ASIDE_EVENT = (
    f"SELECT 1 FROM events e WHERE rollout = ?1 AND {OUT_OF_STEP_EVENTS} AND kind = '{KIND}'"
    " AND seq <= ?4"
    " AND seq >= (SELECT min(sample_seq) FROM steps WHERE rollout = ?1 AND step BETWEEN ?2 AND ?3"
    " AND current) AND (step = 0 OR step BETWEEN ?2 AND ?3 AND seq >= coalesce((SELECT sample_seq"
    " FROM steps s WHERE s.rollout = ?1 AND s.step = e.step AND s.current), 0)) LIMIT 1"
)
"""Something of these steps, as they were run last, or of nobody knows which step."""


def find_incomplete_ancestor(store: Store, rollout: str, first: int, last: int, seq: int) -> str:
    """The rollout whose steps `first` to `last`, shared by `rollout`, are incomplete; else empty.

    seq: the observation that closed the last of them; later events belong to another run.
    """
    for part in store.read(rollout_queries.step_ranges(rollout, first, last)):
        (closed,) = store.connection.execute(_COUNT_CLOSED_STEPS, (*part, seq)).fetchone()
        hole = store.connection.execute(_FIND_ASIDE_EVENT, (*part, seq)).fetchone()
        if hole is not None or closed != part.last - part.first + 1:
            return part.rollout
    return ""


LOGGER = logging.getLogger("houston.recorder")
_SELECT_LINKED_EVENTS = (
    f"SELECT {EVENT_COLUMNS}, (SELECT chain FROM events AS last WHERE last.seq = events.seq - 1)"
    " FROM events WHERE"
)
_CONTEXT_EVENTS = (
    f"{_SELECT_LINKED_EVENTS} {journal_events.EVENTS_OF_ROLLOUT} AND (step = 0 OR step >= ?2)"
    " ORDER BY seq"
)
_SHARED_EVENTS = (
    f"{_SELECT_LINKED_EVENTS} rollout = ?1 AND part IS NOT NULL"
    " AND (part = 'head' OR step BETWEEN ?2 AND ?3)"
    " ORDER BY seq"
)
"""Of a rollout that a branch shares steps with: what of them is in its context."""


def pause_if_damaged(store: Store, row: RolloutRow) -> str:
    """Pause a rollout whose context is damaged and return the sentence; empty for a sound one.

    Each is checked once per run of the recorder, which itself writes everything that follows.
    """
    if row.id in store.checked_rollouts:
        return ""
    if not (damage := find_resume_obstacle(store, row)):
        store.checked_rollouts.add(row.id)
        return ""
    LOGGER.error("%s; it is paused", damage)
    change_state(store, row, "paused", PAUSED_BY_REPAIR, damage)
    return damage


def find_resume_obstacle(store: Store, row: RolloutRow) -> str:
    """Why a rollout cannot go on from what is stored of it; empty where it can."""
    bad = find_first_damaged_event(store, row)
    return describe_damage(store.home, row.id, bad) if bad else _explain_lost_past(store, row)


def find_first_damaged_event(store: Store, row: RolloutRow) -> int:
    """The first event of the rollout's context that is not as it was stored; 0 for none."""
    for part in store.read(rollout_queries.step_ranges(row.id, row.first_step)):
        if part.rollout != row.id and (bad := _first_damaged_of(store, row, _SHARED_EVENTS, part)):
            return bad
    return _first_damaged_of(store, row, _CONTEXT_EVENTS, (row.id, row.first_step))


def _explain_lost_past(store: Store, row: RolloutRow) -> str:
    """Why a branch cannot go on from its past, when a repair has changed that; else empty."""
    spec = store.read_record(row.spec_seq, RolloutSpec)
    if spec is None or spec.origin is None:
        return ""
    first = max(1, row.first_step - 1)  # with oₖ, which stands in a fork
    owner = find_incomplete_ancestor(store, row.id, first, spec.parent_step or 0, spec.origin.seq)
    if not owner:
        return ""
    return (
        f"Steps that {row.id} shares with {owner} were set aside by a repair: it cannot "
        "continue from them."
    )


def _first_damaged_of(
    store: Store, row: RolloutRow, query: str, parameters: tuple[str | int, ...]
) -> int:
    seq = 0
    repaired = None
    try:
        for *columns, before in store.connection.execute(query, parameters):
            event = EventRow(*columns)
            seq = event.seq
            if event.kind == event_bodies.QUARANTINED_KIND or _is_sound(store, event, before):
                continue
            repaired = _read_repaired_rows(store) if repaired is None else repaired
            if repaired.get(seq) != hash_chain.row_hash(event):
                return seq
    except HoustonError:  # a blob of this event
        return seq
    except (sqlite3.DatabaseError, UnicodeDecodeError):  # the one behind it cannot be read
        return _next_event_seq(store, str(parameters[0]), seq) or seq or row.spec_seq
    return 0


def _next_event_seq(store: Store, rollout: str, seq: int) -> int:
    """The rollout's next event, from an index; 0 where that is damaged as well."""
    try:
        ((next_seq,),) = store.connection.execute(
            "SELECT min(seq) FROM (SELECT seq FROM events WHERE rollout = ?1 AND part IS NOT NULL"
            " UNION SELECT seq FROM events WHERE rollout = ?1 AND"
            f" {journal_events.OUT_OF_STEP_EVENTS})"
            " WHERE seq > ?2",
            (rollout, seq),
        )
    except sqlite3.DatabaseError:
        next_seq = None
    return next_seq or 0


def _is_sound(store: Store, event: EventRow, before: bytes | None) -> bool:
    """before: the chain of the event before; None for the first."""
    blob = event.blob
    data = event.body if blob is None else store_reader.read_blob(store.home, str(blob))
    if not isinstance(data, bytes) or hash_chain.body_hash(data) != event.body_hash:
        return False
    start = hash_chain.GENESIS if before is None else before
    assert isinstance(start, bytes)
    return bool(hash_chain.chain_value(start, event.header, event.body_hash) == event.chain)


def _read_repaired_rows(store: Store) -> dict[int, bytes]:
    """Rows for which a repair has vouched: their place in the chain cannot be checked."""
    rows = store.connection.execute(
        "SELECT body FROM events WHERE rollout = '' AND kind = 'repaired' AND body IS NOT NULL"
    ).fetchall()
    rows_by_seq: dict[int, bytes] = {}
    for (body,) in rows:
        repair = msgspec.msgpack.decode(body, type=event_bodies.JournalRepaired)
        rows_by_seq.update(zip(repair.seqs, repair.rows, strict=True))
    return rows_by_seq


SUPERVISOR = "supervisor"


def list_runnable_rollouts(store: Store) -> list[str]:
    """Rollouts in `queued` or `running` without a live worker, oldest first."""
    rows = store.connection.execute(
        "SELECT id FROM rollouts WHERE state IN ('queued', 'running') ORDER BY spec_seq"
    )
    return [id for (id,) in rows if store.workers.get(id) is None]


def assign_rollout(store: Store, rollout: str) -> Assignment | str:
    """Raise the lease and give the spec; raises HoustonError when it cannot run now.

    If its stored context is damaged, pauses it and returns the sentence.
    """
    row = store.read_rollout(rollout)
    if row is None or row.state not in ("queued", "running"):
        raise denial(f"{rollout} is {row.state if row else 'unknown'} and cannot be assigned.")
    if damage := pause_if_damaged(store, row):
        return damage
    spec = store.read_record(row.spec_seq, RolloutSpec)
    if spec is None:
        raise denial(f"The settings that {rollout} was started with were erased.")
    if row.state == "queued":
        change_state(store, row, "running", SUPERVISOR)
    lease = row.lease + 1
    point("recorder.assign.before")
    store.journal.append(EventKey(rollout), "assigned", RolloutAssigned(lease=lease))
    store.after_commit.append(lambda: store.workers.add(rollout, lease))
    return Assignment(spec, lease)


def handle_worker_end(store: Store, rollout: str, lease: int, failure: str) -> None:
    """Record that a worker ended: a failure fails its rollout, a waiting cancel is completed.

    The active time of its last heartbeat is stored in any case.
    """
    point("recorder.ended.before")
    active_us = store.workers.remove(rollout, lease)
    row = store.read_rollout(rollout)
    if row is None or row.lease != lease or row.has_ended:
        return
    if active_us > row.active_us:
        store.journal.append(EventKey(rollout), "clock", ActiveTimeStored(active_us=active_us))
    if row.cancelling:
        change_state(store, row, "cancelled", row.cancelling, row.reason, active_us)
    elif failure:
        change_state(store, row, "failed", SUPERVISOR, failure, active_us)
    elif row.state == "running":
        store.supervisor_events.append(RunnableChanged())
    elif row.state == "paused" and row.paused_by in PAUSES_RETRIED_BY_WORKER and not store.draining:
        # Its worker looked for the machine, or asked the engine again; the next one does.
        change_state(store, row, "queued", row.paused_by, "its worker ended", active_us)
    elif row.state == "paused":
        mark_unattended(store, rollout)


def settle_at_start(store: Store) -> None:
    """Settle rollouts at a start, when nobody runs them: cancels are completed, and those that
    waited for an engine or a machine are queued again, until this daemon knows better.
    """
    rows = store.connection.execute(
        "SELECT id FROM rollouts WHERE cancelling <> '' OR state = 'paused'"
    ).fetchall()
    for (id,) in rows:
        row = store.read_rollout(id)
        if row is None or row.has_ended:
            continue
        if row.cancelling:
            change_state(store, row, "cancelled", row.cancelling, row.reason)
        elif row.paused_by not in PAUSES_RETRIED_BY_WORKER:
            mark_unattended(store, id)
        else:
            change_state(store, row, "queued", row.paused_by, "the daemon started again")


def pause_for_engine(store: Store, engine: str, down: bool, reason: str) -> None:
    """Pause rollouts that sample from an engine that is down; resume those paused for it."""
    ids = store.connection.execute(
        "SELECT id FROM rollouts WHERE state IN ('queued', 'running', 'paused') AND (engine = ?1"
        " OR EXISTS (SELECT 1 FROM json_each(role_engines)"
        " WHERE json_extract(value, '$.engine') = ?1)) ORDER BY spec_seq",
        (engine,),
    ).fetchall()
    for (id,) in ids:
        row = store.read_rollout(id)
        if row is None or row.cancelling:
            continue
        if down and row.state != "paused":
            change_state(store, row, "paused", PAUSED_BY_ENGINE, reason)
        elif not down and row.state == "paused" and row.paused_by == PAUSED_BY_ENGINE:
            resume_rollout(store, row, PAUSED_BY_ENGINE, reason)


_PAUSED_FOR_DISK = (
    f"SELECT id FROM rollouts WHERE state = 'paused' AND paused_by = '{PAUSED_BY_DISK}'"
)
_SELECT_ACTIVE = "SELECT id FROM rollouts WHERE state IN ('queued', 'running') AND cancelling = ''"


def is_disk_pause_due(store: Store, full: bool) -> bool:
    """Whether `pause_for_disk` has anything to do."""
    query = _SELECT_ACTIVE if full else _PAUSED_FOR_DISK
    return store.connection.execute(f"{query} LIMIT 1").fetchone() is not None


def pause_for_disk(store: Store, reason: str) -> None:
    """Pause all rollouts that could run while the home's disk is full; resume them afterwards.

    reason: why there is no room; empty if there is.
    """
    for (id,) in store.connection.execute(
        _SELECT_ACTIVE if reason else _PAUSED_FOR_DISK
    ).fetchall():
        row = store.read_rollout(id)
        if row is None or row.cancelling:
            continue
        if reason:
            change_state(store, row, "paused", PAUSED_BY_DISK, reason)
        else:
            resume_rollout(store, row, PAUSED_BY_DISK, "disk space is available again")
