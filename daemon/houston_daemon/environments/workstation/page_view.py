"""Windows of the open page: lines, finds and links, and how they read. Touches no network.

The open page is kept in the rollout's folder over a worker's death.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import msgspec

from houston_daemon.environments.observation_boundary import numbered_lines
from houston_daemon.environments.typed_observation import Failed, Observation, Text, render
from houston_daemon.environments.workstation import web_page
from houston_daemon.environments.workstation.web_page import Page
from houston_daemon.environments.workstation.workstation_state import OpenPage, WorkstationState


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
def _(result: PageWindow) -> Text:
    span = f"lines {result.first_line}-{result.last_line} of {result.total_lines}"
    title = f" {result.title!r}" if result.title else ""
    more = " web_page_scroll_down goes on." if result.last_line < result.total_lines else ""
    head = f"[{result.url}:{title} {span if result.total_lines else 'empty'}]{more}"
    lines = [head, *(f"[{note}]" for note in result.notes)]
    return Text("\n".join(lines), result.content, "web_page_goto_line shows any line")


@render.register
def _(result: PageFinds) -> Text:
    if not result.total_results:
        return Text(f"{result.keyword!r} does not stand in {result.url}.")
    position = f"find {result.search_index} of {result.total_results}"
    line = f"line {result.line} of {result.total_lines}"
    numbers = ", ".join(map(str, result.others))
    more = ", …" if result.total_results > len(result.others) else ""
    head = f"[{result.keyword!r} in {result.url}: {position}, {line}; in lines {numbers}{more}]"
    return Text(head, result.content, "web_page_goto_line shows any line")


@render.register
def _(result: PageLinks) -> Text:
    if not result.total:
        return Text(f"{result.url} has no links.")
    noun = "link" if result.total == 1 else "links"
    head = f"[{result.url}: {result.total} {noun}, list {result.page_number} of {result.pages}]"
    lines = (f"[{link.number}] {link.text or '(no text)'}: {link.url}" for link in result.links)
    return Text(head, "\n".join(lines), "use a smaller page_size")


LINES = 100
"""Lines of a window."""
_OVERLAP = 2
"""Lines that two windows share when scrolling."""
_HEAD = 1_000
"""Characters left for the observation's head."""
_MAX_OTHERS = 30


