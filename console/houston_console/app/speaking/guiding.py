"""What people ask of the daemon from the console: withdraw, edit, pause, resume, cancel.

Sending guidance is `link`'s, because it must outlive the daemon; these ask once and say how it
went.
"""

from typing import Literal

from houston_console.app.link import Link
from houston_console.app.speaking.entries import Entry
from houston_console.app.speaking.outbox import Draft
from houston_shared.wire import EditGuidance, Steer, Withdraw
from houston_shared.wire_people import Reorder

Action = Literal["pause", "resume", "cancel"]
DONE: dict[Action, str] = {
    "pause": "Paused: the agent stops after the step it is in.",
    "resume": "Resumed.",
    "cancel": "Cancelled.",
}


async def steer(link: Link, rollout: str, action: Action, undoes: int = 0, reason: str = "") -> int:
    """Pause, resume or cancel; returns the event that says it. Raises HoustonError.

    undoes: the event of one's own that this takes back.
    """
    message = Steer(
        rollout=rollout, action=action, reason=reason, undoes=undoes, claimed=link.claimed
    )
    return getattr(await link.ask(message), "seq", 0)


async def withdraw(link: Link, entry: Entry) -> str:
    """Take queued guidance back; returns what to say. Raises HoustonError."""
    await link.ask(Withdraw(id=entry.id, claimed=link.claimed))
    return "Withdrawn: the agent will not hear it."


async def reorder(link: Link, rollout: str, seen: tuple[str, ...], order: tuple[str, ...]) -> str:
    """Have what waits heard in another order; returns what to say. Raises HoustonError."""
    await link.ask(Reorder(rollout=rollout, order=order, seen=seen, claimed=link.claimed))
    return "Moved: the agent hears what waits in this order."


async def edit(link: Link, draft: Draft) -> str:
    """Change queued guidance to what the draft says. Raises HoustonError."""
    message = EditGuidance(
        id=draft.edits, revision=draft.revision, text=draft.text, claimed=link.claimed
    )
    await link.ask(message)
    return "Changed: the agent will hear the new words."
