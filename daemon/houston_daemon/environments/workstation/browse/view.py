"""Windows of the open page: lines, finds and links. Touches no network and no file."""

import msgspec

from houston_daemon.environments.observation import Failed
from houston_daemon.environments.workstation.browse.observations import (
    PageFinds,
    PageLink,
    PageLinks,
    PageWindow,
)
from houston_daemon.environments.workstation.browse.page import Page
from houston_daemon.environments.workstation.state import OpenPage

LINES = 100
"""Lines of a window."""
_OVERLAP = 2
"""Lines that two windows share when scrolling."""
_HEAD = 1_000
"""Characters left for the observation's head."""
_MOST_OTHERS = 30


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
        return self._find(self._finds(), 1, context)

    def search_next(self, index: int, context: int) -> PageFinds | Failed:
        """Another find of the keyword before; 0 for the one after, from the last to the first."""
        if not self._place.keyword:
            return Failed(error="Nothing was searched in this page; web_page_search does.")
        finds = self._finds()
        if index > len(finds):
            error = f"{self._place.keyword!r} stands in {len(finds)} lines; there is no {index}th."
            return Failed(error=error)
        after = self._place.find % len(finds) + 1 if finds else 0
        return self._find(finds, index or after, context)

    def links(self, size: int, number: int) -> PageLinks | Failed:
        """One list of the page's links."""
        found = self._page.links
        pages = max(1, -(-len(found) // size))
        if number > pages:
            return Failed(error=f"There are {pages} lists of {size} links; there is no {number}.")
        first = (number - 1) * size
        listed = tuple(
            PageLink(number=at, text=text, url=url)
            for at, (text, url) in enumerate(found[first : first + size], first + 1)
        )
        return PageLinks(
            url=self._page.url, total=len(found), page_number=number, pages=pages, links=listed
        )

    def _finds(self) -> list[int]:
        wanted = " ".join(self._place.keyword.split()).casefold() or self._place.keyword
        lines = enumerate(self._page.lines, 1)
        return [number for number, line in lines if wanted in line.casefold()]

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
            others=tuple(finds[:_MOST_OTHERS]),
            first_line=first,
            last_line=last,
            total_lines=len(page.lines),
            content=content,
        )

    def _window(self, first: int, last: int) -> tuple[int, str]:
        """Lines `first` to `last` as far as there is room; the last one shown, and their text."""
        width = len(str(min(last, len(self._page.lines))))
        shown: list[str] = []
        room = self._characters
        for number, line in enumerate(self._page.lines[first - 1 : last], first):
            text = f"{number:>{width}} {line}"
            room -= len(text) + 1
            if room < 0 and shown:
                break
            shown.append(text[: self._characters])
        end = first + len(shown) - 1
        self._place.first, self._place.last = first, end
        return end, "\n".join(shown)


def from_cache(window: PageWindow | Failed) -> PageWindow | Failed:
    """The window of a page that was not fetched now."""
    if isinstance(window, Failed):
        return window
    return msgspec.structs.replace(window, from_cache=True)
