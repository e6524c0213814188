"""Text as the terms that a corpus is searched by, also in scripts that are written without spaces.

Runs of Han, kana and Hangul become overlapping pairs of characters, as in Lucene's CJKAnalyzer; the
rest is left to SQLite's `unicode61` with Porter's stemmer. Knows no database.
"""

import re
import unicodedata

_CJK = (
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_RUN = re.compile(f"[{_CJK}]+")
_WORD = re.compile(rf"[^\W_{_CJK}]+|[{_CJK}]+")
_MAX_TERMS = 64
_LOOKED_AT = 100_000
"""Characters of a text that a snippet is sought in."""
_MAX_TERM_PLACES = 20
STOP_WORDS = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it",
    "no", "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they",
    "this", "to", "was", "will", "with",
})  # fmt: skip
"""Words too common to search by (Lucene's EnglishAnalyzer); kept where a query has no others."""


def plain(text: str) -> str:
    """Text in one form: full-width letters, ligatures and half-width kana as the usual ones."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def indexed(text: str) -> str:
    """Text for the index: pairs of characters in place of each run, and its last character."""
    text = plain(text)
    return text if text.isascii() else _RUN.sub(lambda run: f" {_pairs(run[0])} ", text)


def _pairs(run: str) -> str:
    return " ".join([*(run[i : i + 2] for i in range(len(run) - 1)), run[-1]])


def words(query: str) -> list[str]:
    """The different terms of a query, in lower case, without stop words where it has others."""
    terms: list[str] = []
    for word in _WORD.findall(plain(query).lower()):
        if len(word) > 1 and _RUN.fullmatch(word):
            terms += (word[i : i + 2] for i in range(len(word) - 1))
        else:
            terms.append(word)
    telling = [word for word in terms if word not in STOP_WORDS]
    return list(dict.fromkeys(telling or terms))[:_MAX_TERMS]


def match(query: str) -> str:
    """An FTS5 expression for documents with any of the terms; empty where there are none.

    A single character of a script without spaces finds the pairs that begin with it.
    """
    return " OR ".join(
        f'"{word}"*' if len(word) == 1 and _RUN.fullmatch(word) else f'"{word}"'
        for word in words(query)
    )


def snippet(text: str, query: str, width: int = 300) -> str:
    """The stretch of about `width` characters that holds the most different terms, on one line."""
    head = text[:_LOOKED_AT]
    lower = head.lower()
    if len(lower) != len(head):  # a few letters grow when they become small
        lower = head
    places = sorted((place, word) for word in words(query) for place in _places(lower, word))
    best, most = 0, 0
    for index, (start, _) in enumerate(places):
        inside = {word for at, word in places[index : index + 50] if at < start + width}
        if len(inside) > most:
            best, most = start, len(inside)
    begin = max(0, best - width // 5)
    begin = head.rfind(" ", max(0, begin - 20), begin + 1) + 1 or begin
    excerpt = " ".join(head[begin : begin + width].split())
    return f"{'… ' if begin else ''}{excerpt}{' …' if begin + width < len(text) else ''}"


def _places(text: str, word: str) -> list[int]:
    """Where a term begins in `text`, the first few times; its stem finds its other forms."""
    stem = word[: max(4, len(word) - 3)] if word.isascii() else word
    places: list[int] = []
    at = text.find(stem)
    while at >= 0 and len(places) < _MAX_TERM_PLACES:
        if not (word.isascii() and at and text[at - 1].isalnum()):
            places.append(at)
        at = text.find(stem, at + len(stem))
    return places
