"""What somebody searches for, which texts of an event can hold it, and how it is recognised there.

`words`: all of them, whole, in any order; `"two words"` is a phrase, `begin*` a beginning; no
syntax of FTS5 reaches it. `literal`: the text as it stands. `regex`: a pattern of the package
`regex`, which can be given up after a time, where Python's own would hold its thread for ever.
Upper and lower case are one. The recorder's index and every reader mean the same text of an event,
so that a hit of the index is a hit of a scan and the other way round. Pure: it reads nothing.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from houston_shared.errors import UsageError
from houston_shared.records import ForkBody, ObservationBody, Record, SampleBody, ToolResult
from houston_shared.store.event_bodies import (
    GuidanceEdited,
    GuidanceQueued,
    RolloutClaimed,
    StepBookmarked,
    VerdictGiven,
)

MAX_TERMS = 16
_TERM_PATTERN = re.compile(r'"([^"]*)"?|(\S+)')
# Scripts written without spaces (and Hangul, whose words carry particles): FTS5's unicode61 makes
# one token of a whole run, so parts of it cannot be found in the index.
_UNSPLIT_SCRIPTS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u3100-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
_CHARACTERS_BEFORE, _CHARACTERS_AFTER = 48, 112
"""Characters of context that a snippet keeps on each side of the first match's start."""
_LONGEST_MATCH = 400
"""Characters of a match that a snippet shows at most."""


class SearchTerm(NamedTuple):
    """One thing that must be there."""

    text: str
    prefix: bool
    """Whether it is the beginning of a word."""


class MatchSnippet(NamedTuple):
    """A stretch of text on one line, and where in it the match is."""

    text: str
    start: int
    end: int


def split_terms(query: str) -> list[SearchTerm]:
    """The terms of a query, at most `MAX_TERMS`."""
    terms: list[SearchTerm] = []
    for quoted, word in _TERM_PATTERN.findall(query.replace("\0", " ")):
        text = quoted or word
        prefix = bool(word) and len(word) > 1 and word.endswith("*")
        if text.strip():
            terms.append(SearchTerm(text[:-1] if prefix else text.strip(), prefix))
    return terms[:MAX_TERMS]


def is_indexable(terms: Sequence[SearchTerm]) -> bool:
    """Whether the index can answer: every term has a letter or digit, none an unsplit script."""
    return all(
        any(map(str.isalnum, term.text)) and not _UNSPLIT_SCRIPTS.search(term.text)
        for term in terms
    )


def fts_expression(terms: Sequence[SearchTerm], tag: str = "") -> str:
    """The FTS5 query for terms, within one rollout's `tag` if given."""
    words = " AND ".join(
        '"' + term.text.replace('"', '""') + ('"*' if term.prefix else '"') for term in terms
    )
    within = f'tag : "{tag}" AND ' if tag else ""
    return f"{within}text : ({words})"


def snippet_around_match(text: str, start: int, end: int) -> MatchSnippet:
    """The text around a match, on one line."""
    end = min(end, start + _LONGEST_MATCH)
    first = max(0, start - _CHARACTERS_BEFORE)
    last = min(len(text), max(end, start + _CHARACTERS_AFTER))
    before = _on_one_line(text[first:start])
    if first:
        before = "…" + before.lstrip()
    hit = _on_one_line(text[start:end])
    after = _on_one_line(text[end:last])
    if last < len(text):
        after = after.rstrip() + "…"
    return MatchSnippet(before + hit + after, len(before), len(before) + len(hit))


@lru_cache(maxsize=256)
def term_pattern(term: SearchTerm) -> re.Pattern[str]:
    """Where the index would find the term: whole words, whatever stands between them.

    Terms that the index cannot answer are looked for as they stand.
    """
    words = re.findall(r"[^\W_]+", term.text)
    if not is_indexable([term]) or not words:
        return re.compile(r"\s+".join(map(re.escape, term.text.split())), re.IGNORECASE)
    end = "" if term.prefix else r"(?![^\W_])"
    return re.compile(r"(?<![^\W_])" + r"[\W_]+".join(words) + end, re.IGNORECASE)


def _on_one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


_ESCAPE_CLASSES = frozenset("dDwWsSbBAZ")
"""Letters that stand for no character of their own after a backslash."""
_PATTERN_ENDS = frozenset(".^$")


