"""Each provider is asked in its own shape, and whatever it answers ends in hits or in a code."""

import time

import pytest

from houston_daemon.environments.retrieval.retrieval_protocol import Provider, SearchFailed
from houston_daemon.environments.retrieval.searcher import WEB_PROVIDERS
from houston_daemon.environments.retrieval.web_search import Searxng, Serper
from tests.integration.retrieval.conftest import KEY, Providers

PATHS = {"serper": "serper", "tavily": "tavily", "searxng": "searx"}


def made(providers: Providers, name: str, path: str = "", key: str = KEY) -> Provider:
    return WEB_PROVIDERS[name](providers.url(path or PATHS[name]), key, 5.0)


@pytest.mark.parametrize(
    ("name", "top_k", "given"),
    [
        ("serper", 3, 3),
        ("serper", 100, 12),  # the provider has no more
        ("tavily", 3, 3),
        ("tavily", 100, 20),  # its limit
        ("searxng", 3, 3),
        ("searxng", 25, 25),  # three pages that overlap
        ("searxng", 100, 30),
    ],
)
async def test_hits_in_one_form(providers: Providers, name: str, top_k: int, given: int) -> None:
    hits = await made(providers, name).search("苏州 gardens", top_k)
    assert len(hits) == given == len({one.url for one in hits})
    assert hits[0].title == "Page 1 on 苏州 gardens"
    assert hits[0].url == "https://example.org/1"
    assert hits[0].snippet == "About 苏州 gardens, page 1."


@pytest.mark.parametrize("name", ["serper", "tavily"])
async def test_a_wrong_key_is_told_and_not_tried_again(providers: Providers, name: str) -> None:
    before = len(providers.paths)
    with pytest.raises(SearchFailed) as told:
        await made(providers, name, key="wrong").search("x", 5)
    assert told.value.code == "unauthorized"
    assert len(providers.paths) == before + 1


BAD = [
    ("limited-long", "rate_limited", "try again in 120 s"),
    ("limited-until", "rate_limited", "try again in"),
    ("failing", "unavailable", "status 502"),
    ("moved", "refused", "status 302"),
    ("astray", "malformed", "redirects to something that is no address"),
    ("half", "malformed", "not a JSON object"),
    ("list", "malformed", "not a JSON object"),
    ("deep", "malformed", "not a JSON object"),
    ("other", "malformed", "no list"),
    ("hanging", "timeout", "within 0.6 s"),
    ("dripping", "timeout", "within 0.6 s"),
    ("endless", "too_large", "over 4 MB"),
    ("gone", "unavailable", "not reached"),
]


@pytest.mark.parametrize(("path", "code", "words"), BAD)
async def test_a_bad_server_costs_a_sentence(
    providers: Providers, path: str, code: str, words: str
) -> None:
    begun = time.monotonic()
    seconds = 10.0 if path == "endless" else 0.6
    with pytest.raises(SearchFailed, match=words) as told:
        await Serper(providers.url(path), KEY, seconds).search("x", 5)
    assert told.value.code == code
    assert time.monotonic() - begun < 30, "bounded, whatever the server does"


async def test_nobody_there() -> None:
    with pytest.raises(SearchFailed) as told:
        await Serper("http://127.0.0.1:9/", KEY, 0.6).search("x", 5)
    assert told.value.code == "unavailable"
    for wrong in (
        "no address",
        "http://[::1",
        "http://h:99999/",
        "ftp://h/",
        "http:///",
        "http://",
    ):
        with pytest.raises(SearchFailed) as told:
            await Serper(wrong, KEY, 0.6).search("x", 5)
        assert told.value.code == "not_configured", wrong


async def test_a_limit_that_passes_is_waited_for(providers: Providers) -> None:
    (found,) = await Serper(providers.url("limited"), KEY, 10).search("x", 5)
    assert found.title == "Then"


async def test_no_results_are_an_answer(providers: Providers) -> None:
    assert await Serper(providers.url("serper/empty"), KEY, 5).search("x", 5) == []


async def test_engines_that_are_away_are_no_answer(providers: Providers) -> None:
    with pytest.raises(SearchFailed) as told:
        await Searxng(providers.url("searx-dark"), "", 5).search("x", 5)
    assert told.value.code == "unavailable"


async def test_members_of_any_type_become_text(providers: Providers) -> None:
    empty, second = await Serper(providers.url("strange"), KEY, 5).search("x", 5)
    assert (empty.title, empty.url, empty.snippet) == ("", "", "")
    assert second.url == "https://e.org"
    (odd,) = await Serper(providers.url("strange"), KEY, 5).search("odd", 5)
    assert odd.title == "half \ufffd pair"
