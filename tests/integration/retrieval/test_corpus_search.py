"""A corpus is found in any script and indexed once for all, whatever happens to a worker."""

import asyncio
import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from houston_daemon.environments.retrieval.corpus_search import Corpus
from houston_daemon.environments.retrieval.retrieval_protocol import SearchFailed
from houston_daemon.environments.retrieval.search_terms import match, snippet, words

PAGES = {
    "gardens/suzhou.md": "# 苏州园林\n\n苏州的古典园林以拙政园和留园最为著名。拙政园建于明代。",
    "gardens/kyoto.txt": "京都の庭園\n枯山水は石と砂でつくられる庭である。",
    "rivers/danube.html": "<html><head><title>The Danube</title><script>var x='Amazon'</script>"
    "<body><h1>Course</h1><p>The Danube flows through <b>ten</b> countries &amp; four capitals.",
    "rivers/amazon.txt": "The Amazon\nThe river carries more water than any other river. " * 3,
    "rivers/short.txt": "Rivers\nThe Danube is a river.",
    "café.md": "# Cafés\n\nRunning cafés was a trade of ｗｉｄｅ streets.",
    "picture.txt": "GIF89a\0\0\0",
    "empty.md": "  \n",
    ".hidden/secret.txt": "The Danube of secrets.",
    "table.csv": "Danube,1",
}
QUERIES = [
    ("拙政园", "gardens/suzhou.md"),
    ("园林", "gardens/suzhou.md"),
    ("明代 建筑", "gardens/suzhou.md"),
    ("砂", "gardens/kyoto.txt"),  # one character, also the last of its run
    ("枯山水", "gardens/kyoto.txt"),
    ("Danube countries", "rivers/danube.html"),
    ("which river carries the most water", "rivers/amazon.txt"),
    ("cafe run", "café.md"),  # without the accent, another form of the word
    ("wide street", "café.md"),  # full-width letters
    ("\"'(OR NEAR * danube:", "rivers/danube.html"),  # nothing in a query is a command
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "corpus"
    for name, text in PAGES.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (source / "link.txt").symlink_to("/etc/passwd")
    return source


def corpus(source: Path, seconds: float = 20) -> Corpus:
    return Corpus(source, source.parent / "host" / "retrieval", seconds)


def lines(tmp_path: Path, *rows: object) -> Path:
    file = tmp_path / "corpus.jsonl"
    file.write_text(
        "".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in rows)
    )
    return file


async def test_what_is_searched_for_is_found_first(folder: Path) -> None:
    for query, best in QUERIES:
        hits = await corpus(folder).search(query, 3)
        assert hits and hits[0].id == best, (query, [one.id for one in hits])
    for query in ("secret", "Amazon var", "GIF89a", "root", "!?", "zzz"):
        ids = {one.id for one in await corpus(folder).search(query, 9)}
        assert ids <= {"rivers/amazon.txt"}, query


async def test_a_document_is_read_back_whole(folder: Path) -> None:
    one = corpus(folder)
    (hit,) = await one.search("four capitals", 1)
    assert (hit.title, hit.url) == ("The Danube", "corpus:rivers/danube.html")
    assert "ten countries & four capitals" in hit.snippet
    for name in (hit.id, hit.url):
        document = await one.document(name)
        assert document and len(document.text) == hit.characters
        assert "Amazon" not in document.text
    for name in ("rivers/nile.txt", "corpus:\ud800", "a\0b"):
        assert await one.document(name) is None
    (folder / "rivers" / "danube.html").write_text("It is gone.")
    assert await one.document(hit.id), "this rollout's corpus stays as it was"
    assert not [one.id for one in await corpus(folder).search("four capitals", 1)]


async def test_lines_of_any_kind(tmp_path: Path) -> None:
    source = lines(
        tmp_path,
        {"id": "a", "title": "Tea", "text": "Green tea.", "url": "https://example.org/tea"},
        {"contents": '"Coffee"\nCoffee is roasted.'},
        {"id": 7, "text": "Cocoa comes from beans."},
        {"id": "a", "title": "Twice", "text": "A second tea."},
        "{broken",
        "[1, 2]",
        {"id": "none", "text": "   "},
        {"id": "odd", "text": ["tea"]},
        '{"id": "half", "title": "tea \\ud800", "text": "half a pair \\udfff of tea"}',
    )
    one = corpus(source)
    found = {hit.id: (hit.title, hit.url) for hit in await one.search("tea coffee cocoa", 9)}
    assert found == {
        "a": ("Tea", "https://example.org/tea"),
        "2": ("Coffee", "corpus:2"),
        "7": ("Cocoa comes from beans.", "corpus:7"),
        "half": ("tea ?", "corpus:half"),
    }


