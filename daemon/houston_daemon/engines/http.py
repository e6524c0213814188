"""What every engine behind HTTP shares: clients, bounded retries, server-sent events, interruption.

It knows no endpoint. A failure that may pass is `Transient` here and becomes EngineUnavailable when
the retries are spent; every other refusal is EngineRefused at once.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from houston_daemon.engines.protocol import EngineRefused, EngineUnavailable
from houston_shared.faults import point

Answer = TypeVar("Answer")
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, slots=True)
class Retry:
    """How long a request is tried again."""

    attempts: int = 6
    """Requests in all."""
    first: float = 0.25
    """Seconds before the second one; doubled each time, with up to a quarter of chance added."""
    longest: float = 8.0
    """Longest wait of our own choosing, in seconds."""
    longest_asked: float = 60.0
    """Longest wait that a server's Retry-After is given, in seconds."""

    def wait(self, failed: int, asked: float | None) -> float:
        """Seconds to wait after `failed` attempts."""
        if asked is not None:
            return min(asked, self.longest_asked)
        return min(self.first * 2.0 ** (failed - 1), self.longest) * random.uniform(1, 1.25)


class Transient(Exception):
    """A failure that may pass. after: seconds that the server asked to wait."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


def client(url: str, api_key: str, read_seconds: float) -> httpx.AsyncClient:
    """Return a client for a base URL, or for `unix:/path` of a socket file.

    read_seconds: longest silence of a server that is at work (a long prompt is silent).
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    timeout = httpx.Timeout(read_seconds, connect=5.0, write=60.0, pool=60.0)
    if url.startswith("unix:"):
        transport = httpx.AsyncHTTPTransport(uds=url.removeprefix("unix:").removeprefix("//"))
        return httpx.AsyncClient(
            transport=transport, base_url="http://engine", headers=headers, timeout=timeout
        )
    return httpx.AsyncClient(
        base_url=url.rstrip("/"),
        headers=headers,
        timeout=timeout,
        # No proxy stands between us and our own machine; certificates matter to https only.
        trust_env=urlsplit(url).hostname not in _LOOPBACK,
        verify=not url.startswith("http:"),
    )


async def with_retries(
    name: str, once: Callable[[], Awaitable[Answer]], stop: asyncio.Event, retry: Retry
) -> Answer | None:
    """Return what `once` returns, trying again while it raises Transient.

    None when `stop` was set while waiting. Raises EngineUnavailable when the attempts are spent.
    """
    for failed in range(1, retry.attempts + 1):
        try:
            point("worker.request.before")
            return await once()
        except (Transient, httpx.TransportError) as problem:
            reason = str(problem) or type(problem).__name__
            after = problem.after if isinstance(problem, Transient) else None
        if failed < retry.attempts and await is_set_within(stop, retry.wait(failed, after)):
            return None
    raise EngineUnavailable(
        f"Engine {name} did not answer in {retry.attempts} attempts: {reason}.",
        "Nothing was sampled.",
        "See `houston daemon status` and the engine's log.",
    )


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait up to `seconds`; return whether the event is set."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return event.is_set()
    return True


async def finished_before(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work` until it ends or `stop` is set; return whether it ended.

    Work that is cut short is cancelled, which closes its connection: the server stops sampling.
    """
    task = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        stopping.cancel()
        task.cancel()
        await asyncio.gather(task, stopping, return_exceptions=True)


async def events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON objects of a server-sent event stream up to `[DONE]`.

    Raises Transient or EngineRefused for an error that the server reports within the stream.
    """
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError) as problem:
            raise Transient(f"it sent a line that is no JSON: {data[:80]!r}") from problem
        if not isinstance(event, dict):
            raise Transient(f"it sent a line that is no JSON object: {data[:80]!r}")
        if error := event.get("error"):
            raise _in_stream(error)
        yield event


async def check(response: httpx.Response) -> None:
    """Return for a success. Raises Transient for 408, 409, 425, 429 and 5xx, else EngineRefused."""
    if response.is_success:
        return
    body = (await response.aread()).decode(errors="replace")
    raise failure(response.status_code, _message(body), _after(response))


def failure(status: int, message: str, after: float | None = None) -> Exception:
    """Return the exception for an HTTP status."""
    if status >= 500 or status in (408, 409, 425, 429):
        return Transient(f"it answered {status}: {message}", after)
    return EngineRefused(
        f"The engine refused the request with {status}: {message}.", "Nothing was sampled."
    )


def _after(response: httpx.Response) -> float | None:
    try:
        return max(0.0, float(response.headers["retry-after"]))
    except (KeyError, ValueError):  # absent, or a date: then our own backoff decides
        return None


def _in_stream(error: Any) -> Exception:
    """The failure that a server tells of in the middle of its answer, in a form of its own."""
    told = error if isinstance(error, dict) else {}
    code = str(told.get("code"))
    return failure(
        int(code) if code.isdecimal() and len(code) == 3 else 500,
        str(told.get("message", error))[:600],
    )


def _message(body: str) -> str:
    """The sentence in an error body: vLLM, OpenAI and plain text differ."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return body.strip()[:300] or "no reason given"
    error = data.get("error", data) if isinstance(data, dict) else data
    message = error.get("message", error) if isinstance(error, dict) else error
    return str(message).strip().rstrip(".")[:600]
