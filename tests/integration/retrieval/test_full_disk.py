"""On a full disk a search is without a cache, and a corpus without an index, in words."""

import json
from pathlib import Path

import pytest

from houston_daemon.environments.retrieval.corpus_search import Corpus
from houston_daemon.environments.retrieval.retrieval_protocol import SearchFailed
from houston_daemon.environments.retrieval.searcher import AnswerCache, Searcher
from houston_daemon.environments.retrieval.web_search import Serper
from tests.integration.retrieval.conftest import KEY, Providers
from tests.support.small_disk import fill, mounted


async def test_searching_on_a_full_disk(tmp_path: Path, providers: Providers) -> None:
    disk = tmp_path / "host"
    disk.mkdir()
    source = tmp_path / "corpus.jsonl"
    source.write_text(
        "".join(json.dumps({"text": f"Words {n} " + "more " * 300}) + "\n" for n in range(3_000))
    )
    with mounted(disk, 4):
        filler = fill(disk)
        searcher = Searcher(
            Serper(providers.url("serper"), KEY, 5), AnswerCache(disk / "a.db", 60, 1)
        )
        assert len((await searcher.search("x", 3)).hits) == 3
        for left in (0, 2_000_000):  # none at all, and less than the index takes
            filler.write_bytes(bytes(max(0, filler.stat().st_size - left)))
            with pytest.raises(SearchFailed, match="cannot be indexed") as told:
                await Corpus(source, disk / "retrieval", 20).search("words", 5)
            assert told.value.code == "corpus" and str(tmp_path) not in str(told.value)
            assert not list(disk.glob("retrieval/corpora/*.new"))
            assert not list(disk.glob("retrieval/corpora/*.db"))
        filler.unlink()
        assert not (await searcher.search("x", 3)).from_cache
        assert (await searcher.search("x", 3)).from_cache
