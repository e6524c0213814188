"""The seven browse actions: their arguments, bounds and one-line descriptions."""

from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments.arguments import Arguments

Line = Annotated[int, Meta(ge=1, le=1_000_000_000, description="Line number, from 1.")]
Context = Annotated[
    int, Meta(ge=0, le=100, description="Lines shown before and after the line found.")
]


class BrowseAction(Arguments, frozen=True, kw_only=True):
    """Base of the browse actions."""

    family: ClassVar[str] = "browse"


class WebBrowse(BrowseAction, frozen=True, kw_only=True):
    """Open a web page, PDF or text by its address."""

    name: ClassVar[str] = "web_browse"
    url: Annotated[str, Meta(min_length=1, max_length=2_000, description="Address, http or https.")]
    line_number: Line = 1


class WebPageGotoLine(BrowseAction, frozen=True, kw_only=True):
    """Show the open page from a line on."""

    name: ClassVar[str] = "web_page_goto_line"
    line_number: Line


class WebPageScrollDown(BrowseAction, frozen=True, kw_only=True):
    """Show its next lines."""

    name: ClassVar[str] = "web_page_scroll_down"


class WebPageScrollUp(BrowseAction, frozen=True, kw_only=True):
    """Show its lines before."""

    name: ClassVar[str] = "web_page_scroll_up"


class WebPageSearch(BrowseAction, frozen=True, kw_only=True):
    """Find text in the open page."""

    name: ClassVar[str] = "web_page_search"
    keyword: Annotated[
        str,
        Meta(min_length=1, max_length=200, description="Literal text; case does not matter."),
    ]
    context_lines: Context = 5


class WebPageSearchNext(BrowseAction, frozen=True, kw_only=True):
    """Show the next find, or another."""

    name: ClassVar[str] = "web_page_search_next"
    context_lines: Context = 5
    search_index: Annotated[
        int, Meta(ge=0, le=1_000_000, description="Which find to show, from 1; 0 for the next.")
    ] = 0


class WebPageGetLinks(BrowseAction, frozen=True, kw_only=True):
    """List its links; [n] in the text is link n."""

    name: ClassVar[str] = "web_page_get_links"
    page_size: Annotated[int, Meta(ge=1, le=200, description="Links in one list.")] = 50
    page_number: Annotated[int, Meta(ge=1, le=1_000_000, description="Which list, from 1.")] = 1


BROWSE_ACTIONS: tuple[type[BrowseAction], ...] = (
    WebBrowse,
    WebPageGotoLine,
    WebPageScrollDown,
    WebPageScrollUp,
    WebPageSearch,
    WebPageSearchNext,
    WebPageGetLinks,
)
