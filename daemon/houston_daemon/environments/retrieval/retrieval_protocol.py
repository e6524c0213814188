"""What every provider of search gives: hits in one form, failures with a code.

Used by the workstation's `web_search`, by `search_qa`, and by whoever serves search to others.
"""

from typing import Any, Protocol

import msgspec

MAX_HITS = 100
"""Most hits of one search."""
MAX_QUERY_CHARACTERS = 1_000
"""Most characters of a query."""
_TITLE, _SNIPPET, _URL = 300, 1_000, 2_000


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a search."""

    title: str
    url: str
    """Web address; `corpus:ID` for a document of a local corpus that has none."""
    snippet: str
    id: str = ""
    """Name of a document in a local corpus; empty elsewhere."""
    characters: int | None = None
    """Length of the whole text where the provider knows it."""


class SearchFailed(Exception):
    """A search that gave no answer; the text is one sentence for the agent.

    code: `not_configured`, `unauthorized`, `quota`, `rate_limited`, `refused`, `malformed`,
    `too_large`, `timeout`, `unavailable`, `corpus`.
    """

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code = code


class Provider(Protocol):
    """Something that can be asked."""

    name: str
    """Kind and address: answers of two providers are never taken for each other's."""
    keeps: bool
    """Whether its answers are worth keeping; a local corpus answers faster than a cache."""

    async def search(self, query: str, top_k: int) -> list[Hit]:
        """At most `top_k` (1 to 100) hits, best first. Raises SearchFailed.

        Safe to cancel: nothing is left behind.
        """
        ...


def hit(title: Any, url: Any, snippet: Any, characters: int | None = None) -> Hit:
    """A hit from members of a provider's JSON, which may be of any type or missing."""
    return Hit(
        title=_words(title, _TITLE),
        url=_words(url, _URL),
        snippet=_words(snippet, _SNIPPET),
        characters=characters,
    )


def _words(value: Any, limit: int) -> str:
    """Text on one line; JSON can spell half a surrogate pair, which no database can hold."""
    if not isinstance(value, str):
        return ""
    text = value[: limit * 4].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return " ".join(text.split())[:limit]
