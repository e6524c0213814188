"""What the actions of search_qa found, and how it reads."""

from typing import Any, ClassVar

from houston_daemon.environments.observation import Observation, Text, render
from houston_daemon.environments.retrieval.protocol import Hit


class Documents(Observation, frozen=True, kw_only=True):
    """Documents that a search found."""

    kind: ClassVar[str] = "search"
    query: str
    requested_top_k: int
    total_results: int = 0
    documents: tuple[Hit, ...] = ()

    def fields(self) -> dict[str, Any]:
        """Of each document only its name: the text already holds the rest."""
        return {**super().fields(), "documents": [one.id for one in self.documents]}


class DocumentWindow(Observation, frozen=True, kw_only=True):
    """Numbered lines of one document."""

    kind: ClassVar[str] = "document"
    bulk: ClassVar[tuple[str, ...]] = ("content",)
    id: str
    title: str
    first_line: int
    last_line: int
    total_lines: int
    content: str


@render.register
def _(one: Documents) -> Text:
    if not one.documents:
        return Text(f"No document has any word of {one.query!r}; use others.")
    noun = "document" if one.total_results == 1 else "documents"
    head = f"The best {one.total_results} {noun} for {one.query!r}:"
    body = "\n".join(_entry(number, hit) for number, hit in enumerate(one.documents, 1))
    return Text(head, body, "ask for a smaller top_k")


def _entry(number: int, hit: Hit) -> str:
    return f"{number}. [{hit.id}] {hit.title}\n   {hit.snippet}"


@render.register
def _(one: DocumentWindow) -> Text:
    more = f"; open_document with line_number={one.last_line + 1} goes on"
    goes_on = more if one.last_line < one.total_lines else ""
    span = f"lines {one.first_line}-{one.last_line} of {one.total_lines}"
    return Text(f"[{one.id}: {one.title}, {span}{goes_on}]", one.content, "a later line_number")
