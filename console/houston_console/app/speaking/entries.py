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


def queue(stored: Iterable[Guidance], unsent: Iterable[Entry]) -> list[Entry]:
    """What was said to a rollout: what is not sent first, then newest first.

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
        )
        for one in stored
    ]
    known = {one.id for one in found}
    return [one for one in unsent if one.id not in known] + found[::-1]
