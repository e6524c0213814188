"""What a search found, and how it reads."""

from typing import Any, ClassVar

from houston_daemon.environments.observation import Observation, Text, render
from houston_daemon.environments.retrieval.protocol import Hit


class SearchResults(Observation, frozen=True, kw_only=True):
    """The results of one search."""

    kind: ClassVar[str] = "web_search"
    query: str
    requested_top_k: int
    total_results: int = 0
    search_results: tuple[Hit, ...] = ()
    from_cache: bool = False
    error_code: str = ""
    """Why there is no answer: a code of `SearchFailed`, or `stopped`; empty when there is one."""

    def fields(self) -> dict[str, Any]:
        """Of each result only what names it: the text already holds its snippet."""
        named = [{"title": one.title, "url": one.url} for one in self.search_results]
        return {**super().fields(), "search_results": named}


@render.register
def _(one: SearchResults) -> Text:
    if one.error:
        return Text(f"Error: {one.error}")
    if not one.search_results:
        return Text(f"No results for {one.query!r}; use fewer or other words.")
    noun = "result" if one.total_results == 1 else "results"
    kept = " (kept from an earlier search)" if one.from_cache else ""
    head = f"{one.total_results} {noun} for {one.query!r}{kept}:"
    body = "\n".join(entry(number, hit) for number, hit in enumerate(one.search_results, 1))
    return Text(head, body, "ask for a smaller top_k")


def entry(number: int, hit: Hit) -> str:
    """One result in words."""
    size = f" ({hit.characters} characters)" if hit.characters is not None else ""
    lines = [f"{number}. {hit.title or '(no title)'}{size}", hit.url, hit.snippet]
    return "\n   ".join(line for line in lines if line)
