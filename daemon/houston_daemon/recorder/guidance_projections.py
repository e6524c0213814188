"""How events of guidance and of critics' drafts change the derived tables: part of
`event_projections`, with its rules."""

from sqlite3 import Connection

from houston_daemon.recorder.hash_chain import EventHeader
from houston_daemon.recorder.training_projections import insert_row
from houston_shared.store.event_bodies import (
    DraftDecided,
    DraftWritten,
    GuidanceDelivered,
    GuidanceEdited,
    GuidanceQueued,
    GuidanceReordered,
    GuidanceWithdrawn,
    ReviewCostStored,
)
from houston_shared.store.journal_events import placeholders


def project_guidance(connection: Connection, event: EventHeader, body: GuidanceQueued) -> None:
    """Queued; its number is the sequence of this event, so order of queueing is journal order."""
    insert_row(
        connection,
        "guidance",
        id=body.id,
        number=event.seq,
        rollout=event.rollout,
        author=body.author,
        uid=body.uid,
        verified=int(body.verified),
        mode=body.mode,
        state="queued",
        text_seq=event.seq,
        queued_at=event.at,
        place=event.seq,
    )


def project_guidance_edit(connection: Connection, event: EventHeader, body: GuidanceEdited) -> None:
    """Another text, the next revision."""
    connection.execute(
        "UPDATE guidance SET text_seq = ?, revision = ? WHERE id = ?",
        (event.seq, body.revision, body.id),
    )


def project_guidance_withdrawal(
    connection: Connection, event: EventHeader, body: GuidanceWithdrawn
) -> None:
    """Taken back."""
    connection.execute("UPDATE guidance SET state = 'withdrawn' WHERE id = ?", (body.id,))


def project_guidance_order(
    connection: Connection, event: EventHeader, body: GuidanceReordered
) -> None:
    """The places stay the same, and are given out in another order."""
    reassign_guidance_places(connection, body.ids)


def reassign_guidance_places(connection: Connection, ids: tuple[str, ...]) -> None:
    """Assign the places of this guidance in the order of `ids`; usually nothing changes."""
    marks = placeholders(ids)
    rows = connection.execute(f"SELECT id, place FROM guidance WHERE id IN ({marks})", ids)
    place: dict[str, int] = dict(rows.fetchall())
    known_ids = [id for id in ids if id in place]
    places_in_order = zip(known_ids, sorted(place.values()), strict=True)
    moved = [(number, id) for id, number in places_in_order if place[id] != number]
    connection.executemany("UPDATE guidance SET place = ? WHERE id = ?", moved)


def project_delivery(connection: Connection, event: EventHeader, body: GuidanceDelivered) -> None:
    """Guidance was joined to the observation of this step."""
    connection.executemany(
        "UPDATE guidance SET state = 'delivered', delivered_step = ?, delivered_seq = ?,"
        " delivered_at = ? WHERE id = ?",
        [(event.step, event.seq, event.at, id) for id in body.ids],
    )
    # Also where a repair has lost who reordered them.
    reassign_guidance_places(connection, body.ids)
    connection.execute(
        "UPDATE steps SET guided = ?, last_seq = ? WHERE rollout = ? AND step = ? AND attempt = ?",
        (len(body.ids), event.seq, event.rollout, event.step, event.attempt),
    )


def project_draft(connection: Connection, event: EventHeader, body: DraftWritten) -> None:
    """Open, until somebody decides."""
    insert_row(
        connection,
        "critic_drafts",
        id=body.id,
        rollout=event.rollout,
        step=event.step,
        critic=body.critic,
        state="open",
        seq=event.seq,
        at=event.at,
    )


def project_draft_decision(connection: Connection, event: EventHeader, body: DraftDecided) -> None:
    """Who decided, and what was said."""
    connection.execute(
        "UPDATE critic_drafts SET state = ?, by = ?, guidance = ? WHERE id = ?",
        (body.decision, body.by, body.guidance, body.id),
    )


def project_review_cost(connection: Connection, event: EventHeader, body: ReviewCostStored) -> None:
    """A row each time that a rollout was read."""
    insert_row(
        connection,
        "review_costs",
        seq=event.seq,
        rollout=event.rollout,
        reviewer=body.reviewer,
        request=body.request,
        requests=body.requests,
        prompt_tokens=body.prompt_tokens,
        sampled_tokens=body.sampled_tokens,
        reckoned=int(body.reckoned),
        cost=body.cost,
        at=event.at,
    )
