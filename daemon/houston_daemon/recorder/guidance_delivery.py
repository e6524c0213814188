"""Queued guidance in the database, and the transaction that delivers it.

docs/design.md#invariant-2: `deliver_guidance` runs inside the transaction that stores the
observation of step t. Texts stay in their own events; the delivery names them in order. Queueing,
editing and reordering by people is in `handlers.guidance_handlers`.
"""

import msgspec

from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.recorder.recorder_store import Store
from houston_shared.faults import point
from houston_shared.records import DeliveredGuidance, Guidance
from houston_shared.store.event_bodies import GuidanceDelivered
from houston_shared.store.journal_events import OPEN_END
from houston_shared.store.rollout_queries import LINEAGE_SQL
from houston_shared.times_and_counts import iso_time


class _GuidanceText(msgspec.Struct, frozen=True):
    """The field that every event with guidance text has."""

    text: str


_text_decoder = msgspec.msgpack.Decoder(_GuidanceText)


def deliver_guidance(
    store: Store, rollout: str, step: int, attempt: int
) -> tuple[DeliveredGuidance, ...]:
    """Join everything queued by now to the observation of a step; returns it in order."""
    joined = _select_guidance(store, "g.state = 'queued'", rollout)
    if joined:
        point("recorder.deliver.before")
        ids = tuple(guidance.id for guidance in joined)
        store.journal.append(
            EventKey(rollout, step, attempt), "delivery", GuidanceDelivered(ids=ids)
        )
    return joined


def has_queued_guidance(store: Store, rollout: str) -> bool:
    """Whether anything is queued."""
    row = store.connection.execute(
        "SELECT 1 FROM guidance WHERE rollout = ? AND state = 'queued' LIMIT 1", (rollout,)
    ).fetchone()
    return row is not None


def read_delivered_guidance(store: Store, rollout: str, step: int) -> tuple[DeliveredGuidance, ...]:
    """What was joined to the observation of a step, in order: the same as then."""
    return _select_guidance(store, "g.delivered_step = ?2 AND g.state = 'delivered'", rollout, step)


def read_guidance_by_ids(
    store: Store, rollout: str, ids: tuple[str, ...]
) -> tuple[DeliveredGuidance, ...]:
    """Delivered guidance by id, in the order asked for; unknown ids are left out.

    For a branch, this includes guidance delivered in the past that it shares.
    """
    rows = store.connection.execute(
        f"{LINEAGE_SQL} SELECT g.id, g.author, e.body FROM line"
        " JOIN guidance g ON g.rollout = line.id"
        " JOIN events e ON e.seq = g.text_seq WHERE g.state = 'delivered'"
        " AND g.delivered_step <= line.last",
        (rollout, OPEN_END),
    )
    guidance_by_id = {
        id: DeliveredGuidance(id=id, author=author, text=decode_guidance_text(body))
        for id, author, body in rows
    }
    return tuple(guidance_by_id[id] for id in ids if id in guidance_by_id)


def read_guidance(store: Store, id: str) -> Guidance | None:
    """One message as people see it."""
    row = store.connection.execute(
        "SELECT g.rollout, g.author, e.body, g.mode, g.state, g.delivered_step, g.queued_at,"
        " g.delivered_at, g.revision, g.verified, coalesce(d.critic, '') FROM guidance g"
        " JOIN events e ON e.seq = g.text_seq LEFT JOIN critic_drafts d ON d.guidance = g.id"
        " WHERE g.id = ?",
        (id,),
    ).fetchone()
    if row is None:
        return None
    (
        *(rollout, author, body, mode, state, step, queued_at, delivered_at, revision, verified),
        critic,
    ) = row
    return Guidance(
        id=id,
        rollout=rollout,
        author=author,
        text=decode_guidance_text(body),
        mode=mode,
        state=state,
        step=step,
        queued_at=iso_time(queued_at),
        delivered_at=None if delivered_at is None else iso_time(delivered_at),
        revision=revision,
        verified=bool(verified),
        critic=critic,
    )


def decode_guidance_text(body: bytes | None) -> str:
    """The text in an event's body; guidance is short, so it always lies in its row."""
    return "" if body is None else _text_decoder.decode(body).text


def _select_guidance(
    store: Store, condition: str, rollout: str, *more: int
) -> tuple[DeliveredGuidance, ...]:
    rows = store.connection.execute(
        "SELECT g.id, g.author, e.body FROM guidance g JOIN events e ON e.seq = g.text_seq"
        f" WHERE g.rollout = ?1 AND {condition} ORDER BY g.place",
        (rollout, *more),
    )
    return tuple(
        DeliveredGuidance(id=id, author=author, text=decode_guidance_text(body))
        for id, author, body in rows
    )
