"""Kept answers: given again while young, bounded, shared by workers, never a reason to fail."""

import multiprocessing
import os
import sqlite3
from pathlib import Path

import pytest

from houston_daemon.environments.retrieval.retrieval_protocol import Hit
from houston_daemon.environments.retrieval.searcher import AnswerCache, Searcher
from houston_daemon.environments.retrieval.web_search import Serper
from tests.integration.retrieval.conftest import KEY, Providers

HITS = [Hit(title="One", url="https://example.org/1", snippet="Words.")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "host" / "retrieval" / "answers.db"


def test_given_again_for_the_same_question_only(file: Path) -> None:
    AnswerCache(file, 60, 1).keep("p", "q", 5, HITS)
    again = AnswerCache(file, 60, 1)
    assert again.find("p", "q", 5) == HITS
    assert [again.find(*key) for key in (("p", "q", 6), ("p", "Q", 5), ("o", "q", 5))] == [None] * 3
    again.keep("p", "q", 5, [])
    assert again.find("p", "q", 5) == []


def test_a_key_in_a_providers_address_is_not_in_the_file(file: Path) -> None:
    AnswerCache(file, 60, 1).keep("searxng https://me:pass-word@host/search", "q", 5, HITS)
    assert all(b"pass-word" not in each.read_bytes() for each in file.parent.iterdir())


def test_an_old_answer_is_asked_for_again(file: Path) -> None:
    AnswerCache(file, 60, 1).keep("p", "q", 5, HITS)
    with sqlite3.connect(file) as database:
        database.execute("UPDATE answers SET at = at - 61")
    assert AnswerCache(file, 60, 1).find("p", "q", 5) is None
    assert AnswerCache(file, 90, 1).find("p", "q", 5) == HITS
    with sqlite3.connect(file) as database:
        database.execute("UPDATE answers SET at = at + 1e6")  # a clock that was set back
    assert AnswerCache(file, 60, 1).find("p", "q", 5) is None
    assert AnswerCache(file, 0, 1).find("p", "q", 5) is None


def test_the_oldest_make_room(file: Path) -> None:
    answers = AnswerCache(file, 60, 1)
    long = [Hit(title="t", url="u", snippet="x" * 1_000) for _ in range(50)]
    for number in range(60):
        answers.keep("p", str(number), 5, long)
    assert answers.find("p", "59", 5) == long
    assert answers.find("p", "0", 5) is None
    with sqlite3.connect(file) as database:
        (held,), (real,) = database.execute(
            "SELECT bytes FROM held UNION ALL SELECT sum(length(hits) + length(query)) FROM answers"
        )
    assert held == real <= 1_048_576
    assert file.stat().st_size < 4_000_000


def _work(file: Path, worker: int) -> None:
    answers = AnswerCache(file, 60, 1)
    for number in range(40):
        answers.keep("p", f"{worker} {number}", 5, HITS)
        answers.keep("p", "all", 5, HITS)
        if answers.find("p", f"{worker} {number}", 5) != HITS:
            os._exit(3)


def test_workers_share_it(file: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_work, args=(file, number)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    with sqlite3.connect(file) as database:
        assert database.execute("SELECT count(*) FROM answers").fetchone() == (161,)
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("harm", ["no database", "cut", "folder", "held", "flipped"])
async def test_a_file_that_cannot_be_used_never_fails_a_search(
    file: Path, providers: Providers, harm: str
) -> None:
    searcher = Searcher(Serper(providers.url("serper"), KEY, 5), AnswerCache(file, 60, 1))
    await searcher.search("x", 3)
    assert (await searcher.search("x", 3)).from_cache
    holder = None
    if harm == "no database":
        file.write_bytes(b"not a database at all" * 100)
    elif harm == "cut":
        file.write_bytes(file.read_bytes()[:5_000])
    elif harm == "folder":
        file.unlink()
        file.mkdir()
    elif harm == "flipped":  # one bit of a word: it is no text any more
        with sqlite3.connect(file) as holder:
            (hits,) = holder.execute("SELECT hits FROM answers").fetchone()
            holder.execute("UPDATE answers SET hits = ?", (hits.replace(b"Page", b"\xd0age"),))
    else:  # all that is there belongs to a form that nobody knows
        with sqlite3.connect(file) as holder:
            holder.execute("DROP TABLE answers")
    assert len((await searcher.search("x", 3)).hits) == 3
    assert len((await searcher.search("y", 3)).hits) == 3
    if harm == "no database":
        assert (await searcher.search("y", 3)).from_cache, "made anew"
