"""The search action: what the provider found, or why nothing was found."""

from houston_daemon.environments.arguments import Arguments
from houston_daemon.environments.interruption import BrokenOff, unless_stopped
from houston_daemon.environments.observation import Observation
from houston_daemon.environments.protocol import Stop
from houston_daemon.environments.retrieval.protocol import SearchFailed
from houston_daemon.environments.retrieval.searcher import Searcher
from houston_daemon.environments.workstation.search import actions as asked
from houston_daemon.environments.workstation.search.observations import SearchResults


class SearchActions:
    """Actions that look for what is not in the workspace."""

    actions: tuple[type[Arguments], ...] = asked.SEARCH_ACTIONS

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher

    async def act(self, arguments: Arguments, stop: Stop) -> Observation:
        """Search once; a failure is an observation with its code."""
        assert isinstance(arguments, asked.WebSearch)
        query, top_k = arguments.query, arguments.top_k
        try:
            found = await unless_stopped(self._searcher.search(query, top_k), stop)
        except SearchFailed as problem:
            return _failed(arguments, problem.code, str(problem))
        except BrokenOff as problem:
            return _failed(arguments, "stopped", str(problem))
        return SearchResults(
            query=query,
            requested_top_k=top_k,
            total_results=len(found.hits),
            search_results=tuple(found.hits),
            from_cache=found.from_cache,
        )


def _failed(arguments: asked.WebSearch, code: str, error: str) -> SearchResults:
    return SearchResults(
        success=False,
        error=error,
        query=arguments.query,
        requested_top_k=arguments.top_k,
        error_code=code,
    )
