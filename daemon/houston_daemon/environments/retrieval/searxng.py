"""SearXNG: a metasearch engine that one runs oneself, `GET <url>/search?format=json`.

Its settings must allow the format (`search.formats: [html, json]`), else it answers 403.
"""

from houston_daemon.environments.retrieval.pages import pages
from houston_daemon.environments.retrieval.protocol import Hit, SearchFailed, hit
from houston_daemon.environments.retrieval.request import Question, answer
from houston_daemon.environments.retrieval.shapes import entries


class Searxng:
    """See `protocol.Provider`. A page holds what its engines give, about 10 to 30 hits."""

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
            asked: dict[str, str | int] = {"q": query, "format": "json", "pageno": number + 1}
            found = await answer(Question("GET", self._url, self._headers, asked), seconds)
            results = entries(found, "results")
            if not results and number == 0 and found.get("unresponsive_engines"):
                # Empty because its engines are away is no answer, and must not be kept as one.
                raise SearchFailed("unavailable", "None of the search provider's engines answered.")
            return [hit(one.get("title"), one.get("url"), one.get("content")) for one in results]

        return await pages(page, top_k, self._seconds)
