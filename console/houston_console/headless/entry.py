"""One event of the journal as a line: what `tail` and `log --audit` say about each kind.

It knows which kinds each shows and who did them; their words are `store.told`.
"""

from typing import Any, NamedTuple

from houston_shared.store import journal, told
from houston_shared.store.journal import Event
from houston_shared.store.plan import Plan

TOLD = (
    "sample", "result", "observation", "delivery", "fork",
    "spec", "state", "cancel", "guidance", "edit", "withdraw", "reorder", "bookmark", "verdict",
    "claim", "policy", "training", "training-moved", "activation", "activated",
)  # fmt: skip
"""Kinds that `tail` shows; the others (intents, clocks, leases, heads) only repeat or announce."""
DEEDS = (
    "daemon", "stop", "spec", "guidance", "edit", "withdraw", "reorder", "bookmark", "verdict",
    "claim", "state", "cancel", "erased", "repaired", "cleaned", "refused",
    "policy", "training", "training-cancel", "activation",
)  # fmt: skip
"""Kinds that somebody did: `log --audit`."""

Fields = dict[str, Any]


class Entry(NamedTuple):
    """An event and what its body says."""

    event: Event
    fields: Fields


def entries(condition: str, parameters: tuple[Any, ...]) -> Plan[list[Entry]]:
    """Events that meet an SQL condition (with its ORDER BY), with their bodies."""
    found = []
    for event in (yield from journal.events(condition, parameters)):
        found.append(Entry(event, (yield from journal.fields(event))))
    return found


def said(entry: Entry) -> str:
    """What the event says, in a few words; may hold line breaks of its own text."""
    return told.said(entry.event.kind, entry.fields, entry.event.step)


def who(entry: Entry) -> str:
    """Who did it: a person's name, or `worker`, `supervisor`, `daemon`, …; empty when unknown."""
    fields = entry.fields
    name = str(fields.get("asked") or fields.get("by") or fields.get("author") or "")
    if entry.event.kind in ("daemon", "activated"):
        return "daemon"
    return name.removeprefix("person:")


def deed(entry: Entry) -> bool:
    """Whether a person (or a start of the daemon) is behind it, and not a rollout's own course."""
    by = str(entry.fields.get("by", ""))
    return entry.event.kind != "state" or by.startswith("person:") or "erased" in entry.fields


def wrong(entry: Entry) -> bool:
    """Whether something went wrong: a failed call, no action, a signal, a failure."""
    fields = entry.fields
    match entry.event.kind:
        case "result":
            return not fields.get("success", True)
        case "sample":
            return bool(fields.get("malformed"))
        case "observation":
            return bool(fields.get("attention"))
        case "fork":
            return bool(fields.get("mechanical"))
        case "state":
            by = str(fields.get("by", ""))
            stopped = fields.get("state") == "paused" and not by.startswith("person:")
            return stopped or fields.get("state") == "failed"
        case "training-moved":
            return fields.get("state") == "failed"
        case "activated":
            return not fields.get("ok")
    return False


def verified(entry: Entry) -> bool:
    """Whether the name is the kernel's word."""
    return bool(entry.fields.get("verified", True))