def required_runs(pattern: str) -> list[str]:
    """The runs, in order; none where they are not known for certain."""
    if any(sign in pattern for sign in "(|"):
        return []
    runs, at = [""], 0
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            sign, at = pattern[at + 1 : at + 2], at + 1
            if sign in _ESCAPE_CLASSES and sign:
                runs.append("")
            elif not sign or sign.isalnum():
                return []
            else:
                runs[-1] += sign
        elif sign == "[":
            at = _end_of_set(pattern, at)
            if at < 0:
                return []
            runs.append("")
        elif sign in "*?{":  # what stands before it may be missing
            runs[-1] = runs[-1][:-1]
            runs.append("")
            if sign == "{":
                at = pattern.find("}", at)
                if at < 0:
                    return []
        elif sign == "+" or sign in _PATTERN_ENDS:
            runs.append("")
        else:
            runs[-1] += sign
        at += 1
    return [run for run in runs if run]


def _end_of_set(pattern: str, at: int) -> int:
    """Where the set that begins at `at` ends; −1 for one that holds sets or does not end."""
    at += 1 + (pattern[at + 1 : at + 2] == "^")
    at += pattern[at : at + 1] == "]"  # there it stands for itself
    while at < len(pattern) and pattern[at] != "]":
        if pattern[at] == "[":
            return -1
        at += 1 + (pattern[at] == "\\")
    return at if at < len(pattern) else -1


SearchMode = Literal["literal", "regex", "words"]
SearchScope = Literal["rollout", "task", "all"]
SearchTarget = Literal["steps", "diffs", "searches", "terminals"]
SEARCH_MODES: tuple[SearchMode, ...] = ("literal", "regex", "words")
SEARCH_SCOPES: tuple[SearchScope, ...] = ("rollout", "task", "all")
SEARCH_TARGETS: tuple[SearchTarget, ...] = ("steps", "diffs", "searches", "terminals")
PATTERN_SECONDS_PER_TEXT = 0.1
"""What a pattern may take for one text."""
MAX_QUERY_CHARACTERS = 1_000
"""Characters of a query that count."""
MatchSpan: TypeAlias = tuple[int, int]
_SCALAR_PATTERN = re.compile(r"[0-9a-z.+-]{1,40}")
_SCALAR_CONSTANTS = ("true", "false", "none", "nan", "inf")


class PatternTooSlow(Exception):
    """A pattern took too long for a text."""


class SearchQuery(msgspec.Struct, frozen=True, omit_defaults=True):
    """A search as a person asked for it."""

    text: str
    mode: SearchMode = "literal"
    where: SearchScope = "all"
    what: SearchTarget = "steps"
    rollout: str = ""
    """A whole id, for `where = rollout`."""
    task: str = ""
    """For `where = task`."""
    after: int = 0
    """Only events behind this one: what is new since the same was looked for."""


class SearchMatcher:
    """Finds one query in texts."""

    def __init__(self, query: SearchQuery) -> None:
        """Raises HoustonError (2) for a pattern that is none."""
        self.query = query
        self.text = query.text[:MAX_QUERY_CHARACTERS]
        self.terms: list[SearchTerm] = split_terms(self.text) if query.mode == "words" else []
        self._pattern = self._compiled()
        self._probes = _build_probes(self.text, self.terms, query.mode)

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
            raise UsageError(f"{self.text!r} is no regular expression: {problem}.") from None
        return lambda text: pattern.finditer(
            text, timeout=PATTERN_SECONDS_PER_TEXT, concurrent=True
        )

    def spans(self, text: str) -> list[MatchSpan]:
        """Where it is in a text, in order; raises PatternTooSlow."""
        if self._pattern is None:
            spans = (m.span() for t in self.terms for m in term_pattern(t).finditer(text))
            return sorted(spans)
        try:
            return [match.span() for match in self._pattern(text) if match.end() > match.start()]
        except TimeoutError:
            raise PatternTooSlow from None

    def first(self, text: str) -> MatchSpan | None:
        """The first place in a text; None where it is not. Raises PatternTooSlow."""
        if self._pattern is None:
            if not all(term_pattern(term).search(text) for term in self.terms):
                return None
            matches = (term_pattern(term).search(text) for term in self.terms)
            return min((match.span() for match in matches if match), default=(0, 0))
        try:
            places = (match.span() for match in self._pattern(text))
            return next((place for place in places if place[0] < place[1]), None)
        except TimeoutError:
            raise PatternTooSlow from None

    def snippet(self, text: str, place: MatchSpan) -> MatchSnippet:
        """The text around a place, on one line."""
        return snippet_around_match(text, *place)

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
        parts = required_runs(self.text) if self.query.mode == "regex" else [self.text]
        words = [term.text for term in self.terms] or parts
        return any(_may_be_scalar(word.lower()) for word in words)


