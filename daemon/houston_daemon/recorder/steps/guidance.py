"""Guidance in the database: what is queued, and the transaction that joins it to an observation.

Invariant 2: `deliver` runs inside the transaction that stores the observation of step t. The texts
stay in their own events; the delivery names them in order.
"""

import msgspec

from houston_daemon.recorder.steps.journal import Key
from houston_daemon.recorder.store import Store
from houston_shared.clock import iso
from houston_shared.faults import point
from houston_shared.records import Delivered, Guidance
from houston_shared.store.bodies import Delivery
from houston_shared.store.plan import END
from houston_shared.store.queries.lineage import LINE


class _Text(msgspec.Struct, frozen=True):
    """The field that every event with guidance text has."""

    text: str


_text = msgspec.msgpack.Decoder(_Text)


def deliver(store: Store, rollout: str, step: int, attempt: int) -> tuple[Delivered, ...]:
    """Join everything queued by now to the observation of a step; returns it in order."""
    joined = _read(store, "g.state = 'queued'", rollout)
    if joined:
        point("recorder.deliver.before")
        ids = tuple(one.id for one in joined)
        store.journal.append(Key(rollout, step, attempt), "delivery", Delivery(ids=ids))
    return joined


def waits(store: Store, rollout: str) -> bool:
    """Whether anything is queued."""
    found = store.connection.execute(
        "SELECT 1 FROM guidance WHERE rollout = ? AND state = 'queued' LIMIT 1", (rollout,)
    ).fetchone()
    return found is not None


def delivered(store: Store, rollout: str, step: int) -> tuple[Delivered, ...]:
    """What was joined to the observation of a step, in order: the same as then."""
    return _read(store, "g.delivered_step = ?2 AND g.state = 'delivered'", rollout, step)


def by_ids(store: Store, rollout: str, ids: tuple[str, ...]) -> tuple[Delivered, ...]:
    """Delivered guidance by id, in the order asked for; ids that are none are left out.

    What was said in the past that a branch shares is its own, too.
    """
    rows = store.connection.execute(
        f"{LINE} SELECT g.id, g.author, e.body FROM line JOIN guidance g ON g.rollout = line.id"
        " JOIN events e ON e.seq = g.text_seq WHERE g.state = 'delivered'"
        " AND g.delivered_step <= line.last",
        (rollout, END),
    )
    known = {id: Delivered(id=id, author=author, text=text(body)) for id, author, body in rows}
    return tuple(known[id] for id in ids if id in known)


def one(store: Store, id: str) -> Guidance | None:
    """One message as people see it."""
    row = store.connection.execute(
        "SELECT g.rollout, g.author, e.body, g.mode, g.state, g.delivered_step, g.queued_at,"
        " g.delivered_at, g.revision, g.verified FROM guidance g"
        " JOIN events e ON e.seq = g.text_seq WHERE g.id = ?",
        (id,),
    ).fetchone()
    if row is None:
        return None
    rollout, author, body, mode, state, step, queued_at, delivered_at, revision, verified = row
    return Guidance(
        id=id,
        rollout=rollout,
        author=author,
        text=text(body),
        mode=mode,
        state=state,
        step=step,
        queued_at=iso(queued_at),
        delivered_at=None if delivered_at is None else iso(delivered_at),
        revision=revision,
        verified=bool(verified),
    )


def text(body: bytes | None) -> str:
    """The text in an event's body; guidance is short, so it always lies in its row."""
    return "" if body is None else _text.decode(body).text


def _read(store: Store, condition: str, rollout: str, *more: int) -> tuple[Delivered, ...]:
    rows = store.connection.execute(
        "SELECT g.id, g.author, e.body FROM guidance g JOIN events e ON e.seq = g.text_seq"
        f" WHERE g.rollout = ?1 AND {condition} ORDER BY g.place",
        (rollout, *more),
    )
    return tuple(Delivered(id=id, author=author, text=text(body)) for id, author, body in rows)
