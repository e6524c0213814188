"""The search action: what the provider found, or why nothing was found."""

from typing import Any, ClassVar

from houston_daemon.environments.call_handling import CallInterrupted, cancel_on_stop
from houston_daemon.environments.environment_protocol import Stop
from houston_daemon.environments.retrieval.retrieval_protocol import Hit, SearchFailed
from houston_daemon.environments.retrieval.searcher import Searcher
from houston_daemon.environments.tool_arguments import Arguments
from houston_daemon.environments.typed_observation import Observation, Text, render
from houston_daemon.environments.workstation_actions import SEARCH_ACTIONS, WebSearch


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
        named = [{"title": hit.title, "url": hit.url} for hit in self.search_results]
        return {**super().fields(), "search_results": named}


@render.register
def _(result: SearchResults) -> Text:
    if result.error:
        return Text(f"Error: {result.error}")
    if not result.search_results:
        return Text(f"No results for {result.query!r}; use fewer or other words.")
    noun = "result" if result.total_results == 1 else "results"
    cache_note = " (kept from an earlier search)" if result.from_cache else ""
    head = f"{result.total_results} {noun} for {result.query!r}{cache_note}:"
    body = "\n".join(entry(number, hit) for number, hit in enumerate(result.search_results, 1))
    return Text(head, body, "ask for a smaller top_k")


def entry(number: int, hit: Hit) -> str:
    """One result in words."""
    size = f" ({hit.characters} characters)" if hit.characters is not None else ""
    lines = [f"{number}. {hit.title or '(no title)'}{size}", hit.url, hit.snippet]
    return "\n   ".join(line for line in lines if line)


class SearchActions:
    """Actions that look for what is not in the workspace."""

    actions: tuple[type[Arguments], ...] = SEARCH_ACTIONS

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher

    async def act(self, arguments: Arguments, stop: Stop) -> Observation:
        """Search once; a failure is an observation with its code."""
        assert isinstance(arguments, WebSearch)
        query, top_k = arguments.query, arguments.top_k
        try:
            answer = await cancel_on_stop(self._searcher.search(query, top_k), stop)
        except SearchFailed as problem:
            return _failed_results(arguments, problem.code, str(problem))
        except CallInterrupted as problem:
            return _failed_results(arguments, "stopped", str(problem))
        return SearchResults(
            query=query,
            requested_top_k=top_k,
            total_results=len(answer.hits),
            search_results=tuple(answer.hits),
            from_cache=answer.from_cache,
        )


def _failed_results(arguments: WebSearch, code: str, error: str) -> SearchResults:
    return SearchResults(
        success=False,
        error=error,
        query=arguments.query,
        requested_top_k=arguments.top_k,
        error_code=code,
    )
