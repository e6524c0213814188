"""One server: started or connected, asked for its tools, called; restarted when it has died.

Its output is bounded in size, over HTTP too, and its last lines on stderr are kept.
"""

import asyncio
import contextlib
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TextIO

import httpx2
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import (
    CONNECTION_CLOSED,
    REQUEST_TIMEOUT,
    CallToolResult,
    ToolListChangedNotification,
)

from houston_daemon.environments.foreign_tools import OfferedTool
from houston_daemon.environments.mcp.mcp_relay import LONGEST
from houston_daemon.environments.observation_boundary import one_line
from houston_shared.task_tables import McpServerSettings

_PLAIN = ("", "identity")


async def bound_answers(response: httpx2.Response) -> None:
    """A hook of the client: let the body end in an error after `mcp_relay.LONGEST` bytes."""
    if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        return
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    packed = response.headers.get("content-encoding", "").strip().lower() not in _PLAIN
    response.stream = _BoundedAnswer(response.stream, packed)


class _BoundedAnswer(httpx2.AsyncByteStream):
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


_KEPT = 4_000
"""Characters."""


class StderrTail(asyncio.Protocol):
    """A pipe that is read as long as it is open; the end of what came is kept."""

    def __init__(self) -> None:
        self._read_end, write_end = os.pipe()
        self.file: TextIO = os.fdopen(write_end, "w")
        self._kept = b""
        self._transport: asyncio.ReadTransport | None = None

    async def begin(self) -> None:
        """Read from now on."""
        loop = asyncio.get_running_loop()
        reading = os.fdopen(self._read_end, "rb")
        self._transport, _ = await loop.connect_read_pipe(lambda: self, reading)

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        self._kept = (self._kept + data)[-_KEPT:]

    @property
    def words(self) -> str:
        """What was written last."""
        return self._kept.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Let go of the pipe."""
        self.file.close()
        if self._transport is not None:
            self._transport.close()


log = logging.getLogger(__name__)
# The SDK logs a traceback for each line that is no message: a server could fill the disk with it.
logging.getLogger("mcp").setLevel(logging.CRITICAL)
_RELAY = "houston_daemon.environments.mcp.mcp_relay"
_PAGES = 20
_FRESH_SECONDS = 10.0
"""A list of tools that is older is asked for again after a call."""
_LEAVING_SECONDS = 8.0
"""The SDK gives a server two seconds to end, twice."""

ServerCommand = Callable[[], Awaitable[list[str]]]
"""The argument list that starts the server, made anew each time."""


class ServerFailed(Exception):
    """A server gave no result; the text is for the agent."""


class Connection:
    """One server of one rollout."""

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        started: ServerCommand,
        headers: Mapping[str, str],
    ):
        self.name = name
        self.instructions = ""
        self._settings = settings
        self._started = started
        self._headers = dict(headers)
        self._client: Client | None = None
        self._session_task: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._opening = asyncio.Lock()
        self._listed = 0.0
        self._stderr = ""

    @property
    def stale(self) -> bool:
        """Whether its list of tools may have changed since it was asked for."""
        return time.monotonic() - self._listed > _FRESH_SECONDS

    async def tools(self) -> list[OfferedTool]:
        """Its tools as they are now. Raises ServerFailed."""
        tools: list[OfferedTool] = []
        async with self._speaking(self._settings.start_seconds) as client:
            cursor = None
            for _ in range(_PAGES):
                page = await client.list_tools(cursor=cursor, cache_mode="refresh")
                tools += [
                    OfferedTool(
                        self.name, listed.name, listed.description or "", listed.input_schema
                    )
                    for listed in page.tools
                ]
                cursor = page.next_cursor
                if cursor is None:
                    break
        self._listed = time.monotonic()
        return tools

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> CallToolResult:
        """Call a tool; cancelling tells the server. Raises ServerFailed."""
        async with self._speaking(self._settings.seconds) as client:
            return await client.call_tool(tool, dict(arguments))

    async def close(self) -> None:
        """End the connection, and the server where it was started here."""
        self._leave.set()
        if self._session_task is not None:
            if self._client is not None:  # else it waits for the server, and hears nothing
                await asyncio.wait({self._session_task}, timeout=_LEAVING_SECONDS)
            self._session_task.cancel()
            await asyncio.gather(self._session_task, return_exceptions=True)
        self._client = self._session_task = None

    @contextlib.asynccontextmanager
    async def _speaking(self, seconds: float) -> AsyncIterator[Client]:
        """The client, for one exchange of at most so many seconds."""
        client = await self._connected()
        try:
            async with asyncio.timeout(seconds):
                yield client
        except MCPError as problem:
            if problem.code == CONNECTION_CLOSED:
                await self._raise_server_died()
            if problem.code == REQUEST_TIMEOUT:
                raise self._timeout_error(seconds) from None
            raise ServerFailed(
                f"The server {self.name} refused: {one_line(problem.message)}"
            ) from None
        except TimeoutError:
            raise self._timeout_error(seconds) from None
        except ValueError as problem:  # pydantic's: an answer that is none
            log.warning("server %s: %s", self.name, problem)
            raise ServerFailed(
                f"The server {self.name} gave an answer that the protocol does not know; whether"
                " the call had its effect is unknown."
            ) from None
        except (OSError, RuntimeError, ExceptionGroup) as problem:
            log.warning("server %s: %s", self.name, problem)
            await self._raise_server_died()

    async def _raise_server_died(self) -> None:
        await self.close()  # which reads its last words
        log.warning("the server %s has ended: %s", self.name, self._stderr or "no word")
        raise ServerFailed(
            f"The server {self.name} ended or the connection to it broke; whether the call had its"
            " effect is unknown. The next call starts it anew, without what it had in memory."
        )

    def _timeout_error(self, seconds: float) -> ServerFailed:
        return ServerFailed(
            f"The server {self.name} did not answer within {seconds:g} s; the call was cancelled,"
            " and whether it had its effect is unknown."
        )

    async def _connected(self) -> Client:
        async with self._opening:
            if self._client is not None:
                return self._client
            self._leave = asyncio.Event()
            ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
            self._session_task = asyncio.create_task(self._live(ready), name=f"mcp {self.name}")
            try:
                async with asyncio.timeout(self._settings.start_seconds):
                    self._client = await asyncio.shield(ready)
            except TimeoutError:
                await self.close()
                raise ServerFailed(
                    f"The server {self.name} did not start within"
                    f" {self._settings.start_seconds:g} s."
                ) from None
            except asyncio.CancelledError:
                await self.close()
                raise
            self.instructions = one_line(self._client.instructions, 2_000)
            return self._client

    async def _live(self, ready: asyncio.Future[Client]) -> None:
        """Hold the connection open until it is to be left."""
        try:
            async with (
                self._transport() as transport,
                Client(transport, message_handler=self._handle_notification) as client,
            ):
                ready.set_result(client)
                await self._leave.wait()
        except Exception as problem:  # noqa: BLE001 whatever a server, or the SDK, raises
            log.warning("server %s: %r %s", self.name, problem, self._stderr)
            if not ready.done():
                ready.set_exception(ServerFailed(f"The server {self.name} cannot be reached."))
        finally:
            if not ready.done():
                ready.cancel()
            self._client = None

    @contextlib.asynccontextmanager
    async def _transport(self) -> AsyncIterator[Any]:
        if self._settings.url:
            plain = {"Accept-Encoding": "identity"}
            async with create_mcp_http_client(headers={**self._headers, **plain}) as http:
                http.event_hooks = {"response": [bound_answers]}
                yield streamable_http_client(self._settings.url, http_client=http)
            return
        words = ["-P", "-m", _RELAY, str(os.getpid()), *await self._started()]
        tail = StderrTail()
        try:
            await tail.begin()
            yield stdio_client(StdioServerParameters(command=sys.executable, args=words), tail.file)
        finally:
            self._stderr = tail.words
            tail.close()

    async def _handle_notification(self, message: Any) -> None:
        if isinstance(message, ToolListChangedNotification):
            self._listed = 0.0
