"""Asking a provider page after page until there are enough hits, or no new ones."""

import time
from collections.abc import Awaitable, Callable

from houston_daemon.environments.retrieval.protocol import Hit, SearchFailed

_MOST_PAGES = 10


async def pages(
    page: Callable[[int, float], Awaitable[list[Hit]]], top_k: int, seconds: float, size: int = 1
) -> list[Hit]:
    """At most `top_k` hits with different addresses.

    page: the hits of a page (from 0) within so many seconds. What the first page gives is never
    lost: a later one that fails ends the asking. size: a page with fewer hits is the last.
    Raises SearchFailed when the first one fails.
    """
    end = time.monotonic() + seconds
    found: dict[str, Hit] = {}
    for number in range(_MOST_PAGES):
        left = end - time.monotonic()
        if number and left <= 0:
            break
        try:
            given = await page(number, max(left, 0.01))
        except SearchFailed:
            if number == 0:
                raise
            break
        fresh = {one.url: one for one in given if one.url not in found}
        found.update(fresh)
        if len(found) >= top_k or not fresh or len(given) < size:
            break
    return list(found.values())[:top_k]
