"""Derived rows of what people say: guidance, bookmarks and notes."""

import sqlite3
from typing import TYPE_CHECKING

from houston_shared.store.bodies import (
    Bookmarked,
    GuidanceEdited,
    GuidanceQueued,
    GuidanceWithdrawn,
)

if TYPE_CHECKING:
    from houston_daemon.recorder.derived.rules import Event


def guidance(connection: sqlite3.Connection, event: "Event", body: GuidanceQueued) -> None:
    """Queued; its number is the sequence of this event, so order of queueing is journal order."""
    connection.execute(
        "INSERT INTO guidance (id, number, rollout, author, uid, verified, mode, state, text_seq,"
        " queued_at) VALUES (?, ?, ?, ?, ?, ?, ?, 'queued', ?, ?)",
        (
            body.id,
            event.seq,
            event.rollout,
            body.author,
            body.uid,
            int(body.verified),
            body.mode,
            event.seq,
            event.at,
        ),
    )


def edit(connection: sqlite3.Connection, event: "Event", body: GuidanceEdited) -> None:
    """Another text, the next revision."""
    connection.execute(
        "UPDATE guidance SET text_seq = ?, revision = ? WHERE id = ?",
        (event.seq, body.revision, body.id),
    )


def withdraw(connection: sqlite3.Connection, event: "Event", body: GuidanceWithdrawn) -> None:
    """Taken back."""
    connection.execute("UPDATE guidance SET state = 'withdrawn' WHERE id = ?", (body.id,))


def bookmark(connection: sqlite3.Connection, event: "Event", body: Bookmarked) -> None:
    """Marked, or the author's mark removed; a note stays even when its mark goes."""
    if body.remove:
        connection.execute(
            "DELETE FROM bookmarks WHERE rollout = ? AND step = ? AND author = ?",
            (event.rollout, event.step, body.author),
        )
        return
    row = (event.rollout, event.step, body.author, event.seq, event.at)
    connection.execute(
        "INSERT INTO bookmarks (rollout, step, author, seq, at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET seq = excluded.seq, at = excluded.at",
        row,
    )
    if body.note:
        connection.execute(
            "INSERT INTO notes (rollout, step, author, seq, at) VALUES (?, ?, ?, ?, ?)", row
        )
