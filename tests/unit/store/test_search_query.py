"""Whatever a person types is searched for as it stands, and shown where it was found."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houston_shared.store import search_query
from houston_shared.store.search_query import Term

TERMS = {
    "words": ("read the file", [Term("read", False), Term("the", False), Term("file", False)]),
    "a phrase": ('"two words" one', [Term("two words", False), Term("one", False)]),
    "a beginning": ("eval*", [Term("eval", True)]),
    "a star alone": ("*", [Term("*", False)]),
    "an open quote": ('"never closed', [Term("never closed", False)]),
    "operators are words": ("a OR NOT b", [Term(w, False) for w in ("a", "OR", "NOT", "b")]),
    "nothing": ('  "" ', []),
}


@pytest.mark.parametrize("case", TERMS)
def test_terms(case: str) -> None:
    query, found = TERMS[case]
    assert search_query.terms(query) == found


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
    assert search_query.indexable(search_query.terms(query)) is answer


@given(st.text())
def test_no_query_is_an_error_of_the_index(query: str) -> None:
    terms = search_query.terms(query)
    if not terms or not search_query.indexable(terms):
        return
    connection = sqlite3.connect(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE entries USING fts5(tag, text, content='', tokenize='unicode61')"
    )
    connection.execute("INSERT INTO entries (rowid, tag, text) VALUES (1, 'rx', ?)", (query,))
    try:
        expression = search_query.expression(terms, "rx")
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
    found = search_query.snippet(search_query.terms(query), text)
    assert found.text[found.start : found.end] == marked
    assert "\n" not in found.text
    assert len(found.text) < 200
