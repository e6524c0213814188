"""Derived rows of what people say: guidance and its order, verdicts, claims, bookmarks, notes."""

import sqlite3
from typing import TYPE_CHECKING

from houston_shared.store.bodies import (
    Bookmarked,
    Claimed,
    GuidanceEdited,
    GuidanceQueued,
    GuidanceReordered,
    GuidanceWithdrawn,
    VerdictGiven,
)

if TYPE_CHECKING:
    from houston_daemon.recorder.derived.rules import Event


def guidance(connection: sqlite3.Connection, event: "Event", body: GuidanceQueued) -> None:
    """Queued; its number is the sequence of this event, so order of queueing is journal order."""
    connection.execute(
        "INSERT INTO guidance (id, number, rollout, author, uid, verified, mode, state, text_seq,"
        " queued_at, place) VALUES (?, ?, ?, ?, ?, ?, ?, 'queued', ?, ?, ?)",
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
            event.seq,
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


def reorder(connection: sqlite3.Connection, event: "Event", body: GuidanceReordered) -> None:
    """The places stay the same, and are given out in another order."""
    put_in_order(connection, body.ids)


def put_in_order(connection: sqlite3.Connection, ids: tuple[str, ...]) -> None:
    """Give the places of some guidance out in the order of `ids`; most often they are already."""
    marks = ", ".join("?" * len(ids))
    found = connection.execute(f"SELECT id, place FROM guidance WHERE id IN ({marks})", ids)
    place: dict[str, int] = dict(found.fetchall())
    there = [one for one in ids if one in place]
    should = zip(there, sorted(place.values()), strict=True)
    moved = [(number, one) for one, number in should if place[one] != number]
    connection.executemany("UPDATE guidance SET place = ? WHERE id = ?", moved)


def verdict(connection: sqlite3.Connection, event: "Event", body: VerdictGiven) -> None:
    """On the attempts that count; a step that is not there (any more) has none."""
    span = (event.rollout, event.step, body.last)
    if body.verdict == "undecided":
        connection.execute(
            "DELETE FROM verdicts WHERE rollout = ? AND step BETWEEN ? AND ? AND source = ?"
            " AND attempt IN (SELECT attempt FROM steps s WHERE s.rollout = verdicts.rollout"
            " AND s.step = verdicts.step AND s.current)",
            (*span, body.source),
        )
        return
    connection.execute(
        "INSERT OR REPLACE INTO verdicts (rollout, step, attempt, source, keep, author, seq, at)"
        " SELECT rollout, step, attempt, ?4, ?5, ?6, ?7, ?8 FROM steps WHERE rollout = ?1"
        " AND step BETWEEN ?2 AND ?3 AND current AND observation_seq IS NOT NULL",
        (*span, body.source, int(body.verdict == "keep"), body.by, event.seq, event.at),
    )


def claim(connection: sqlite3.Connection, event: "Event", body: Claimed) -> None:
    """Who holds it, since when, and where the newest note is."""
    holder = "" if body.release else body.by
    connection.execute(
        "INSERT INTO claims (rollout, holder, uid, verified, since, seq, note_seq)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO UPDATE SET"
        " since = CASE WHEN holder = ?2 AND uid IS ?3 OR holder = '' AND ?2 = '' THEN since"
        " ELSE ?5 END, holder = ?2, uid = ?3, verified = ?4, seq = ?6,"
        " note_seq = coalesce(?7, note_seq)",
        (
            event.rollout,
            holder,
            body.uid,
            int(body.verified),
            event.at,
            event.seq,
            event.seq if body.note else None,
        ),
    )


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
