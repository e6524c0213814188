"""One event of the journal as a line: what `tail` and `log --audit` say about each kind.

It knows the kinds and the fields of their bodies (`store.bodies`), read as plain fields so that a
kind of a later version still shows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from houston_shared.clock import iso
from houston_shared.store import journal
from houston_shared.store.journal import Event
from houston_shared.store.plan import Plan

TOLD = (
    "sample", "result", "observation", "delivery", "fork",
    "spec", "state", "cancel", "guidance", "edit", "withdraw", "bookmark",
)  # fmt: skip
"""Kinds that `tail` shows; the others (intents, clocks, leases, heads) only repeat or announce."""
DEEDS = (
    "daemon", "stop", "spec", "guidance", "edit", "withdraw", "bookmark", "state", "cancel",
    "erased", "repaired", "cleaned", "refused",
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
    if entry.fields.get("erased"):
        return journal.ERASED
    teller = _TELLERS.get(entry.event.kind)
    return teller(entry.fields) if teller else ""


def who(entry: Entry) -> str:
    """Who did it: a person's name, or `worker`, `supervisor`, `daemon`, …; empty when unknown."""
    fields = entry.fields
    name = str(fields.get("by") or fields.get("author") or "")
    if entry.event.kind == "daemon":
        return "daemon"
    return name.removeprefix("person:")


def deed(entry: Entry) -> bool:
    """Whether a person (or a start of the daemon) is behind it, and not a rollout's own course."""
    by = str(entry.fields.get("by", ""))
    return entry.event.kind != "state" or by.startswith("person:") or "erased" in entry.fields


def verified(entry: Entry) -> bool:
    """Whether the name is the kernel's word."""
    return bool(entry.fields.get("verified", True))


def _sample(fields: Fields) -> str:
    calls = [_call(call) for call in fields.get("calls", ())]
    role = fields.get("role", "policy")
    lead = "" if role == "policy" else f"[{role}] "
    return lead + " → ".join([str(fields.get("thought", "")).strip(), *calls])


def _call(call: Fields) -> str:
    arguments = call.get("arguments", {})
    return " ".join([str(call.get("name", "")), *(f"{k}={v}" for k, v in arguments.items())])


def _result(fields: Fields) -> str:
    name = fields.get("call", {}).get("name", "")
    failed = "" if fields.get("success", True) else " failed"
    return f"{name}{failed}: {str(fields.get('text', '')).strip()}"


def _observation(fields: Fields) -> str:
    files = [f"{one['path']} +{one['added']} −{one['removed']}" for one in fields.get("files", ())]
    attention = fields.get("attention", ())
    parts = ["closed", *files]
    if attention:
        parts.append(f"attention: {', '.join(attention)}")
    return "; ".join(parts)


def _fork(fields: Fields) -> str:
    how = "made mechanically" if fields.get("mechanical") else "summary"
    return f"new context, {fields.get('k')} steps compressed; {how}: {fields.get('summary', '')}"


def _state(fields: Fields) -> str:
    reason = f" ({fields['reason']})" if fields.get("reason") else ""
    return f"{fields.get('state')} by {fields.get('by')}{reason}"


def _spec(fields: Fields) -> str:
    return f"queued: task {fields.get('task', {}).get('name')} on {fields.get('engine')}"


def _daemon(fields: Fields) -> str:
    said = f"started, epoch {fields.get('epoch')}, {fields.get('version')}"
    if fields.get("configuration"):
        said += f", configuration {fields['configuration']}"
    if died := fields.get("died"):
        said += f"; the one before (pid {died['pid']}, since {died['since']}) had died"
        if died.get("last_stored"):
            said += f", its newest event is of {iso(died['last_stored'])}"
    return said


def _bookmark(fields: Fields) -> str:
    return "mark removed" if fields.get("remove") else f"marked: {fields.get('note', '')}"


def _keeps(fields: Fields) -> bool:
    return bool(fields.get("keep_engine"))


def _refused(fields: Fields) -> str:
    needs = f" needs the role {fields['needs']}" if fields.get("needs") else ""
    times = int(fields.get("times", 1))
    return f"{fields.get('what', '')}{needs}{f' ({times} times)' if times > 1 else ''}"


_TELLERS: dict[str, Callable[[Fields], str]] = {
    "sample": _sample,
    "result": _result,
    "observation": _observation,
    "fork": _fork,
    "state": _state,
    "spec": _spec,
    "bookmark": _bookmark,
    "delivery": lambda fields: f"heard {', '.join(fields.get('ids', ()))}",
    "cancel": lambda fields: f"cancel asked {fields.get('reason', '')}".strip(),
    "guidance": lambda fields: f"[{fields.get('mode')}] {fields.get('text', '')}",
    "edit": lambda fields: f"{fields.get('id')} is now: {fields.get('text', '')}",
    "withdraw": lambda fields: f"{fields.get('id')} taken back",
    "daemon": _daemon,
    "stop": lambda fields: "asked the daemon to stop" + ", engines go on" * _keeps(fields),
    "refused": _refused,
    "erased": lambda fields: (
        f"erased {len(fields.get('seqs', ()))} bodies"
        + (f": {fields['reason']}" if fields.get("reason") else "")
    ),
    "cleaned": lambda fields: (
        f"freed {fields.get('bytes', 0):,} bytes on the host"
        + (", snapshots too" if fields.get("snapshots") else "")
        + (f"; left: {fields['left']}" if fields.get("left") else "")
    ),
    "repaired": lambda fields: (
        f"repaired: {len(fields.get('seqs', ()))} events were set aside, or taken unchecked"
    ),
}
