"""What was said to a rollout, whether the daemon has it or not. Pure."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from houston_shared.records import Guidance, GuidanceMode

EntryState = Literal["unsent", "refused", "queued", "delivered", "withdrawn"]


class Entry(NamedTuple):
    """One message in the queue, whether the daemon has it or not."""

    id: str
    state: EntryState
    mode: GuidanceMode
    author: str
    text: str
    step: int | None = None
    revision: int = 0
    verified: bool = True
    reason: str = ""
    """Why it was refused."""
    queued_at: str = ""
    """UTC, as in JSON; empty for what is not sent."""
    delivered_at: str = ""


def queue(stored: Iterable[Guidance], unsent: Iterable[Entry]) -> list[Entry]:
    """What was said to a rollout: what is not sent, what waits in the order in which the agent will
    hear it, then the newest of the rest first.

    A message that the daemon has is never shown as unsent, whatever the outbox still holds.
    """
    found = [
        Entry(
            id=one.id,
            state=one.state,
            mode=one.mode,
            author=one.author,
            text=one.text,
            step=one.step,
            revision=one.revision,
            verified=one.verified,
            queued_at=one.queued_at,
            delivered_at=one.delivered_at or "",
        )
        for one in stored
    ]
    known = {one.id for one in found}
    here = [one for one in unsent if one.id not in known]
    waiting = [one for one in found if one.state == "queued"]
    return here + waiting + [one for one in found[::-1] if one.state != "queued"]


def moved(entries: Iterable[Entry], id: str, by: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Ids of what waits: as it is, and with `id` so many places later; the same at an end."""
    order = [one.id for one in entries if one.state == "queued"]
    if id not in order:
        return tuple(order), tuple(order)
    at = order.index(id)
    wanted = order.copy()
    wanted.insert(max(0, min(at + by, len(order) - 1)), wanted.pop(at))
    return tuple(order), tuple(wanted)
