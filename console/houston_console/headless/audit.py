"""`houston log --audit`: who did what, when, to which rollout, and what came of it.

Every line is an event of the journal, whose chain `houston verify` checks. It knows which kinds are
deeds of people and of the daemon; a rollout's own course is none.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from houston_console.headless import entry
from houston_console.headless.entry import Entry
from houston_console.headless.page import Page, span
from houston_shared import out
from houston_shared.clock import iso, local
from houston_shared.store.plan import Plan
from houston_shared.store.reader import Reader

PAGE = 500
"""Events of one read: short transactions, whatever the length of the journal."""


class Wanted(NamedTuple):
    """Which deeds are shown; empty is everything."""

    rollout: str = ""
    by: str = ""
    """A name, claimed or not, or a numeric uid."""
    since_us: int = 0
    newest: int | None = None


def deeds(reader: Reader, wanted: Wanted) -> Iterator[Entry]:
    """What people and the daemon did, oldest first."""
    kept: deque[Entry] = deque(maxlen=wanted.newest)
    for one in _all(reader, wanted.rollout):
        if not _matches(one, wanted):
            continue
        if wanted.newest is None:
            yield one
        else:
            kept.append(one)
    yield from kept


def _all(reader: Reader, rollout: str) -> Iterator[Entry]:
    asked: dict[str, dict[str, Any]] = {}
    after = 0
    while found := reader.run(_bodies(after, rollout)):
        for one in found:
            if one.event.kind == "cancel":
                asked[one.event.rollout] = one.fields
            if entry.deed(one):
                yield _completed(one, asked)
        after = found[-1].event.seq


def _completed(one: Entry, asked: dict[str, dict[str, Any]]) -> Entry:
    """A rollout that its worker ended at a person's word is that person's deed, as they asked."""
    if one.event.kind != "state" or one.fields.get("uid") is not None:
        return one
    cancel = asked.get(one.event.rollout, {})
    if cancel.get("by") != one.fields.get("by"):
        return one
    who: dict[str, Any] = {
        key: cancel[key] for key in ("uid", "verified", "pid", "role") if key in cancel
    }
    return Entry(one.event, {**one.fields, **who})


def _bodies(after: int, rollout: str) -> Plan[list[Entry]]:
    marks = ", ".join("?" * len(entry.DEEDS))
    within = "AND (rollout = ? OR kind = 'refused')" if rollout else ""
    parameters = (after, *entry.DEEDS, *([rollout] if rollout else []), PAGE)
    condition = f"seq > ? AND kind IN ({marks}) {within} ORDER BY seq LIMIT ?"
    return (yield from entry.entries(condition, parameters))


def _matches(one: Entry, wanted: Wanted) -> bool:
    if one.event.at < wanted.since_us:
        return False
    refused = one.event.kind == "refused"
    if wanted.rollout and refused and one.fields.get("about") != wanted.rollout:
        return False
    return wanted.by in ("", entry.who(one), str(one.fields.get("uid")))


def show(page: Page, one: Entry, json: bool) -> None:
    """One deed as a line."""
    event, who, verified = one.event, entry.who(one), entry.verified(one)
    fields, refused = one.fields, one.event.kind == "refused"
    rollout = event.rollout or (str(fields.get("about", "")) if refused else "")
    if json:
        line: dict[str, Any] = {"seq": event.seq, "at": iso(event.at), "who": who}
        line |= {"verified": verified, "did": event.kind, "rollout": rollout}
        line |= {"step": event.step or None, "text": entry.said(one)}
        line |= {"uid": fields.get("uid"), "pid": fields.get("pid") or None}
        line |= {"role": fields.get("role") or None, "outcome": "refused" if refused else "done"}
        out.json_line({**line, "times": int(fields.get("times", 1))})
        return
    role = f" {fields['role']}" if fields.get("role") else ""
    uid = f" [uid {fields['uid']}{role}]" if fields.get("uid") is not None else ""
    page.line(
        span(f"{local(event.at)} ", "dim"),
        span(f"{who}{'' if verified else ' (unverified)'}", "person"),
        span(f"{uid} ", "dim"),
        span(f"{event.kind} ", "bad" if refused else ""),
        span(f"{rollout or '–'}{f' {event.step}' if event.step else ''} ", "name"),
        span(entry.said(one)),
    )