def _may_be_scalar(word: str) -> bool:
    if not _SCALAR_PATTERN.fullmatch(word):
        return False
    return any(map(str.isdigit, word)) or any(word in name for name in _SCALAR_CONSTANTS)


def _build_probes(text: str, terms: list[SearchTerm], mode: SearchMode) -> list[bytes]:
    """Bytes that every text has in which it can be found, in lower case; none when unknown."""
    if mode == "regex":
        words = required_runs(text)
    elif mode == "literal":
        words = [text]
    else:
        words = [word for term in terms for word in re.split(r"[\W_]+", term.text)]
    return [probe for word in words if (probe := _longest_probe(word))]


def _longest_probe(word: str) -> bytes:
    """The longest part of a word that is written in one way only, but for case in ASCII."""
    parts: list[str] = [""]
    for character in word:
        plain = character.isascii() or character.lower() == character.upper()
        if plain and character != "\n":
            parts[-1] += character
        else:
            parts.append("")
    return max((part.lower().encode("utf-8", "replace") for part in parts), key=len)


_SEARCHABLE_TYPES: dict[str, type[Record]] = {
    "sample": SampleBody,
    "result": ToolResult,
    "observation": ObservationBody,
    "guidance": GuidanceQueued,
    "edit": GuidanceEdited,
    "fork": ForkBody,
    "bookmark": StepBookmarked,
    "claim": RolloutClaimed,
    "verdict": VerdictGiven,
}
SEARCHABLE_KINDS = tuple(_SEARCHABLE_TYPES)
"""Kinds of events that hold text of an agent, its world or a person."""


def rollout_tag(rollout: str) -> str:
    """The rollout's id as one word of the index: `count-words-4f2a` → `rcountwords4f2a`."""
    return "r" + "".join(character for character in rollout if character.isalnum())


def searchable_text(kind: str, body: bytes) -> str:
    """The text of an event's body; empty for kinds that have none.

    Raises msgspec.MsgspecError when the body is damaged.
    """
    if kind not in _SEARCHABLE_TYPES:
        return ""
    match msgspec.msgpack.decode(body, type=_SEARCHABLE_TYPES[kind]):
        case SampleBody() as sample:
            return "\n".join([sample.thought, *(_call_text(call) for call in sample.calls)])
        case ToolResult(text=text) | GuidanceQueued(text=text) | GuidanceEdited(text=text):
            return text
        case VerdictGiven(source="rule"):  # it only quotes the step that it is about
            return ""
        case ObservationBody(tail=text) | ForkBody(summary=text) | VerdictGiven(reason=text):
            return text
        case StepBookmarked(note=text) | RolloutClaimed(note=text):
            return text
    return ""


def _call_text(call: Any) -> str:
    """A call as its name and the values of its arguments."""
    return "\n".join([call.name, *argument_texts(call.arguments)])


def argument_texts(value: Any) -> list[str]:
    """The values of a call's arguments as text, however deep."""
    texts, waiting = [], [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict | list):
            waiting.extend(reversed(item.values() if isinstance(item, dict) else item))
        else:
            texts.append(str(item))
    return texts


SEARCH_RESULT_KINDS = frozenset({"search", "web_search", "web_browse"})
"""Kinds of results that are searches or pages."""
EVENT_KINDS_BY_TARGET: dict[SearchTarget, tuple[str, ...]] = {
    "steps": SEARCHABLE_KINDS,
    "diffs": ("observation",),
    "searches": ("result",),
    "terminals": (),
}
"""Kinds of events that hold what is looked for."""


def iterate_event_texts(target: SearchTarget, kind: str, body: bytes) -> Iterator[tuple[str, str]]:
    """Texts of an event's body: what each is called, and the text.

    Raises msgspec.MsgspecError when the body is damaged.
    """
    if target == "diffs":
        for change in msgspec.msgpack.decode(body, type=ObservationBody).files:
            yield change.path, f"{change.path}\n{change.diff}"
    elif target == "searches":
        result = msgspec.msgpack.decode(body, type=ToolResult)
        if result.kind in SEARCH_RESULT_KINDS:
            arguments = "\n".join(argument_texts(result.call.arguments))
            yield result.call.name, f"{arguments}\n{result.text}"
    else:
        yield kind, searchable_text(kind, body)
