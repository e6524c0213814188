"""Whatever a person types is searched for as it stands, and shown where it was found."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houston_shared.store import search_matching
from houston_shared.store.search_matching import SearchMatcher, SearchQuery, SearchTerm

TERMS = {
    "words": (
        "read the file",
        [SearchTerm("read", False), SearchTerm("the", False), SearchTerm("file", False)],
    ),
    "a phrase": ('"two words" one', [SearchTerm("two words", False), SearchTerm("one", False)]),
    "a beginning": ("eval*", [SearchTerm("eval", True)]),
    "a star alone": ("*", [SearchTerm("*", False)]),
    "an open quote": ('"never closed', [SearchTerm("never closed", False)]),
    "operators are words": ("a OR NOT b", [SearchTerm(w, False) for w in ("a", "OR", "NOT", "b")]),
    "nothing": ('  "" ', []),
}


@pytest.mark.parametrize("case", TERMS)
def test_terms(case: str) -> None:
    query, terms = TERMS[case]
    assert search_matching.split_terms(query) == terms


INDEXABLE = {
    "plain": ("score 12", True),
    "a path": ("src/a.py", True),
    "accents": ("café", True),
    "chinese": ("先看 README", False),
    "japanese": ("テスト", False),
    "korean": ("시험", False),
    "thai": ("ทดสอบ", False),
    "only punctuation": ("==>", False),
}


@pytest.mark.parametrize("case", INDEXABLE)
def test_what_the_index_can_answer(case: str) -> None:
    query, answer = INDEXABLE[case]
    assert search_matching.is_indexable(search_matching.split_terms(query)) is answer


@given(st.text())
def test_no_query_is_an_error_of_the_index(query: str) -> None:
    terms = search_matching.split_terms(query)
    if not terms or not search_matching.is_indexable(terms):
        return
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE entries USING fts5(tag, text, content='', tokenize='unicode61')"
    )
    connection.execute("INSERT INTO entries (rowid, tag, text) VALUES (1, 'rx', ?)", (query,))
    try:
        expression = search_matching.fts_expression(terms, "rx")
        rows = connection.execute(
            "SELECT rowid FROM entries WHERE entries MATCH ?", (expression,)
        ).fetchall()
    finally:
        connection.close()
    assert rows == [(1,)], "and it finds the text that it is"


SNIPPETS = {
    "in the middle": ("needle", "x " * 60 + "a Needle here", "Needle"),
    "over lines": ('"two words"', "first\ntwo\n  words\nlast", "two words"),
    "not literally there": ("cafe", "un café", ""),
}


@pytest.mark.parametrize("case", SNIPPETS)
def test_a_snippet_is_one_line_around_the_match(case: str) -> None:
    query, text, marked = SNIPPETS[case]
    matcher = SearchMatcher(SearchQuery(query, mode="words"))
    snippet = matcher.snippet(text, matcher.first(text) or (0, 0))
    assert snippet.text[snippet.start : snippet.end] == marked
    assert "\n" not in snippet.text
    assert len(snippet.text) < 200
