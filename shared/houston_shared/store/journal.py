"""Events of the journal and their bodies, wherever these lie.

Everything that shows text reads it here: from the row, from a blob, or as the mark that it was
erased. It does not know what the kinds mean; `queries` does.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.store.plan import Ask, Fetch, Plan, RowRecord, columns, from_rows

S = TypeVar("S")

ERASED = "[erased from the journal]"
"""Stands for every text whose body was erased."""
_CHUNK = 500
"""Sequences in one statement (SQLite allows 32,766 parameters)."""


class Event(RowRecord, frozen=True):
    """One row of `events`, without its hashes."""

    seq: int
    rollout: str
    """Empty for events of the daemon itself."""
    step: int
    attempt: int
    part: str | None
    kind: str
    at: int
    body: bytes | None
    """None when it is in a blob, or erased."""
    blob: str | None
    erased: int


class Header(RowRecord, frozen=True):
    """An event without its body: what following and listing need."""

    seq: int
    rollout: str
    step: int
    attempt: int
    part: str | None
    kind: str
    at: int
    erased: int


def events(condition: str, parameters: tuple[Any, ...]) -> Plan[list[Event]]:
    """Events that meet an SQL condition (with its ORDER BY), bodies not yet fetched."""
    rows = yield Ask(f"SELECT {columns(Event)} FROM events WHERE {condition}", parameters)
    return from_rows(Event, rows)


def by_seq(seqs: Sequence[int]) -> Plan[dict[int, Event]]:
    """Events with these sequences; those that are not there are left out."""
    found: dict[int, Event] = {}
    for start in range(0, len(seqs), _CHUNK):
        chunk = tuple(seqs[start : start + _CHUNK])
        marks = ",".join("?" * len(chunk))
        for event in (yield from events(f"seq IN ({marks})", chunk)):
            found[event.seq] = event
    return found


def body(event: Event) -> Plan[bytes | None]:
    """The body's bytes, or what is left of them; None when nothing is."""
    if event.body is not None:
        return event.body
    if event.erased:
        return None
    found: bytes = yield Fetch(event.blob or "")
    return found


def record(event: Event, kind: type[S], erased: S) -> Plan[S]:
    """The body, or what is left of it, as a record; `erased` when nothing is.

    Raises HoustonError when it is damaged.
    """
    raw = yield from body(event)
    if raw is None:
        return erased
    try:
        return msgspec.msgpack.decode(raw, type=kind)
    except msgspec.MsgspecError as problem:
        raise HoustonError(
            f"Event {event.seq} of the journal ({event.kind}) cannot be read: {problem}.",
            "What it holds cannot be shown.",
            "houston verify",
        ) from None


def fields(event: Event) -> Plan[dict[str, Any]]:
    """The body of any kind as plain fields, `erased` among them when it was."""
    raw = yield from body(event)
    if raw is None:
        return {"erased": True}
    try:
        value = msgspec.msgpack.decode(raw)
    except msgspec.MsgspecError:
        return {"unreadable": True}
    plain = value if isinstance(value, dict) else {"value": value}
    return {**plain, "erased": True} if event.erased else plain
