"""Search in everything that was said and seen, newest first.

Answered from `search.db` (contentless FTS5; rowid = event, written behind the journal). What it
has not seen yet, scripts it cannot split and a home without it are scanned in the journal itself,
a bounded number of events back; `Found` says what was not looked at.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from houston_shared.clock import iso
from houston_shared.store import in_order, journal, search_query
from houston_shared.store.journal import Event
from houston_shared.store.opening import NoSearchIndex
from houston_shared.store.plan import END, Ask, Plan, columns, from_rows
from houston_shared.store.search_query import Snippet, Term
from houston_shared.store.searchable import KINDS, tag, text_of

SCAN_EVENTS = 20_000
"""Events with text that a search without the index looks at, newest first (some 0.5 s)."""
_BATCH = 200


class Hit(NamedTuple):
    """One event in which all terms are."""

    seq: int
    rollout: str
    step: int
    """0 for events of the whole rollout (guidance)."""
    attempt: int
    kind: str
    at: int
    snippet: Snippet


class Found(NamedTuple):
    """Hits, newest first, and what was not looked at."""

    hits: list[Hit]
    indexed: bool
    """Whether the index was used."""
    behind: int
    """Events that the index had not seen yet; the newest `SCAN_EVENTS` of them were scanned."""
    complete: bool
    """Whether older hits may exist only beyond the limit, and not in what was not looked at."""


def find(query: str, rollout: str = "", limit: int = 50) -> Plan[Found]:
    """Events that hold all terms of `query` (see `search_query`), newest first.

    rollout: a whole id, or empty for all. limit: hits at most.
    """
    terms = search_query.terms(query)
    if not terms or limit < 1:
        return Found([], True, 0, True)
    if search_query.indexable(terms):
        try:
            return (yield from _indexed(terms, rollout, limit))
        except NoSearchIndex:
            pass  # answered by the scan below, and `Found.indexed` says so
    hits, complete = yield from _scan(terms, rollout, limit, 0)
    return Found(hits, False, 0, complete)


def as_json(hit: Hit) -> dict[str, Any]:
    """A line of `search --json`."""
    return {
        "rollout": hit.rollout,
        "step": hit.step or None,
        "kind": hit.kind,
        "snippet": hit.snippet.text,
        "match": [hit.snippet.start, hit.snippet.end],
        "at": iso(hit.at),
        "seq": hit.seq,
    }


def _indexed(terms: Sequence[Term], rollout: str, limit: int) -> Plan[Found]:
    seen = yield Ask("SELECT seq FROM indexed WHERE id = 1", where="search")
    upto: int = seen[0][0] if seen else 0
    newest = yield Ask("SELECT max(seq) FROM events")
    behind = max(0, (newest[0][0] or 0) - upto)
    hits, complete = yield from _scan(terms, rollout, limit, upto) if behind else _nothing()
    expression = search_query.expression(terms, tag(rollout) if rollout else "")
    rows = yield Ask(
        "SELECT rowid FROM entries WHERE entries MATCH ? ORDER BY rowid DESC LIMIT ?",
        (expression, limit),
        where="search",
    )
    events = yield from journal.by_seq([row[0] for row in rows if row[0] <= upto])
    for seq in sorted(events, reverse=True):
        text = yield from _text(events[seq])
        if text and rollout in ("", events[seq].rollout):
            hits.append(_hit(terms, events[seq], text))
    return Found(hits[:limit], True, behind, complete)


def _nothing() -> Plan[tuple[list[Hit], bool]]:
    yield from ()
    return [], True


def _scan(
    terms: Sequence[Term], rollout: str, limit: int, after: int
) -> Plan[tuple[list[Hit], bool]]:
    """Hits after a sequence without the index, and whether everything there was looked at."""
    hits: list[Hit] = []
    before, left = END, SCAN_EVENTS
    while left > 0 and len(hits) < limit:
        events = yield from _page(rollout, after, before, min(_BATCH, left))
        for event in events:
            text = yield from _text(event)
            if search_query.matches(terms, text):
                hits.append(_hit(terms, event, text))
        if len(events) < min(_BATCH, left):
            return hits[:limit], True
        before, left = events[-1].seq, left - len(events)
    return hits[:limit], len(hits) >= limit


def _page(rollout: str, after: int, before: int, size: int) -> Plan[list[Event]]:
    what, kinds = columns(Event), tuple(KINDS)
    if rollout:
        rows = yield from in_order.backward(what, rollout, before, size, kinds, after)
    else:
        rows = yield Ask(
            f"SELECT {what} FROM events WHERE seq > ? AND seq < ?"
            f" AND kind IN ({', '.join('?' * len(kinds))}) ORDER BY seq DESC LIMIT ?",
            (after, before, *kinds, size),
        )
    return from_rows(Event, rows)


def _text(event: Event) -> Plan[str]:
    """The event's text; empty when it was erased, or is damaged (`houston verify` finds that)."""
    raw = yield from journal.body(event)
    if raw is None:
        return ""
    try:
        return text_of(event.kind, raw)
    except msgspec.MsgspecError:
        return ""


def _hit(terms: Sequence[Term], event: Event, text: str) -> Hit:
    shown = search_query.snippet(terms, text)
    key = (event.seq, event.rollout, event.step, event.attempt, event.kind, event.at)
    return Hit(*key, shown)
