"""Search finds everything, with an index, with one that lags, and with none."""

import sqlite3
from collections.abc import Callable

import pytest

from houston_shared.records import Call, ForkBody
from houston_shared.store import search
from houston_shared.store.async_reader import AsyncReader
from houston_shared.store.reader import Reader
from houston_shared.store.search import Found, find
from houston_shared.store.searchable import tag, text_of
from tests.support.written_home import WrittenHome, sample

WRITE = Call(id="2.0", name="write_file", arguments={"path": "src/solve.py", "content": "x"})


def index(written: WrittenHome, upto: int) -> None:
    """search.db as the recorder's thread would have it after `upto`."""
    connection = sqlite3.connect(written.home.search_database)
    connection.executescript(
        "CREATE VIRTUAL TABLE entries USING fts5(tag, text, content='', tokenize='unicode61');"
        "CREATE TABLE indexed (id INTEGER PRIMARY KEY CHECK (id = 1), seq INTEGER NOT NULL);"
    )
    rows = written.connection.execute(
        "SELECT seq, rollout, kind, body FROM events WHERE seq <= ? AND body IS NOT NULL", (upto,)
    )
    for seq, rollout, kind, body in rows.fetchall():
        if text := text_of(kind, body):
            connection.execute(
                "INSERT INTO entries (rowid, tag, text) VALUES (?, ?, ?)", (seq, tag(rollout), text)
            )
    connection.execute("INSERT INTO indexed VALUES (1, ?)", (upto,))
    connection.commit()
    connection.close()


def history(written: WrittenHome) -> None:
    for rollout in ("r-1", "r-2"):
        written.rollout(rollout)
        written.step(rollout, 1, sample("I look for the needle in " + rollout))
        written.guide(rollout, "g" + rollout, "先看 README, then the haystack")
        written.step(rollout, 2, sample("Writing.", calls=(WRITE,)), ("Wrote 12 lines",))
    written.fork("r-2", 3, ForkBody(k=1, first_kept_step=2, summary="Needle found in café."))


STATES: dict[str, Callable[[WrittenHome], None]] = {
    "up to date": lambda written: index(written, written.seq),
    "lagging": lambda written: index(written, written.seq // 2),
    "empty": lambda written: index(written, 0),
    "missing": lambda written: None,
    "damaged": lambda written: (
        written.home.search_database.write_bytes(b"no database" * 500) and None
    ),
}

QUERIES = {
    "a word": ("needle", "", [("r-2", 3, "fork"), ("r-2", 1, "sample"), ("r-1", 1, "sample")]),
    "in one rollout": ("needle", "r-1", [("r-1", 1, "sample")]),
    "two words of one text": ("needle look", "", [("r-2", 1, "sample"), ("r-1", 1, "sample")]),
    "a call's argument": ("solve.py", "r-1", [("r-1", 2, "sample")]),
    "a result": ('"wrote 12"', "r-1", [("r-1", 2, "result")]),
    "guidance": ("haystack", "r-2", [("r-2", 0, "guidance")]),
    "part of a run of characters": ("看", "r-2", [("r-2", 0, "guidance")]),
    "a beginning": ("hay*", "r-1", [("r-1", 0, "guidance")]),
    "part of a word is not the word": ("need", "", []),
    "words of a path": ("src_solve", "r-1", [("r-1", 2, "sample")]),
    "the end of a path*": ("sol*", "r-1", [("r-1", 2, "sample")]),
    "syntax stays text": ('needle" OR text:', "r-1", []),
    "nowhere": ("unicorn", "", []),
    "empty": ("", "", []),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("case", QUERIES)
async def test_the_same_is_found_whatever_the_index_knows(
    state: str, case: str, written: WrittenHome, reader: Reader
) -> None:
    history(written)
    STATES[state](written)
    query, rollout, expected = QUERIES[case]
    found = reader.run(find(query, rollout))
    assert [(hit.rollout, hit.step, hit.kind) for hit in found.hits] == expected
    assert found.complete
    async with AsyncReader(written.home) as twin:
        assert await twin.run(find(query, rollout)) == found


def test_how_far_the_index_lags_is_said(written: WrittenHome, reader: Reader) -> None:
    history(written)
    index(written, written.seq - 3)
    found = reader.run(find("needle"))
    assert (found.indexed, found.behind) == (True, 3)
    assert not reader.run(find("看")).indexed


def test_the_newest_come_first_and_no_more_than_asked_for(
    written: WrittenHome, reader: Reader
) -> None:
    written.rollout("r1")
    for number in range(1, 31):
        written.step("r1", number, sample(f"the needle {number}"))
    index(written, written.seq)
    found = reader.run(find("needle", limit=3))
    assert [hit.step for hit in found.hits] == [30, 29, 28]
    assert [hit.step for hit in reader.run(find("n*", limit=3)).hits] == [30, 29, 28]


def test_a_scan_that_stops_says_that_it_did_not_see_all(
    written: WrittenHome, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SCAN_EVENTS", 5)
    written.rollout("r1")
    for number in range(1, 9):
        written.step("r1", number, sample(f"看 {number}"))
    assert reader.run(find("看 1")) == Found([], False, 0, False)
    assert reader.run(find("看 8")).hits[0].step == 8


def test_what_was_erased_is_not_found(written: WrittenHome, reader: Reader) -> None:
    history(written)
    index(written, written.seq)
    for hit in reader.run(find("needle")).hits:
        written.erase(hit.seq)
    assert reader.run(find("needle")).hits == []


def test_a_hit_in_a_blob_is_found_without_an_index(written: WrittenHome, reader: Reader) -> None:
    written.rollout("r1")
    long = "x " * 40_000 + "needle"
    written.step("r1", 1, sample(calls=(WRITE,)), (long,), blob=True)
    (hit,) = reader.run(find("needle")).hits
    assert hit.snippet.text.endswith("needle")


def test_the_json_has_its_keys(written: WrittenHome, reader: Reader) -> None:
    history(written)
    (hit,) = reader.run(find("haystack", "r-1")).hits
    line = search.as_json(hit)
    assert (line["rollout"], line["step"], line["kind"]) == ("r-1", None, "guidance")
    start, end = line["match"]
    assert line["snippet"][start:end] == "haystack"
