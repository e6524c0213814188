"""What the events of policies, training runs and activations change in the derived tables.

Pure functions of the events, as in `event_projections`, whose table maps kinds to them.
"""

import functools
from sqlite3 import Connection

from houston_daemon.recorder.hash_chain import EventHeader
from houston_shared.store.journal_events import placeholders
from houston_shared.store.training_event_bodies import (
    ENDED_RUN_STATES,
    ActivationEnded,
    ActivationRequested,
    PolicyRegistered,
    TrainingCancelRequested,
    TrainingQueued,
    TrainingStateChanged,
)


def insert_row(connection: Connection, table: str, **values: object) -> None:
    """Insert a derived row."""
    connection.execute(_insert_statement(table, tuple(values)), tuple(values.values()))


@functools.cache
def _insert_statement(table: str, columns: tuple[str, ...]) -> str:
    marks = placeholders(columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"


def project_policy(connection: Connection, event: EventHeader, body: PolicyRegistered) -> None:
    """Add a policy, and name it as the result of its training run."""
    family, _, number = body.name.rpartition("@")
    insert_row(
        connection,
        "policies",
        name=body.name,
        family=family,
        number=int(number),
        kind=body.kind,
        base=body.base,
        base_hash=body.base_hash,
        hash=body.hash,
        folder=body.folder,
        parent=body.parent,
        run=body.run,
        manifest=body.manifest,
        seq=event.seq,
        created_at=event.at,
    )
    connection.execute(
        "UPDATE training_runs SET policy = ?, last_seq = ? WHERE id = ? AND ? != ''",
        (body.name, event.seq, body.run, body.run),
    )


def project_training_request(
    connection: Connection, event: EventHeader, body: TrainingQueued
) -> None:
    """Queue a run; one that failed or was cancelled is queued again."""
    connection.execute(
        "INSERT INTO training_runs (id, kind, state, alone, by, seq, queued_at, last_seq)"
        " VALUES (?, ?, 'queued', ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
        " state = excluded.state, reason = '', alone = excluded.alone, cancelling = '',"
        " by = excluded.by, seq = excluded.seq, queued_at = excluded.queued_at,"
        " last_seq = excluded.last_seq, ended_at = NULL",
        (body.run, body.kind, int(body.alone), body.by, event.seq, event.at, event.seq),
    )


def project_training_state(
    connection: Connection, event: EventHeader, body: TrainingStateChanged
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
    connection: Connection, event: EventHeader, body: TrainingCancelRequested
) -> None:
    """Its process is to end."""
    connection.execute(
        "UPDATE training_runs SET cancelling = ?, last_seq = ? WHERE id = ? AND ended_at IS NULL",
        (body.by, event.seq, body.run),
    )


def project_activation(
    connection: Connection, event: EventHeader, body: ActivationRequested
) -> None:
    """Asked for; nothing samples with it yet."""
    insert_row(
        connection,
        "activations",
        seq=event.seq,
        engine=body.engine,
        policy=body.policy,
        rollback=int(body.rollback),
        state="asked",
        by=body.by,
        at=event.at,
    )


def project_activation_result(
    connection: Connection, event: EventHeader, body: ActivationEnded
) -> None:
    """In force, or not."""
    connection.execute(
        "UPDATE activations SET state = ?, reason = ?, ended_at = ? WHERE seq = ?"
        " AND state = 'asked'",
        ("active" if body.ok else "failed", body.reason, event.at, body.asked),
    )
