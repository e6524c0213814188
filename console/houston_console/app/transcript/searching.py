"""Search in one rollout: every step whose thought, calls, results or guidance hold all the words.

Two ways at once: the index answers at once for whole words, and a scan of the journal, newest first
and page by page, finds parts of words and what the index has not seen. Runs in a thread of its own
with a reader of its own; `stop` ends it between two pages.
"""

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import in_order, journal, search_query
from houston_shared.store.journal import Event
from houston_shared.store.opening import NoSearchIndex
from houston_shared.store.plan import END, Ask, Plan, columns, from_rows
from houston_shared.store.reader import Reader
from houston_shared.store.search_query import Term
from houston_shared.store.searchable import KINDS, tag, text_of

PAGE = 200
"""Events read in one short transaction."""


class Page(NamedTuple):
    """One page of a scan."""

    steps: list[int]
    before: int
    """Where the next page ends."""
    done: bool


class Search(threading.Thread):
    """One search, running."""

    def __init__(
        self,
        home: Home,
        rollout: str,
        query: str,
        found: Callable[["Search", list[int], bool], None],
        failed: Callable[["Search", HoustonError], None],
    ) -> None:
        """found: told, from this thread, all steps so far in order, and whether that is all."""
        super().__init__(name="search", daemon=True)
        self.query = query
        self.terms = search_query.terms(query)
        self._home = home
        self._rollout = rollout
        self._found = found
        self._failed = failed
        self._stopped = threading.Event()

    def stop(self) -> None:
        """It is not wanted any more; nothing is told from now on."""
        self._stopped.set()

    def run(self) -> None:
        """Search."""
        try:
            with Reader(self._home) as reader:
                self._run(reader)
        except HoustonError as problem:
            if not self._stopped.is_set():
                self._failed(self, problem)

    def _run(self, reader: Reader) -> None:
        steps = set(reader.run(indexed(self._rollout, self.terms)))
        self._tell(steps, False)
        page = Page([], END, not self.terms)
        while not page.done and not self._stopped.is_set():
            page = reader.run(scanned(self._rollout, self.terms, page.before))
            if not steps.issuperset(page.steps):
                steps.update(page.steps)
                self._tell(steps, False)
        self._tell(steps, True)

    def _tell(self, steps: set[int], done: bool) -> None:
        if not self._stopped.is_set():
            self._found(self, sorted(steps), done)


def indexed(rollout: str, terms: Sequence[Term]) -> Plan[list[int]]:
    """Steps that the index names; none where there is no index or it cannot answer."""
    if not terms or not search_query.indexable(terms):
        return []
    expression = search_query.expression(terms, tag(rollout))
    try:
        rows = yield Ask(
            "SELECT rowid FROM entries WHERE entries MATCH ?", (expression,), where="search"
        )
    except NoSearchIndex:
        return []  # the scan answers
    steps: list[int] = []
    for start in range(0, len(rows), 500):
        chunk = tuple(row[0] for row in rows[start : start + 500])
        marks = ",".join("?" * len(chunk))
        found = yield Ask(
            f"SELECT {_STEP} FROM events e WHERE rollout = ? AND seq IN ({marks})",
            (rollout, *chunk),
        )
        steps += [row[0] for row in found if row[0]]
    return steps


_STEP = (
    "CASE WHEN e.step THEN e.step ELSE"
    " (SELECT delivered_step FROM guidance g WHERE g.text_seq = e.seq) END"
)
"""The step of an event; that which heard it for guidance."""


def scanned(rollout: str, terms: Sequence[Term], before: int) -> Plan[Page]:
    """The steps of one page of events, ending before the sequence `before`."""
    what = f"{columns(Event, 'e')}, {_STEP}"
    rows = yield from in_order.backward(what, rollout, before, PAGE, tuple(KINDS))
    steps: list[int] = []
    for event, row in zip(from_rows(Event, [row[:-1] for row in rows]), rows, strict=True):
        if row[-1] and _holds((yield from _text(event)), terms):
            steps.append(row[-1])
    return Page(steps, rows[-1][0] if rows else before, len(rows) < PAGE)


def _holds(text: str, terms: Sequence[Term]) -> bool:
    """Whether every term is somewhere in a text, in any case, also inside a word."""
    low = text.lower()
    return all(term.text.lower() in low for term in terms)


def _text(event: Event) -> Plan[str]:
    """The event's text; empty when it was erased, or is damaged (`houston verify` finds that)."""
    raw = yield from journal.body(event)
    try:
        return text_of(event.kind, raw) if raw is not None else ""
    except msgspec.MsgspecError:
        return ""
