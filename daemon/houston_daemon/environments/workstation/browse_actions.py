"""The browse actions: one page is open at a time; what cannot be had is an observation."""

import asyncio
import time
from pathlib import Path

import msgspec

from houston_daemon.environments.call_handling import CallInterrupted, cancel_on_stop
from houston_daemon.environments.environment_protocol import Stop
from houston_daemon.environments.retrieval.retrieval_protocol import SearchFailed
from houston_daemon.environments.retrieval.searcher import Searcher
from houston_daemon.environments.tool_arguments import Arguments
from houston_daemon.environments.typed_observation import Failed, Observation
from houston_daemon.environments.workstation.document_converter import Converter, Unreadable
from houston_daemon.environments.workstation.page_view import (
    PageStore,
    PageView,
    PageWindow,
    from_cache,
)
from houston_daemon.environments.workstation.web_fetch import (
    Fetched,
    Fetcher,
    FetchFailed,
    normal_url,
)
from houston_daemon.environments.workstation.web_page import Page, PageCache, readable_page
from houston_daemon.environments.workstation_actions import (
    BROWSE_ACTIONS,
    WebBrowse,
    WebPageGetLinks,
    WebPageGotoLine,
    WebPageScrollDown,
    WebPageScrollUp,
    WebPageSearch,
    WebPageSearchNext,
)


class BrowseActions:
    """Actions on web pages."""

    actions: tuple[type[Arguments], ...] = BROWSE_ACTIONS

    def __init__(
        self,
        fetcher: Fetcher,
        cache: PageCache,
        store: PageStore,
        converter: Converter,
        searcher: Searcher,
        staging: Path,
        characters: int,
    ) -> None:
        """searcher: whose corpus, if it has one, holds what stands under its addresses."""
        self._fetcher = fetcher
        self._cache = cache
        self._store = store
        self._converter = converter
        self._searcher = searcher
        self._staging = staging
        self._characters = characters

    async def act(self, arguments: Arguments, stop: Stop) -> Observation:
        """Run one action."""
        if isinstance(arguments, WebBrowse):
            return await self._browse(arguments, stop)
        return await asyncio.to_thread(self._look, arguments)

    async def _browse(self, call: WebBrowse, stop: Stop) -> Observation:
        try:
            page = await cancel_on_stop(self._of_corpus(call.url), stop)
            if page is not None:
                return await asyncio.to_thread(self._opened, page, call.line_number)
            address = normal_url(call.url)
            page = await asyncio.to_thread(self._cache.find, address)
            if page is not None:
                return from_cache(await asyncio.to_thread(self._opened, page, call.line_number))
            page = await cancel_on_stop(self._page(address), stop)
        except (FetchFailed, Unreadable, SearchFailed, CallInterrupted) as problem:
            return Failed(error=f"{call.url[:200]}: {problem}")
        return await asyncio.to_thread(self._opened, page, call.line_number)

    async def _of_corpus(self, address: str) -> Page | None:
        """A document of the corpus that web_search looks in; None where it has no such address."""
        document = await self._searcher.document(address)
        if document is None:
            return None
        body = document.text.encode()
        fetched = Fetched(address, "text/plain", "utf-8", body, "", time.time())
        page = await readable_page(fetched, self._converter, self._staging)
        return msgspec.structs.replace(page, title=document.title)

    async def _page(self, address: str) -> Page:
        fetched = await self._fetcher.get(address)
        page = await readable_page(fetched, self._converter, self._staging)
        if not fetched.cut:
            await asyncio.to_thread(self._cache.keep, address, page)
        return page

    def _opened(self, page: Page, line: int) -> PageWindow | Failed:
        self._store.open(page)
        view = self._view()
        assert view is not None
        return view.show(line)

    def _look(self, arguments: Arguments) -> Observation:
        view = self._view()
        if view is None:
            return Failed(error="No page is open; web_browse opens one.")
        match arguments:
            case WebPageGotoLine():
                return view.show(arguments.line_number)
            case WebPageScrollDown():
                return view.down()
            case WebPageScrollUp():
                return view.up()
            case WebPageSearch():
                return view.search(arguments.keyword, arguments.context_lines)
            case WebPageSearchNext():
                return view.search_next(arguments.search_index, arguments.context_lines)
            case WebPageGetLinks():
                return view.links(arguments.page_size, arguments.page_number)
        raise TypeError(f"no such action: {arguments.name}")

    def _view(self) -> PageView | None:
        opened = self._store.now()
        return PageView(*opened, self._characters) if opened else None
