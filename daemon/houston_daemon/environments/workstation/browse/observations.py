"""What the browse actions found, and how it reads."""

from typing import ClassVar

import msgspec

from houston_daemon.environments.observation import Observation, Text, render


class PageWindow(Observation, frozen=True, kw_only=True):
    """Numbered lines of the open page."""

    kind: ClassVar[str] = "page"
    bulk: ClassVar[tuple[str, ...]] = ("content", "notes")
    url: str
    """Where the page was found in the end, after redirects."""
    title: str
    first_line: int
    last_line: int
    total_lines: int
    links: int
    """How many links the page has."""
    from_cache: bool = False
    fetched_at: float = 0.0
    """Unix time at which the page was fetched."""
    content: str = ""
    notes: tuple[str, ...] = ()


class PageFinds(Observation, frozen=True, kw_only=True):
    """Where a keyword stands in the open page, and one of the places."""

    kind: ClassVar[str] = "page_search"
    bulk: ClassVar[tuple[str, ...]] = ("content",)
    url: str
    keyword: str
    total_results: int
    """Lines that hold the keyword."""
    search_index: int = 0
    """Which of them is shown, from 1; 0 when there is none."""
    line: int = 0
    others: tuple[int, ...] = ()
    """Numbers of the first lines found."""
    first_line: int = 0
    last_line: int = 0
    total_lines: int = 0
    content: str = ""


class PageLink(msgspec.Struct, frozen=True, kw_only=True):
    """One link of a page."""

    number: int
    text: str
    url: str


class PageLinks(Observation, frozen=True, kw_only=True):
    """A part of the open page's links."""

    kind: ClassVar[str] = "page_links"
    bulk: ClassVar[tuple[str, ...]] = ("links",)
    url: str
    total: int
    page_number: int
    pages: int
    links: tuple[PageLink, ...]


@render.register
def _(one: PageWindow) -> Text:
    span = f"lines {one.first_line}-{one.last_line} of {one.total_lines}"
    title = f" {one.title!r}" if one.title else ""
    more = " web_page_scroll_down goes on." if one.last_line < one.total_lines else ""
    head = f"[{one.url}:{title} {span if one.total_lines else 'empty'}]{more}"
    lines = [head, *(f"[{note}]" for note in one.notes)]
    return Text("\n".join(lines), one.content, "web_page_goto_line shows any line")


@render.register
def _(one: PageFinds) -> Text:
    if not one.total_results:
        return Text(f"{one.keyword!r} does not stand in {one.url}.")
    shown = f"find {one.search_index} of {one.total_results}, line {one.line} of {one.total_lines}"
    numbers = ", ".join(map(str, one.others))
    more = ", …" if one.total_results > len(one.others) else ""
    head = f"[{one.keyword!r} in {one.url}: {shown}; in lines {numbers}{more}]"
    return Text(head, one.content, "web_page_goto_line shows any line")


@render.register
def _(one: PageLinks) -> Text:
    if not one.total:
        return Text(f"{one.url} has no links.")
    noun = "link" if one.total == 1 else "links"
    head = f"[{one.url}: {one.total} {noun}, list {one.page_number} of {one.pages}]"
    lines = (f"[{link.number}] {link.text or '(no text)'}: {link.url}" for link in one.links)
    return Text(head, "\n".join(lines), "use a smaller page_size")
