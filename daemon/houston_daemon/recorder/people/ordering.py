"""The order of queued guidance: people may change it until it is delivered."""

from houston_daemon.recorder.people import said_before
from houston_daemon.recorder.people.identity import Author
from houston_daemon.recorder.people.say import rollout
from houston_daemon.recorder.refusal import denial
from houston_daemon.recorder.steps.journal import Key
from houston_daemon.recorder.store import Store
from houston_shared.store.bodies import GuidanceReordered
from houston_shared.wire import Done
from houston_shared.wire_people import Reorder

NAMED = 20
"""Ids that a refusal names at most."""


def reorder(store: Store, message: Reorder, author: Author) -> Done:
    """Deliver what is queued in another order; the same order again changes nothing.

    Any annotator may: nothing that somebody wrote changes.
    """
    row = rollout(store, message.rollout)
    rows = store.connection.execute(
        "SELECT id FROM guidance WHERE rollout = ? AND state = 'queued' ORDER BY place", (row.id,)
    )
    queued = tuple(id for (id,) in rows)
    if message.order == queued:
        return Done(seq=store.journal.seq)
    if (again := _again(store, message, author)) is not None:
        return Done(seq=again)
    same = len(message.order) == len(queued) and set(message.order) == set(queued)
    if not same or message.seen not in ((), queued):
        now = f"{', '.join(queued[:NAMED])}{', …' if len(queued) > NAMED else ''}"
        raise denial(
            f"The queue of {row.id} has changed; it holds {now or 'nothing'}.",
            f"houston guidance {row.id}",
        )
    body = GuidanceReordered(ids=message.order, by=author.name, **author.fields)
    return Done(seq=store.journal.append(Key(row.id), "reorder", body))


def _again(store: Store, message: Reorder, author: Author) -> int | None:
    """The event that gave this order, where the newest one did and its answer was lost."""
    newest = next(said_before.since(store, message.rollout, "reorder", 0), None)
    if newest is None or said_before.others(newest, author):
        return None
    assert isinstance(newest.body, GuidanceReordered)
    return newest.seq if newest.body.ids == message.order else None
