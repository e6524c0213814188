"""Serper: Google's results, `POST https://google.serper.dev/search` with `X-API-KEY`."""

from houston_daemon.environments.retrieval.protocol import Hit, hit
from houston_daemon.environments.retrieval.request import Question, answer
from houston_daemon.environments.retrieval.shapes import entries

URL = "https://google.serper.dev/search"


class Serper:
    """See `protocol.Provider`. One request asks for up to 100 hits (`num`)."""

    keeps = True

    def __init__(self, url: str, key: str, seconds: float) -> None:
        self._url, self._key, self._seconds = url or URL, key, seconds
        self.name = f"serper {self._url}"

    async def search(self, query: str, top_k: int) -> list[Hit]:
        """The organic results, best first. Raises SearchFailed."""
        found = await answer(
            Question("POST", self._url, {"X-API-KEY": self._key}, body={"q": query, "num": top_k}),
            self._seconds,
        )
        organic = entries(found, "organic", marks=("searchParameters", "credits"))
        return [hit(one.get("title"), one.get("link"), one.get("snippet")) for one in organic][
            :top_k
        ]
