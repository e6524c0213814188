"""Providers of web search: Serper, Tavily and SearXNG, each with the form of its requests."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from houston_daemon.environments.retrieval.provider_request import Question, answer
from houston_daemon.environments.retrieval.retrieval_protocol import Hit, SearchFailed, hit


def result_hits(
    answered: dict[str, Any],
    name: str,
    url: str = "url",
    snippet: str = "content",
    marks: tuple[str, ...] = (),
) -> list[Hit]:
    """Hits of the objects in the list `name` of an answer; other things in it are passed over.

    url, snippet: members of each. marks: members that only an answer of this provider has; where
    one is there, a list that is missing means no results. Without any, raises SearchFailed:
    something else answered.
    """
    entries = answered.get(name)
    if entries is None and any(mark in answered for mark in marks):
        return []
    if not isinstance(entries, list):
        raise SearchFailed("malformed", f"The search provider's answer has no list `{name}`.")
    objects = (entry for entry in entries if isinstance(entry, dict))
    return [hit(entry.get("title"), entry.get(url), entry.get(snippet)) for entry in objects]


SERPER_URL = "https://google.serper.dev/search"


class Serper:
    """See `retrieval_protocol.Provider`. One request asks for up to 100 hits (`num`)."""

    keeps = True

    def __init__(self, url: str, key: str, seconds: float) -> None:
        self._url, self._key, self._seconds = url or SERPER_URL, key, seconds
        self.name = f"serper {self._url}"

    async def search(self, query: str, top_k: int) -> list[Hit]:
        """The organic results, best first. Raises SearchFailed."""
        answered = await answer(
            Question("POST", self._url, {"X-API-KEY": self._key}, body={"q": query, "num": top_k}),
            self._seconds,
        )
        marks = ("searchParameters", "credits")
        return result_hits(answered, "organic", "link", "snippet", marks)[:top_k]


TAVILY_URL = "https://api.tavily.com/search"
_MOST = 20
"""Most that one request may ask for; there are no pages."""


class Tavily:
    """See `retrieval_protocol.Provider`. It never gives more than 20 hits."""

    keeps = True

    def __init__(self, url: str, key: str, seconds: float) -> None:
        self._url, self._key, self._seconds = url or TAVILY_URL, key, seconds
        self.name = f"tavily {self._url}"

    async def search(self, query: str, top_k: int) -> list[Hit]:
        """The results, best first. Raises SearchFailed."""
        answered = await answer(
            Question(
                "POST",
                self._url,
                {"Authorization": f"Bearer {self._key}"},
                body={"query": query, "max_results": min(top_k, _MOST)},
            ),
            self._seconds,
        )
        return result_hits(answered, "results")[:top_k]


_MAX_PAGES = 10


async def pages(
    page: Callable[[int, float], Awaitable[list[Hit]]], top_k: int, seconds: float
) -> list[Hit]:
    """At most `top_k` hits with different addresses.

    page: the hits of a page (from 0) within so many seconds. What the first page gives is never
    lost: a later one that fails ends the asking. Raises SearchFailed when the first one fails.
    """
    end = time.monotonic() + seconds
    hits: dict[str, Hit] = {}
    for number in range(_MAX_PAGES):
        seconds_left = end - time.monotonic()
        if number and seconds_left <= 0:
            break
        try:
            page_hits = await page(number, max(seconds_left, 0.01))
        except SearchFailed:
            if number == 0:
                raise
            break
        fresh = {hit.url: hit for hit in page_hits if hit.url not in hits}
        hits.update(fresh)
        if len(hits) >= top_k or not fresh:
            break
    return list(hits.values())[:top_k]


class Searxng:
    """See `retrieval_protocol.Provider`. A page holds 10 to 30 hits."""

    keeps = True

    def __init__(self, url: str, key: str, seconds: float) -> None:
        base = url.rstrip("/")
        self._url = base if base.endswith("/search") else f"{base}/search"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._seconds = seconds
        self.name = f"searxng {self._url}"

    async def search(self, query: str, top_k: int) -> list[Hit]:
        """The results of as many pages as it takes. Raises SearchFailed."""

        async def page(number: int, seconds: float) -> list[Hit]:
            parameters: dict[str, str | int] = {"q": query, "format": "json", "pageno": number + 1}
            answered = await answer(Question("GET", self._url, self._headers, parameters), seconds)
            results = result_hits(answered, "results")
            if not results and number == 0 and answered.get("unresponsive_engines"):
                # Empty because its engines are away is no answer, and must not be kept as one.
                raise SearchFailed("unavailable", "None of the search provider's engines answered.")
            return results

        return await pages(page, top_k, self._seconds)
