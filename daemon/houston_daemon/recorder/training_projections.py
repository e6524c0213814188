"""What the events of policies, training runs and activations change in the derived tables.

Pure functions of the events, as in `event_projections`, whose table maps kinds to them.
"""

import sqlite3
from typing import TYPE_CHECKING

from houston_shared.store.training_event_bodies import (
    ENDED_RUN_STATES,
    ActivationEnded,
    ActivationRequested,
    PolicyRegistered,
    TrainingCancelRequested,
    TrainingQueued,
    TrainingStateChanged,
)

if TYPE_CHECKING:
    from houston_daemon.recorder.event_projections import EventHeader


def project_policy(
    connection: sqlite3.Connection, event: "EventHeader", body: PolicyRegistered
) -> None:
    """A policy, and for its training run what came of it."""
    family, _, number = body.name.rpartition("@")
    connection.execute(
        "INSERT INTO policies (name, family, number, kind, base, base_hash, hash, folder, parent,"
        " run, manifest, seq, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            body.name,
            family,
            int(number),
            body.kind,
            body.base,
            body.base_hash,
            body.hash,
            body.folder,
            body.parent,
            body.run,
            body.manifest,
            event.seq,
            event.at,
        ),
    )
    connection.execute(
        "UPDATE training_runs SET policy = ?, last_seq = ? WHERE id = ? AND ? != ''",
        (body.name, event.seq, body.run, body.run),
    )


def project_training_request(
    connection: sqlite3.Connection, event: "EventHeader", body: TrainingQueued
) -> None:
    """Queued; one that failed or was cancelled, once more."""
    connection.execute(
        "INSERT INTO training_runs (id, kind, state, alone, by, seq, queued_at, last_seq)"
        " VALUES (?, ?, 'queued', ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
        " state = excluded.state, reason = '', alone = excluded.alone, cancelling = '',"
        " by = excluded.by, seq = excluded.seq, queued_at = excluded.queued_at,"
        " last_seq = excluded.last_seq, ended_at = NULL",
        (body.run, body.kind, int(body.alone), body.by, event.seq, event.at, event.seq),
    )


def project_training_state(
    connection: sqlite3.Connection, event: "EventHeader", body: TrainingStateChanged
) -> None:
    """Another state; an ended run stays as it is."""
    ended = body.state in ENDED_RUN_STATES
    connection.execute(
        "UPDATE training_runs SET state = ?2, reason = ?3, starts = starts + ?4, last_seq = ?5,"
        " started_at = CASE WHEN ?4 AND started_at IS NULL THEN ?6 ELSE started_at END,"
        " ended_at = CASE WHEN ?7 THEN ?6 END WHERE id = ?1 AND ended_at IS NULL",
        (body.run, body.state, body.reason, int(body.start), event.seq, event.at, int(ended)),
    )


def project_training_cancel(
    connection: sqlite3.Connection, event: "EventHeader", body: TrainingCancelRequested
) -> None:
    """Its process is to end."""
    connection.execute(
        "UPDATE training_runs SET cancelling = ?, last_seq = ? WHERE id = ? AND ended_at IS NULL",
        (body.by, event.seq, body.run),
    )


def project_activation(
    connection: sqlite3.Connection, event: "EventHeader", body: ActivationRequested
) -> None:
    """Asked for; nothing samples with it yet."""
    connection.execute(
        "INSERT INTO activations (seq, engine, policy, rollback, state, by, at)"
        " VALUES (?, ?, ?, ?, 'asked', ?, ?)",
        (event.seq, body.engine, body.policy, int(body.rollback), body.by, event.at),
    )


def project_activation_result(
    connection: sqlite3.Connection, event: "EventHeader", body: ActivationEnded
) -> None:
    """In force, or not."""
    connection.execute(
        "UPDATE activations SET state = ?, reason = ?, ended_at = ? WHERE seq = ?"
        " AND state = 'asked'",
        ("active" if body.ok else "failed", body.reason, event.at, body.asked),
    )
