"""The actions of search_qa: their arguments, bounds and one-line descriptions."""

from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments.arguments import Arguments
from houston_daemon.environments.retrieval.protocol import MOST_QUERY


class SearchQaAction(Arguments, frozen=True, kw_only=True):
    """Base of the actions of search_qa."""

    family: ClassVar[str] = "search_qa"


class Search(SearchQaAction, frozen=True, kw_only=True):
    """Search the corpus by words, best documents first."""

    name: ClassVar[str] = "search"
    query: Annotated[
        str, Meta(min_length=1, max_length=MOST_QUERY, description="What to search for.")
    ]
    top_k: Annotated[int, Meta(ge=1, le=50, description="Most documents.")] = 5


class OpenDocument(SearchQaAction, frozen=True, kw_only=True):
    """Read a document from a line on."""

    name: ClassVar[str] = "open_document"
    id: Annotated[
        str, Meta(min_length=1, max_length=300, description="Document, as search names it.")
    ]
    line_number: Annotated[
        int, Meta(ge=1, le=1_000_000_000, description="First line to show, from 1.")
    ] = 1


class Answer(SearchQaAction, frozen=True, kw_only=True):
    """Give the answer, as short as it can be said; it ends the task."""

    name: ClassVar[str] = "answer"
    text: Annotated[
        str, Meta(min_length=1, max_length=1_000, description="The answer and nothing else.")
    ]


SEARCH_QA_ACTIONS: tuple[type[SearchQaAction], ...] = (Search, OpenDocument, Answer)
