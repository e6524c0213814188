"""Derived rows of tasks and rollouts: how a rollout stands, not what its steps did."""

import sqlite3
from typing import TYPE_CHECKING

from houston_shared.records import ENDED, Head, Origin, Record, TaskRecord
from houston_shared.store.bodies import (
    Assigned,
    CancelAsked,
    DaemonStarted,
    StoredSpec,
    StoredState,
)

if TYPE_CHECKING:
    from houston_daemon.recorder.derived.rules import Event


def daemon(connection: sqlite3.Connection, event: "Event", body: DaemonStarted) -> None:
    """The epoch that counts."""
    connection.execute(
        "INSERT INTO meta (key, value) VALUES ('epoch', ?1)"
        " ON CONFLICT (key) DO UPDATE SET value = ?1",
        (str(body.epoch),),
    )


def task(connection: sqlite3.Connection, event: "Event", body: TaskRecord) -> None:
    """The newest definition of a task."""
    connection.execute(
        "INSERT INTO tasks (name, seq, first_seen) VALUES (?, ?, ?)"
        " ON CONFLICT (name) DO UPDATE SET seq = excluded.seq",
        (body.name, event.seq, event.at),
    )


def spec(connection: sqlite3.Connection, event: "Event", body: StoredSpec) -> None:
    """A new rollout, queued; a branch begins as its parent stood after the step they share last."""
    begins = body.origin or Origin(seq=0, head_seq=0)
    connection.execute(
        "INSERT INTO rollouts (id, task, state, engine, policy, group_id, parent, parent_step,"
        " sandbox, spec_seq, created_at, updated_at, last_seq, request, head_seq, fork_seq, forks,"
        " first_step, steps, active_us, evaluations, best_score, last_score, errors)"
        " VALUES (?, ?, 'queued', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            event.rollout,
            body.task.name,
            body.engine,
            body.policy,
            body.group,
            body.parent,
            body.parent_step,
            body.sandbox,
            event.seq,
            event.at,
            event.at,
            event.seq,
            body.request,
            begins.head_seq or None,
            begins.fork_seq,
            begins.forks,
            begins.first_step,
            (body.parent_step or 0) if body.origin else 0,
            begins.active_us,
            begins.evaluations,
            begins.best_score,
            begins.last_score,
            begins.errors,
        ),
    )


def assigned(connection: sqlite3.Connection, event: "Event", body: Assigned) -> None:
    """The lease that counts."""
    connection.execute("UPDATE rollouts SET lease = ? WHERE id = ?", (body.lease, event.rollout))


def state(connection: sqlite3.Connection, event: "Event", body: StoredState) -> None:
    """The state, why, and who owns a pause."""
    owner = body.by if body.state == "paused" else ""
    connection.execute(
        "UPDATE rollouts SET state = ?1, paused_by = ?2, reason = ?3, activity = '',"
        " cancelling = CASE WHEN ?4 THEN '' ELSE cancelling END WHERE id = ?5",
        (body.state, owner, body.reason, body.state in ENDED, event.rollout),
    )


def cancel(connection: sqlite3.Connection, event: "Event", body: CancelAsked) -> None:
    """Who wants it ended."""
    connection.execute(
        "UPDATE rollouts SET cancelling = ?, reason = ? WHERE id = ?",
        (body.by, body.reason, event.rollout),
    )


def nothing(connection: sqlite3.Connection, event: "Event", body: Record) -> None:
    """Only the journal keeps it: no row but the rollout's newest time follows (`rules.apply`)."""


def head(connection: sqlite3.Connection, event: "Event", body: Head) -> None:
    """Where the head of the contexts is."""
    connection.execute("UPDATE rollouts SET head_seq = ? WHERE id = ?", (event.seq, event.rollout))
