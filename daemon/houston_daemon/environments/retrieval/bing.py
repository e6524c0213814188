"""Bing's Web Search API, version 7, which servers of others still speak.

`GET …/v7.0/search` with `Ocp-Apim-Subscription-Key`; pages of 50. Microsoft closed its own public
address on 11 August 2025, so `url` names the server that answers in this shape.
"""

from houston_daemon.environments.retrieval.pages import pages
from houston_daemon.environments.retrieval.protocol import Hit, hit
from houston_daemon.environments.retrieval.request import Question, answer
from houston_daemon.environments.retrieval.shapes import entries

URL = "https://api.bing.microsoft.com/v7.0/search"
_PAGE = 50


class Bing:
    """See `protocol.Provider`."""

    keeps = True

    def __init__(self, url: str, key: str, seconds: float) -> None:
        self._url, self._key, self._seconds = url or URL, key, seconds
        self.name = f"bing {self._url}"

    async def search(self, query: str, top_k: int) -> list[Hit]:
        """The web pages, best first. Raises SearchFailed."""

        size = min(top_k, _PAGE)

        async def page(number: int, seconds: float) -> list[Hit]:
            found = await answer(
                Question(
                    "GET",
                    self._url,
                    {"Ocp-Apim-Subscription-Key": self._key},
                    {"q": query, "count": size, "offset": number * size},
                ),
                seconds,
            )
            results = entries(found, "webPages", "value", marks=("_type", "rankingResponse"))
            return [hit(one.get("name"), one.get("url"), one.get("snippet")) for one in results]

        return await pages(page, top_k, self._seconds, size)
