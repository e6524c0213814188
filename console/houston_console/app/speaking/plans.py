"""Reads around guidance: what a person said before, and what the agent did after it heard."""

from typing import NamedTuple

from houston_shared.store.plan import Plan
from houston_shared.store.queries import actions, guidance
from houston_shared.store.queries.actions import Acted

REMEMBERED = 200
"""Messages of a person that the composer walks through."""
AFTER = 3
"""Steps after a message that are shown with it."""


class Followed(NamedTuple):
    """What the agent did after it had heard a message."""

    id: str
    steps: tuple[Acted, ...]


def said_by(author: str) -> Plan[list[str]]:
    """What a person said to any rollout, the newest last."""
    return [one.text for one in (yield from guidance.of_author(author, REMEMBERED))]


def followed(rollout: str, id: str, heard: int) -> Plan[Followed]:
    """The steps after step `heard`, in whose observation the message was."""
    found: list[Acted] = []
    for step in range(heard + 1, heard + 1 + AFTER):
        acted = yield from actions.of_step(rollout, step)
        if acted is not None:
            found.append(acted)
    return Followed(id, tuple(found))
