"""Tavily: `POST https://api.tavily.com/search` with a bearer token."""

from houston_daemon.environments.retrieval.protocol import Hit, hit
from houston_daemon.environments.retrieval.request import Question, answer
from houston_daemon.environments.retrieval.shapes import entries

URL = "https://api.tavily.com/search"
_MOST = 20
"""Most that one request may ask for; there are no pages."""


class Tavily:
    """See `protocol.Provider`. It never gives more than 20 hits."""

    keeps = True

    def __init__(self, url: str, key: str, seconds: float) -> None:
        self._url, self._key, self._seconds = url or URL, key, seconds
        self.name = f"tavily {self._url}"

    async def search(self, query: str, top_k: int) -> list[Hit]:
        """The results, best first. Raises SearchFailed."""
        found = await answer(
            Question(
                "POST",
                self._url,
                {"Authorization": f"Bearer {self._key}"},
                body={"query": query, "max_results": min(top_k, _MOST)},
            ),
            self._seconds,
        )
        results = entries(found, "results")
        return [hit(one.get("title"), one.get("url"), one.get("content")) for one in results][
            :top_k
        ]
