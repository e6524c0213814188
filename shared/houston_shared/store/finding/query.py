"""What somebody looks for, and how it is recognised in a text. Pure: it reads nothing.

`words`: all of them, whole, in any order; `"two words"` is a phrase, `begin*` a beginning.
`literal`: the text as it stands. `regex`: a pattern of the package `regex`, which can be given up
after a time, where Python's own would hold its thread for ever. Upper and lower case are one.
"""

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Literal, TypeAlias

import msgspec

from houston_shared.errors import ExitCode, HoustonError
from houston_shared.store import search_query
from houston_shared.store.finding import required
from houston_shared.store.search_query import Snippet, Term

Mode = Literal["literal", "regex", "words"]
Where = Literal["rollout", "task", "all"]
What = Literal["steps", "diffs", "searches", "terminals"]
MODES: tuple[Mode, ...] = ("literal", "regex", "words")
WHERES: tuple[Where, ...] = ("rollout", "task", "all")
WHATS: tuple[What, ...] = ("steps", "diffs", "searches", "terminals")
TEXT_SECONDS = 0.1
"""What a pattern may take for one text."""
MOST = 1_000
"""Characters of a query that count."""
Span: TypeAlias = tuple[int, int]
_SCALAR = re.compile(r"[0-9a-z.+-]{1,40}")
_CONSTANTS = ("true", "false", "none", "nan", "inf")


class TooSlow(Exception):
    """A pattern took too long for a text."""


class Query(msgspec.Struct, frozen=True, omit_defaults=True):
    """A search as a person asked for it."""

    text: str
    mode: Mode = "literal"
    where: Where = "all"
    what: What = "steps"
    rollout: str = ""
    """A whole id, for `where = rollout`."""
    task: str = ""
    """For `where = task`."""
    after: int = 0
    """Only events behind this one: what is new since the same was looked for."""


class Matcher:
    """Finds one query in texts."""

    def __init__(self, query: Query) -> None:
        """Raises HoustonError (2) for a pattern that is none."""
        self.query = query
        self.text = query.text[:MOST]
        self.terms: list[Term] = search_query.terms(self.text) if query.mode == "words" else []
        self._pattern = self._compiled()
        self._probes = _probes(self.text, self.terms, query.mode)

    @property
    def empty(self) -> bool:
        """Whether it asks for nothing."""
        return not (self.terms if self.query.mode == "words" else self.text)

    def _compiled(self) -> Callable[[str], Iterator[Any]] | None:
        if self.query.mode == "words":
            return None
        if self.query.mode == "literal":
            return re.compile(re.escape(self.text), re.IGNORECASE).finditer
        import regex  # 50 ms that other searches do not pay

        try:
            pattern = regex.compile(self.text, regex.IGNORECASE | regex.MULTILINE)
        except (regex.error, OverflowError, RecursionError, MemoryError) as problem:
            raise HoustonError(
                f"{self.text!r} is no regular expression: {problem}.", code=ExitCode.USAGE
            ) from None
        return lambda text: pattern.finditer(text, timeout=TEXT_SECONDS, concurrent=True)

    def spans(self, text: str) -> list[Span]:
        """Where it is in a text, in order; raises TooSlow."""
        if self._pattern is None:
            found = (m.span() for t in self.terms for m in search_query.pattern(t).finditer(text))
            return sorted(found)
        try:
            return [match.span() for match in self._pattern(text) if match.end() > match.start()]
        except TimeoutError:
            raise TooSlow from None

    def first(self, text: str) -> Span | None:
        """The first place in a text; None where it is not. Raises TooSlow."""
        if self._pattern is None:
            if not search_query.matches(self.terms, text):
                return None
            return min((m.span() for m in map(self._search(text), self.terms) if m), default=(0, 0))
        try:
            places = (one.span() for one in self._pattern(text))
            return next((place for place in places if place[0] < place[1]), None)
        except TimeoutError:
            raise TooSlow from None

    @staticmethod
    def _search(text: str) -> Callable[[Term], re.Match[str] | None]:
        return lambda term: search_query.pattern(term).search(text)

    def snippet(self, text: str, place: Span) -> Snippet:
        """The text around a place, on one line."""
        return search_query.around(text, *place)

    def possible(self, raw: bytes, kind: str = "") -> bool:
        """Whether a body can hold it: a fast look at its bytes, before it is decoded.

        Text lies in a body as it is, in UTF-8; numbers among a call's arguments do not.
        """
        if not self._probes or (kind == "sample" and self._scalar):
            return True
        low = raw.lower()
        return all(probe in low for probe in self._probes)

    @cached_property
    def _scalar(self) -> bool:
        parts = required.runs(self.text) if self.query.mode == "regex" else [self.text]
        words = [term.text for term in self.terms] or parts
        return any(_may_be_scalar(word.lower()) for word in words)


def _may_be_scalar(word: str) -> bool:
    if not _SCALAR.fullmatch(word):
        return False
    return any(map(str.isdigit, word)) or any(word in name for name in _CONSTANTS)


def _probes(text: str, terms: list[Term], mode: Mode) -> list[bytes]:
    """Bytes that every text has in which it can be found, in lower case; none when unknown."""
    if mode == "regex":
        words = required.runs(text)
    elif mode == "literal":
        words = [text]
    else:
        words = [word for term in terms for word in re.split(r"[\W_]+", term.text)]
    return [probe for word in words if (probe := _probe(word))]


def _probe(word: str) -> bytes:
    """The longest part of a word that is written in one way only, but for case in ASCII."""
    parts: list[str] = [""]
    for character in word:
        plain = character.isascii() or character.lower() == character.upper()
        if plain and character != "\n":
            parts[-1] += character
        else:
            parts.append("")
    return max((part.lower().encode("utf-8", "replace") for part in parts), key=len)
