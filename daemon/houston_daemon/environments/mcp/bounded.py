"""The size of what a server says over HTTP: a plain JSON answer is held whole by the SDK.

Streams of events are not bounded here: the SDK bounds each of their events. Knows no messages.
"""

from collections.abc import AsyncIterator

import httpx2

from houston_daemon.environments.mcp.relay import LONGEST

_PLAIN = ("", "identity")


async def bound(response: httpx2.Response) -> None:
    """A hook of the client: let the body end in an error after `relay.LONGEST` bytes."""
    if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        return
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    packed = response.headers.get("content-encoding", "").strip().lower() not in _PLAIN
    response.stream = _Bounded(response.stream, packed)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, parts: httpx2.AsyncByteStream, packed: bool) -> None:
        self._parts = parts
        self._packed = packed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._packed:  # a few bytes of it could be any number of bytes
            raise httpx2.StreamError("the answer is compressed, which was not asked for")
        length = 0
        async for part in self._parts:
            length += len(part)
            if length > LONGEST:
                raise httpx2.StreamError(f"the answer has more than {LONGEST >> 20} MB")
            yield part

    async def aclose(self) -> None:
        await self._parts.aclose()
