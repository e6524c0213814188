"""A person's words as a search: terms, the FTS5 expression for them, and where they are in a text.

Words stand for themselves whatever they contain; `"two words"` is a phrase, `word*` a beginning.
All terms must be there. No syntax of FTS5 reaches it, so no query is an error.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

MAX_TERMS = 16
_TERM = re.compile(r'"([^"]*)"?|(\S+)')
# Scripts written without spaces (and Hangul, whose words carry particles): FTS5's unicode61 makes
# one token of a whole run, so parts of it cannot be found in the index.
_UNSPLIT = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u30ff\u3100-\u9fff\uac00-\ud7af"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
_BEFORE, _AFTER = 48, 112
"""Characters of context that a snippet keeps on each side of the first match's start."""
_LONGEST = 400
"""Characters of a match that a snippet shows at most."""


class Term(NamedTuple):
    """One thing that must be there."""

    text: str
    prefix: bool
    """Whether it is the beginning of a word."""


class Snippet(NamedTuple):
    """A stretch of text on one line, and where in it the match is."""

    text: str
    start: int
    end: int


def terms(query: str) -> list[Term]:
    """The terms of a query, at most `MAX_TERMS`."""
    found: list[Term] = []
    for quoted, word in _TERM.findall(query.replace("\0", " ")):
        text = quoted or word
        prefix = bool(word) and len(word) > 1 and word.endswith("*")
        if text.strip():
            found.append(Term(text[:-1] if prefix else text.strip(), prefix))
    return found[:MAX_TERMS]


def indexable(found: Sequence[Term]) -> bool:
    """Whether the index can answer: every term has a letter or digit, none an unsplit script."""
    return all(
        any(map(str.isalnum, term.text)) and not _UNSPLIT.search(term.text) for term in found
    )


def expression(found: Sequence[Term], tag: str = "") -> str:
    """The FTS5 query for terms, within one rollout's `tag` if given."""
    words = " AND ".join(
        '"' + term.text.replace('"', '""') + ('"*' if term.prefix else '"') for term in found
    )
    within = f'tag : "{tag}" AND ' if tag else ""
    return f"{within}text : ({words})"


def matches(found: Sequence[Term], text: str) -> bool:
    """Whether all terms are somewhere in a text, in any case: the search without an index."""
    return all(pattern(term).search(text) for term in found)


def snippet(found: Sequence[Term], text: str) -> Snippet:
    """The text around the first match, on one line; its beginning when none is literally there."""
    spots = [match for term in found if (match := pattern(term).search(text))]
    first = min(spots, key=lambda match: match.start(), default=None)
    return around(text, *(first.span() if first else (0, 0)))


def around(text: str, start: int, end: int) -> Snippet:
    """The text around a match, on one line."""
    end = min(end, start + _LONGEST)
    left = max(0, start - _BEFORE)
    right = min(len(text), max(end, start + _AFTER))
    before = _line(text[left:start])
    if left:
        before = "…" + before.lstrip()
    hit = _line(text[start:end])
    after = _line(text[end:right])
    if right < len(text):
        after = after.rstrip() + "…"
    return Snippet(before + hit + after, len(before), len(before) + len(hit))


@lru_cache(maxsize=256)
def pattern(term: Term) -> re.Pattern[str]:
    """Where the index would find the term: whole words, whatever stands between them.

    Terms that the index cannot answer are looked for as they stand.
    """
    words = re.findall(r"[^\W_]+", term.text)
    if not indexable([term]) or not words:
        return re.compile(r"\s+".join(map(re.escape, term.text.split())), re.IGNORECASE)
    end = "" if term.prefix else r"(?![^\W_])"
    return re.compile(r"(?<![^\W_])" + r"[\W_]+".join(words) + end, re.IGNORECASE)


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
