"""A whole search, page by page: what was found so far, so that it can be shown, and given up.

Matching happens outside of the reads: no pattern, however slow, keeps the WAL from beginning anew.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from houston_shared.clock import iso
from houston_shared.errors import HoustonError
from houston_shared.store.finding import pages, terminals
from houston_shared.store.finding.pages import Text
from houston_shared.store.finding.query import Matcher, Query, TooSlow
from houston_shared.store.plan import END
from houston_shared.store.queries.lineage import Stretch
from houston_shared.store.reader import Reader

SLOW_TEXTS = 20
"""Texts that a pattern may be given up on; then the search is."""
SAY_SECONDS = 0.1
"""How long matching goes on before what was found is said."""


class Hit(msgspec.Struct, frozen=True, omit_defaults=True):
    """One text in which it is."""

    rollout: str
    """Whose step it is."""
    step: int
    """0 for what belongs to no step (guidance that nobody has heard)."""
    name: str
    """What the text is: a kind of event, a file's path, a tool, a terminal."""
    snippet: str
    start: int
    """Where in the snippet it begins."""
    end: int
    at: int = 0
    """UTC microseconds; 0 where that is not known."""
    seq: int = 0
    byte: int = -1
    """Of a terminal's log, where the line begins; −1 for everything else."""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is new since the last one."""

    hits: tuple[Hit, ...] = ()
    looked: int = 0
    """Texts and logs that were looked at, in all."""
    done: bool = False
    notes: tuple[str, ...] = ()
    """What could not be looked at; with the last one."""


def search(reader: Reader, query: Query, soon: bool = False) -> Iterator[Progress]:
    """Look for it, the newest first; the last one says `done`. Raises HoustonError.

    soon: begin with what the index guesses, whatever the order: for a screen that sorts.
    """
    matcher = Matcher(query)
    if matcher.empty:
        yield Progress(done=True)
        return
    counted = _Counted(matcher)
    notes: list[str] = []
    if query.what == "terminals":
        found = terminals.lines(reader, matcher, notes)
        yield from counted.lines(found)
    else:
        if soon and not query.after:
            yield from counted.guesses(_named(reader, matcher, reader.run(pages.guessed(matcher))))
        for texts in _pages(reader, matcher):
            yield from counted.texts(texts)
    if counted.slow:
        notes.append(f"The pattern was given up on {counted.slow} texts: it took too long.")
    yield Progress(looked=counted.looked, done=True, notes=tuple(notes))


def as_json(hit: Hit) -> dict[str, Any]:
    """A line of `search --json`."""
    return {
        "rollout": hit.rollout,
        "step": hit.step or None,
        "kind": hit.name,
        "snippet": hit.snippet,
        "match": [hit.start, hit.end],
        "at": iso(hit.at) if hit.at else None,
        "seq": hit.seq or None,
    }


def _pages(reader: Reader, matcher: Matcher) -> Iterator[Sequence[Text]]:
    query = matcher.query
    seqs, upto = ([], query.after) if query.after else reader.run(pages.indexed(matcher))
    if query.where == "rollout":
        own, *shared = reader.run(pages.parts(query.rollout))
        yield from _backward(reader, matcher, own, upto)
        yield from _named(reader, matcher, seqs)
        for part in () if query.after else shared:
            yield from _backward(reader, matcher, part, 0)
    else:
        yield from _backward(reader, matcher, None, upto)
        yield from _named(reader, matcher, seqs)


def _backward(
    reader: Reader, matcher: Matcher, part: Stretch | None, after: int
) -> Iterator[Sequence[Text]]:
    """Events behind `after`, newest first; of one stretch of a rollout, or of the home."""
    page, size = pages.Page([], END, False), pages.FEW
    while not page.done:
        if part is not None:
            page = reader.run(pages.of_rollout(matcher, part, page.before, after, size))
        else:
            page = reader.run(pages.of_home(matcher, page.before, after, size))
        yield page.texts
        size = pages.PAGE


def _named(reader: Reader, matcher: Matcher, seqs: Sequence[int]) -> Iterator[Sequence[Text]]:
    rollout = matcher.query.rollout if matcher.query.where == "rollout" else ""
    start, size = 0, pages.FEW
    while start < len(seqs):
        yield reader.run(pages.named(matcher, seqs[start : start + size], rollout))
        start, size = start + size, pages.PAGE


class _Counted:
    """Matches texts and keeps count."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self.looked = 0
        self.slow = 0
        self._known: set[int] = set()

    def guesses(self, found: Iterable[Sequence[Text]]) -> Iterator[Progress]:
        """What is in texts that are looked at again later, where they do not count twice."""
        known: set[int] = set()
        for texts in found:
            for progress in self.texts(texts):
                known.update(hit.seq for hit in progress.hits)
                yield progress
        self._known = known

    def texts(self, found: Iterable[Text]) -> Iterator[Progress]:
        """What is in these texts, said at least every `SAY_SECONDS`."""
        hits: list[Hit] = []
        said = time.monotonic()
        for one in (text for text in found if text.event.seq not in self._known):
            self.looked += 1
            place = self._place(one.text)
            if place:
                shown = self._matcher.snippet(one.text, place)
                event = one.event
                hits.append(
                    Hit(event.rollout, one.step, one.name, *shown, at=event.at, seq=event.seq)
                )
            if time.monotonic() - said > SAY_SECONDS:
                yield Progress(tuple(hits), self.looked)
                hits, said = [], time.monotonic()
        yield Progress(tuple(hits), self.looked)

    def lines(self, found: Iterable[terminals.Line | None]) -> Iterator[Progress]:
        """What is in these lines; None says only that time went by."""
        for one in found:
            place = self._place(one.text) if one is not None else None
            hits: tuple[Hit, ...] = ()
            if one is not None and place:
                shown = self._matcher.snippet(one.text, place)
                hits = (Hit(one.rollout, one.step, one.terminal, *shown, byte=one.byte),)
            if one is None:
                self.looked += 1
            yield Progress(hits, self.looked)

    def _place(self, text: str) -> tuple[int, int] | None:
        try:
            return self._matcher.first(text)
        except TooSlow:
            self.slow += 1
        if self.slow >= SLOW_TEXTS:
            raise HoustonError(
                f"The pattern {self._matcher.text!r} takes too long for {self.slow} texts.",
                "The search has ended.",
                "write it so that it can match in one way only",
            )
        return None
