"""The search action: its arguments, bounds and one-line description."""

from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments.arguments import Arguments
from houston_daemon.environments.retrieval.protocol import MOST_HITS, MOST_QUERY


class SearchAction(Arguments, frozen=True, kw_only=True):
    """Base of the search actions."""

    family: ClassVar[str] = "search"


class WebSearch(SearchAction, frozen=True, kw_only=True):
    """Search the web, best results first; web_browse opens an address."""

    name: ClassVar[str] = "web_search"
    query: Annotated[
        str, Meta(min_length=1, max_length=MOST_QUERY, description="What to search for.")
    ]
    top_k: Annotated[int, Meta(ge=1, le=MOST_HITS, description="Most results.")] = 10


SEARCH_ACTIONS: tuple[type[SearchAction], ...] = (WebSearch,)