class PageView:
    """Looks at one page; moves `place`, which the state keeps."""

    def __init__(self, page: Page, place: OpenPage, characters: int) -> None:
        self._page = page
        self._place = place
        self._characters = max(400, characters - _HEAD)

    def show(self, first: int) -> PageWindow | Failed:
        """The window that begins at line `first`."""
        page = self._page
        total = len(page.lines)
        if first > max(1, total):
            return Failed(error=f"{page.url} has {total} lines; there is no line {first}.")
        last, content = self._window(first, first + LINES - 1)
        full = last < min(total, first + LINES - 1)
        notes = [*page.notes, *(["The window is full."] if full else [])]
        return PageWindow(
            url=page.url,
            title=page.title,
            first_line=first if total else 0,
            last_line=last if total else 0,
            total_lines=total,
            links=len(page.links),
            fetched_at=round(page.at, 3),
            content=content,
            notes=tuple(notes),
        )

    def down(self) -> PageWindow | Failed:
        """What follows the window."""
        if self._place.last >= len(self._page.lines):
            return Failed(error=f"Line {self._place.last} is the last of {self._page.url}.")
        return self.show(max(self._place.first + 1, self._place.last - _OVERLAP + 1))

    def up(self) -> PageWindow | Failed:
        """What precedes the window."""
        if self._place.first <= 1:
            return Failed(error=f"The window begins with the first line of {self._page.url}.")
        return self.show(max(1, self._place.first - LINES + _OVERLAP))

    def search(self, keyword: str, context: int) -> PageFinds:
        """The first find of a keyword."""
        self._place.keyword, self._place.find = keyword, 0
        return self._find(self._match_lines(), 1, context)

    def search_next(self, index: int, context: int) -> PageFinds | Failed:
        """Another find of the keyword before; 0 for the one after, from the last to the first."""
        if not self._place.keyword:
            return Failed(error="Nothing was searched in this page; web_page_search does.")
        finds = self._match_lines()
        if index > len(finds):
            lines = f"{self._place.keyword!r} stands in {len(finds)} lines"
            return Failed(error=f"{lines}; there is no find {index}.")
        after = self._place.find % len(finds) + 1 if finds else 0
        return self._find(finds, index or after, context)

    def links(self, size: int, number: int) -> PageLinks | Failed:
        """One list of the page's links."""
        links = self._page.links
        pages = max(1, -(-len(links) // size))
        if number > pages:
            return Failed(error=f"There are {pages} lists of {size} links; there is no {number}.")
        first = (number - 1) * size
        listed = tuple(
            PageLink(number=at, text=text, url=url)
            for at, (text, url) in enumerate(links[first : first + size], first + 1)
        )
        return PageLinks(
            url=self._page.url, total=len(links), page_number=number, pages=pages, links=listed
        )

    def _match_lines(self) -> list[int]:
        keyword = " ".join(self._place.keyword.split()).casefold() or self._place.keyword
        lines = enumerate(self._page.lines, 1)
        return [number for number, line in lines if keyword in line.casefold()]

    def _find(self, finds: list[int], index: int, context: int) -> PageFinds:
        page = self._page
        if not finds:
            return PageFinds(
                url=page.url,
                keyword=self._place.keyword,
                total_results=0,
                total_lines=len(page.lines),
            )
        self._place.find = index
        line = finds[index - 1]
        first = max(1, line - context)
        last, content = self._window(first, line + context)
        if last < line:  # long lines before it fill the window: the line itself comes first
            first = line
            last, content = self._window(first, line + context)
        return PageFinds(
            url=page.url,
            keyword=self._place.keyword,
            total_results=len(finds),
            search_index=index,
            line=line,
            others=tuple(finds[:_MAX_OTHERS]),
            first_line=first,
            last_line=last,
            total_lines=len(page.lines),
            content=content,
        )

    def _window(self, first: int, last: int) -> tuple[int, str]:
        """Lines `first` to `last` as far as there is room; the last one shown, and their text."""
        width = len(str(min(last, len(self._page.lines))))
        lines = self._page.lines[first - 1 : last]
        lines_shown = numbered_lines(lines, first, width, self._characters)
        end = first + len(lines_shown) - 1
        self._place.first, self._place.last = first, end
        return end, "\n".join(lines_shown)


def from_cache(window: PageWindow | Failed) -> PageWindow | Failed:
    """The window of a page that was not fetched now."""
    if isinstance(window, Failed):
        return window
    return msgspec.structs.replace(window, from_cache=True)


_PREFIX = "page-"


class PageStore:
    """The open page of one rollout. Its methods block; they run in a thread."""

    def __init__(self, folder: Path, state: Callable[[], WorkstationState]) -> None:
        self._folder = folder
        self._state = state
        self._known: tuple[str, Page] | None = None

    def open(self, page: Page) -> None:
        """Make `page` the open one."""
        digest = hashlib.sha256(msgspec.msgpack.encode(page)).hexdigest()[:32]
        name = _PREFIX + digest
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        web_page.write(self._folder / name, page)
        before = self._state().page
        for file in self._folder.glob(f"{_PREFIX}*"):
            # The one before stays: its state is replaced only after this call.
            if file.name != name and (before is None or file.name != before.file):
                file.unlink(missing_ok=True)
        self._known = (name, page)
        self._state().page = OpenPage(file=name)

    def now(self) -> tuple[Page, OpenPage] | None:
        """The open page and the place in it; None when none is open, or it was lost."""
        place = self._state().page
        if place is None:
            return None
        if self._known is None or self._known[0] != place.file:
            page = web_page.read(self._folder / place.file)
            if page is None:
                return None
            self._known = (place.file, page)
        return self._known[1], place