async def test_a_changed_corpus_is_another_and_an_equal_one_is_the_same(tmp_path: Path) -> None:
    source = lines(tmp_path, {"text": "Old words."})
    first = await corpus(source).prepare()
    os.utime(source, (1, 1))
    assert await corpus(source).prepare() == first
    lines(tmp_path, {"text": "New words."})
    assert await corpus(source).prepare() != first
    assert (await corpus(source).search("new", 5))[0].title == "New words."


async def test_a_corpus_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SearchFailed, match="cannot be indexed") as told:
        await corpus(tmp_path / "nowhere.jsonl").search("x", 5)
    assert told.value.code == "corpus"
    assert str(tmp_path) not in str(told.value)
    (tmp_path / "void").mkdir()
    unread = lines(tmp_path, {"id": "1", "passage": "Text under another name."}, "{broken")
    for source, left_out in ((tmp_path / "void", 0), (unread, 2)):
        with pytest.raises(SearchFailed, match=f"no document .* {left_out} that cannot.*`text`"):
            await corpus(source).search("text", 5)


async def test_a_damaged_index_is_built_again(tmp_path: Path) -> None:
    source = lines(tmp_path, *({"text": f"Words {number}."} for number in range(2_000)))
    one = corpus(source)
    index = await one.prepare()
    data = bytearray(index.read_bytes())
    data[4_096:] = os.urandom(len(data) - 4_096)
    index.unlink()
    index.write_bytes(data)
    with pytest.raises(SearchFailed, match="search again"):
        await one.search("words", 5)
    assert len(await one.search("words", 5)) == 5


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - what another process does sets no event
            await asyncio.sleep(0.005)


def _prepare(source: Path) -> None:
    asyncio.run(corpus(source).prepare())


async def test_workers_build_one_index_and_a_killed_one_leaves_nothing(tmp_path: Path) -> None:
    source = lines(
        tmp_path, *({"text": f"Words {number} " + "and more " * 50} for number in range(12_000))
    )
    context = multiprocessing.get_context("fork")
    killed = context.Process(target=_prepare, args=(source,))
    killed.start()
    indexes = tmp_path / "host" / "retrieval" / "corpora"
    await _until(lambda: bool(list(indexes.glob("*.new"))))
    assert killed.pid
    os.kill(killed.pid, signal.SIGKILL)
    killed.join(60)
    assert not list(indexes.glob("*.db")), "killed in the middle"
    workers = [context.Process(target=_prepare, args=(source,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    (index,) = indexes.glob("*.db")
    assert not list(indexes.glob("*.new"))
    begun = index.stat().st_mtime_ns
    assert len(await corpus(source).search("words 11999", 5)) == 5
    assert index.stat().st_mtime_ns == begun


async def test_a_search_that_is_cancelled_lets_the_building_go(tmp_path: Path) -> None:
    source = lines(tmp_path, *({"text": "and more " * 500} for _ in range(3_000)))
    searching = asyncio.create_task(corpus(source).search("more", 5))
    indexes = tmp_path / "host" / "retrieval" / "corpora"
    await _until(lambda: bool(list(indexes.glob("*.new"))))
    searching.cancel()
    await asyncio.gather(searching, return_exceptions=True)
    await _until(lambda: not list(indexes.glob("*.new")))
    assert not list(indexes.glob("*.db"))


def test_terms() -> None:
    assert words("The the OF a") == ["the", "of", "a"], "kept where there is nothing else"
    assert words("Who wrote the 红楼梦?") == ["who", "wrote", "红楼", "楼梦"]
    assert match("") == match("?!") == ""
    assert match('x" NEAR y*') == '"x" OR "near" OR "y"'
    long = "Nothing here. " * 100 + "The heron stands by the lake. " + "Nothing more. " * 100
    assert "heron stands by the lake" in snippet(long, "herons lake")
    assert len(snippet(long, "herons lake")) < 320
    assert snippet("短い文。", "文") == "短い文。"
