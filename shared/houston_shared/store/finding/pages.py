"""Events in which something may be found, newest first, a page in one short read."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from houston_shared.store import in_order, journal, search_query
from houston_shared.store.finding import required
from houston_shared.store.finding.query import Matcher
from houston_shared.store.finding.texts import EVENTS, texts
from houston_shared.store.journal import Event
from houston_shared.store.opening import NoSearchIndex
from houston_shared.store.plan import END, Ask, Plan, columns, from_rows
from houston_shared.store.queries import lineage
from houston_shared.store.queries.lineage import Stretch
from houston_shared.store.search_query import Term
from houston_shared.store.searchable import tag

PAGE = 400
"""Events read in one transaction."""
GUESSES = 1_000
"""Events that the index names before the journal is looked through."""
FEW = 50
"""Of the first page: something is to be seen soon."""
_CHUNK = 500
_STEP = (
    "CASE WHEN e.step THEN e.step ELSE"
    " coalesce((SELECT delivered_step FROM guidance g WHERE g.text_seq = e.seq), 0) END"
)
"""The step of an event; of guidance that which heard it, 0 before."""


class Text(NamedTuple):
    """A text that may hold it."""

    event: Event
    step: int
    name: str
    """What it is: a kind of event, a file's path, a tool."""
    text: str


class Page(NamedTuple):
    """Texts of one page, and where the next ends."""

    texts: list[Text]
    before: int
    done: bool


def indexed(matcher: Matcher) -> Plan[tuple[list[int], int]]:
    """Events that the index names, newest first, and up to which event it has seen all.

    Nothing is seen where there is no index, or it cannot answer: then every event is to be looked
    at.
    """
    query = matcher.query
    ready = query.mode == "words" and query.what == "steps" and query.where != "task"
    if not ready or not search_query.indexable(matcher.terms):
        return [], 0
    within = tag(query.rollout) if query.where == "rollout" else ""
    expression = search_query.expression(matcher.terms, within)
    try:
        seen = yield Ask("SELECT seq FROM indexed WHERE id = 1", where="search")
        rows = yield Ask(
            "SELECT rowid FROM entries WHERE entries MATCH ? ORDER BY rowid DESC",
            (expression,),
            where="search",
        )
    except NoSearchIndex:
        return [], 0
    upto = int(seen[0][0]) if seen else 0
    return [row[0] for row in rows if row[0] <= upto], upto


def guessed(matcher: Matcher) -> Plan[list[int]]:
    """Events of a rollout that likely hold a text as it stands, or the longest run of characters
    that a pattern must find, by the index: the newest first.

    None where the index cannot help. What is in the middle of a word only the journal tells.
    """
    query, text = matcher.query, matcher.text
    if query.mode == "regex":
        text = max(required.runs(text), key=len, default="")
    words = re.findall(r"[^\W_]+", text)
    terms = [Term(" ".join(words), True)]
    ready = query.mode != "words" and (query.what, query.where) == ("steps", "rollout")
    if not ready or not words or not search_query.indexable(terms):
        return []
    expression = search_query.expression(terms, tag(query.rollout))
    try:
        rows = yield Ask(
            "SELECT rowid FROM entries WHERE entries MATCH ? ORDER BY rowid DESC LIMIT ?",
            (expression, GUESSES),
            where="search",
        )
    except NoSearchIndex:
        return []
    return [row[0] for row in rows]


def named(matcher: Matcher, seqs: Sequence[int], rollout: str) -> Plan[list[Text]]:
    """The texts of events that the index has named; of one rollout unless that is empty."""
    found: list[Text] = []
    for start in range(0, len(seqs), _CHUNK):
        chunk = tuple(seqs[start : start + _CHUNK])
        rows = yield Ask(
            f"SELECT {columns(Event, 'e')}, {_STEP} FROM events e"
            f" WHERE seq IN ({','.join('?' * len(chunk))}) ORDER BY seq DESC",
            chunk,
        )
        for event, row in zip(from_rows(Event, [r[:-1] for r in rows]), rows, strict=True):
            if rollout in ("", event.rollout):
                found += yield from _texts(matcher, event, row[-1], sure=True)
    return found


def of_rollout(matcher: Matcher, part: Stretch, before: int, after: int, size: int) -> Plan[Page]:
    """A page of the events of one rollout, of its steps up to `part.last`."""
    if before == END and part.last < END:
        before = yield from _after_step(part)
    kinds = EVENTS[matcher.query.what]
    what = f"{columns(Event, 'e')}, {_STEP}"
    rows = yield from in_order.backward(what, part.rollout, before, size, kinds, after)
    found: list[Text] = []
    for event, row in zip(from_rows(Event, [r[:-1] for r in rows]), rows, strict=True):
        if row[-1] <= part.last:
            found += yield from _texts(matcher, event, row[-1])
    return Page(found, rows[-1][0] if rows else before, len(rows) < size)


def _after_step(part: Stretch) -> Plan[int]:
    rows = yield Ask(
        "SELECT sample_seq FROM steps WHERE rollout = ? AND step = ? AND attempt = 1",
        (part.rollout, part.last + 1),
    )
    return int(rows[0][0]) if rows else END


def of_home(matcher: Matcher, before: int, after: int, size: int) -> Plan[Page]:
    """A page of the events of all rollouts, or of those of one task."""
    query, kinds = matcher.query, EVENTS[matcher.query.what]
    task = "AND rollout IN (SELECT id FROM rollouts WHERE task = ?)" * (query.where == "task")
    rows = yield Ask(
        f"SELECT {columns(Event, 'e')}, {_STEP} FROM events e WHERE seq > ? AND seq < ?"
        f" AND kind IN ({','.join('?' * len(kinds))}) {task} ORDER BY seq DESC LIMIT ?",
        (after, before, *kinds, *([query.task] if task else []), size),
    )
    found: list[Text] = []
    for event, row in zip(from_rows(Event, [r[:-1] for r in rows]), rows, strict=True):
        found += yield from _texts(matcher, event, row[-1])
    return Page(found, rows[-1][0] if rows else before, len(rows) < size)


def parts(rollout: str) -> Plan[list[Stretch]]:
    """Where the steps of a rollout lie, newest first: a branch shares its parent's."""
    return (yield from lineage.stretches(rollout))[::-1]


def _texts(matcher: Matcher, event: Event, step: int, sure: bool = False) -> Plan[list[Text]]:
    """Texts of an event; none when it was erased, is damaged, or cannot hold it."""
    raw = yield from journal.body(event)
    if raw is None or not (sure or matcher.possible(raw, event.kind)):
        return []
    bare = Event(event.seq, event.rollout, event.step, event.attempt, event.part, event.kind,
                 event.at, None, None, 0)  # fmt: skip
    try:
        found = list(texts(matcher.query.what, event.kind, raw))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []  # `houston verify` names it
    return [Text(bare, step, name, text) for name, text in found if text]
