"""What all engines behind HTTP share: clients, bounded retries, server-sent events, interruption.

It knows no endpoint, only the wording of their refusals. A failure that may pass is retried and
becomes EngineUnavailable when the retries are used up; a prompt that is too long becomes
ContextOverflow, and every other refusal EngineRefused, without a retry.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from houston_daemon.engines.engine_protocol import (
    ContextOverflow,
    EngineRefused,
    EngineUnavailable,
    EngineUsage,
    FinishReason,
)
from houston_shared.backoff import RetryPolicy, parse_retry_after
from houston_shared.faults import point

Answer = TypeVar("Answer")
_LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
_CONTEXT_TOO_LONG = re.compile(
    r"context[_ ](length|window|size)[_ ]?(limit )?(is )?exceeded"
    r"|exceed(s|ed|ing)?_?( the| this| your)?( model'?s?| available| maximum| token)*_?\s?context"
    r"|maximum (context|prompt|model) length|model'?s (maximum )?context length"
    r"|context[_ ](length|window|size)( limit)? (of|is|exceeds) "
    r"|(prompt|input|context)( is| length is| was)? too (long|large)|prompt exceeds max length"
    r"|(input|prompt|request|messages?)\b.{0,80}\b(exceeds?|exceeded|(longer|greater|larger) than)"
    r"\b.{0,60}\b(context|tokens?( allowed)?|model length|token limit)\b"
    r"|exceeded model token limit|too many (input |prompt )?tokens\b|range of input length"
    r"|reduce the length of the (messages|prompt|input)|inputs?`? tokens \+|tokens_limit_reached"
    r"|inputs?`? must have less than \d+ tokens|request_too_large",
    re.IGNORECASE | re.DOTALL,
)
"""How endpoints say that a prompt is longer than their window."""
_ACCOUNT_SPENT = re.compile(
    r"insufficient[_ ](quota|balance|funds|credits?)|exceeded your current quota|billing"
    r"|credit balance|quota[_ ]exceeded|out of credits|payment",
    re.IGNORECASE,
)
"""How endpoints say that an account is empty, which waiting a little does not mend."""
_NON_PROMPT_STATUSES = frozenset({401, 402, 403, 404, 408, 409, 425, 429})
"""Whatever they say besides, these are about no prompt."""

STREAM_END_SECONDS = 1.0
"""How long a stream may stay open after its last event."""
CONNECTIONS = 100
"""Requests of one client at the same time; others wait."""
IDLE_SECONDS = 4.0
"""How long a connection is kept for the next request: uvicorn, and so vLLM, closes it after 5."""


_GIVEN_UP = ("abort", "error")
"""How servers end a sample that is not whole: vLLM and SGLang when they shut down or are paused."""


class TransientFailure(Exception):
    """A failure that may pass. after: seconds that the server asked to wait."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class ConnectionSettings(TypedDict):
    """Whether an httpx client uses the environment's settings, and whether it checks
    certificates."""

    trust_env: bool
    verify: bool


def connection_settings(url: str) -> ConnectionSettings:
    """Settings of every connection to an engine's server, from its workers as from its watch.

    No proxy is used for our own machine; certificates, slow to read, matter only to https.
    """
    own_machine = urlsplit(url).hostname in _LOOPBACK_HOSTS
    return {"trust_env": not own_machine, "verify": not url.startswith("http:")}


def lacks_version(url: str) -> bool:
    """Whether an address names no version of an API, as `/v1` does."""
    return url.startswith("http") and re.search(r"/v\d", urlsplit(url).path) is None


def has_proxy(url: str) -> bool:
    """Whether the environment names a proxy for an address."""
    parts = urlsplit(url)
    proxies = getproxies()
    named = parts.scheme in proxies or "all" in proxies
    return connection_settings(url)["trust_env"] and named and not proxy_bypass(parts.netloc)


def make_http_client(
    url: str, api_key: str, read_seconds: float, more: Mapping[str, str] | None = None
) -> httpx.AsyncClient:
    """Return a client for a base URL, or for `unix:/path` of a socket file.

    read_seconds: longest silence of a server that is at work (a long prompt is silent).
    more: further headers of each request; they win.
    """
    bearer = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    headers = httpx.Headers(bearer)
    headers.update(more or {})
    timeout = httpx.Timeout(read_seconds, connect=5.0, write=60.0, pool=60.0)
    limits = httpx.Limits(
        max_connections=CONNECTIONS,
        max_keepalive_connections=CONNECTIONS,
        keepalive_expiry=IDLE_SECONDS,
    )
    if url.startswith("unix:"):
        place = url.removeprefix("unix:").removeprefix("//")
        transport = httpx.AsyncHTTPTransport(uds=place, limits=limits)
        return httpx.AsyncClient(
            transport=transport, base_url="http://engine", headers=headers, timeout=timeout
        )
    return httpx.AsyncClient(
        base_url=url.rstrip("/"),
        headers=headers,
        timeout=timeout,
        limits=limits,
        **connection_settings(url),
    )


async def with_retries(
    name: str,
    attempt: Callable[[], Awaitable[Answer]],
    stop: asyncio.Event,
    retry: RetryPolicy,
    waiting: Callable[[], AbstractContextManager[None]],
) -> Answer | None:
    """Return what `attempt` returns, trying again while it raises TransientFailure.

    waiting: entered while nothing is asked (`SampleRequest.waiting`). None when `stop` was set
    meanwhile. Raises EngineUnavailable when the attempts are spent.
    """
    for failed in range(1, retry.attempts + 1):
        try:
            point("worker.request.before")
            return await attempt()
        except (TransientFailure, httpx.RequestError) as problem:
            reason = str(problem) or type(problem).__name__
            after = problem.after if isinstance(problem, TransientFailure) else None
        if failed < retry.attempts:
            with waiting():
                if await wait_until_set(stop, retry.wait(failed, after)):
                    return None
    times = f" in {retry.attempts} attempts" if retry.attempts > 1 else ""
    error = EngineUnavailable(
        f"Engine {name} did not answer{times}: {reason}.",
        "Nothing was sampled.",
        "See `houston daemon status` and the engine's log.",
    )
    error.after = after
    raise error


async def wait_until_set(event: asyncio.Event, seconds: float) -> bool:
    """Wait up to `seconds`; return whether the event is set."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return event.is_set()
    return True


async def run_unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
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


@dataclass(slots=True)
class PartialAnswer:
    """What the events of one answer have brought so far; each engine adds its own fields."""

    text: list[str] = field(default_factory=list)
    finish: str = ""
    """The server's word for why it ended; empty while it has not."""
    usage: EngineUsage = field(default_factory=EngineUsage)

    def finish_reason(self, ended: bool) -> FinishReason:
        """Why the sample ended. ended: whether the request ended; otherwise it was stopped."""
        if not ended:
            return "interrupted"
        return "length" if self.finish == "length" else "stop"

    async def read(self, events: AsyncIterator[Mapping[str, Any]]) -> None:
        """Add all events. Raises TransientFailure for odd ones, and for an answer without an end or
        one that the server gave up."""
        async for event in events:
            try:
                self._add_event(event)
            except (AttributeError, TypeError, ValueError) as problem:
                raise TransientFailure(f"it sent an event of another form: {problem}") from problem
        if not self.finish:
            raise TransientFailure("the stream ended before the sample did")
        if self.finish in _GIVEN_UP:
            raise TransientFailure(f"it aborted the sample ({self.finish})")

    def _add_event(self, event: Mapping[str, Any]) -> None:
        if usage := event.get("usage"):
            self.usage = EngineUsage.read(usage)
        for choice in event.get("choices") or ():
            self._add_choice(choice)
            self.finish = choice.get("finish_reason") or self.finish

    def _add_choice(self, choice: Mapping[str, Any]) -> None:
        raise NotImplementedError


async def read_events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Yield the JSON objects of a server-sent event stream up to `[DONE]`.

    Raises TransientFailure or EngineRefused for an error that the server reports within the stream.
    """
    lines = _lines(response)
    async for line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            await _read_to_end(lines)
            return
        try:
            event = json.loads(data)
        except (ValueError, RecursionError) as problem:
            raise TransientFailure(f"it sent a line that is not JSON: {data[:80]!r}") from problem
        if not isinstance(event, dict):
            raise TransientFailure(f"it sent a line that is not a JSON object: {data[:80]!r}")
        if error := event.get("error"):
            raise _stream_failure(error)
        yield event


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """Lines of an event stream. Those of httpx end at U+2028 and its like, too, which servers write
    into their JSON as they are."""
    rest = b""
    async for data in response.aiter_bytes():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.decode(errors="replace")
    yield rest.decode(errors="replace")


async def _read_to_end(lines: AsyncIterator[str]) -> None:
    """Nothing more is said, but only a connection that was read to its end is used again. A server
    that leaves it open is not waited for."""
    with contextlib.suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(STREAM_END_SECONDS):
            async for _ in lines:
                pass


async def read_whole_answer(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Yield the one JSON object of an answer that is no stream; raises as `read_events` does."""
    body = await response.aread()
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise TransientFailure(f"its answer is not JSON: {body[:80]!r}") from problem
    if not isinstance(answer, dict):
        raise TransientFailure(f"its answer is not a JSON object: {body[:80]!r}")
    if error := answer.get("error"):
        raise _stream_failure(error)
    yield answer


async def raise_for_failure(response: httpx.Response) -> None:
    """Return for a success; raise TransientFailure, ContextOverflow or EngineRefused."""
    if response.is_success:
        if response.headers.get("content-type", "").startswith("text/html"):
            # A gateway's page while it starts, or an address that is none of the API.
            raise TransientFailure(f"it sent an HTML page, no answer: is {response.url} its API?")
        return
    body = (await response.aread()).decode(errors="replace")
    raise failure_of_status(
        response.status_code,
        *error_sentence(body),
        parse_retry_after(response.headers.get("retry-after", "")),
    )


def failure_of_status(
    status: int, message: str, code: str = "", after: float | None = None
) -> Exception:
    """Return the exception for an HTTP status. code: the endpoint's own error code."""
    words = f"{message} {code}"
    cause = f"The engine refused the request with {status}: {message}."
    if status == 413 or (status not in _NON_PROMPT_STATUSES and _CONTEXT_TOO_LONG.search(words)):
        return ContextOverflow(cause, "Nothing was sampled.", status=status)
    spent = status in (400, 429) and _ACCOUNT_SPENT.search(words)
    if not spent and (status >= 500 or status in (408, 409, 425, 429)):
        return TransientFailure(f"it answered {status}: {message}", after)
    return EngineRefused(cause, "Nothing was sampled.", status=status)


def _stream_failure(error: Any) -> Exception:
    """The failure that a server tells of in the middle of its answer, in a form of its own."""
    message, code = _error_words(error)
    number = str(error.get("code")) if isinstance(error, dict) else ""
    if number.isdecimal() and len(number) == 3:
        return failure_of_status(int(number), message, code)
    return failure_of_status(
        429 if _ACCOUNT_SPENT.search(f"{message} {code}") else 500, message, code
    )


def error_sentence(body: str) -> tuple[str, str]:
    """The sentence in an error body, and its code: vLLM, OpenAI, FastAPI and plain text differ."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return body.strip()[:300] or "no reason given", ""
    if not isinstance(data, dict):
        return _error_words(data)
    return _error_words(data.get("error") or data.get("detail") or data)


def _error_words(error: Any) -> tuple[str, str]:
    """What an error says, and what it is called."""
    fields = error if isinstance(error, dict) else {}
    message = str(fields.get("message") or error).strip().rstrip(".")[:600]
    return message, f"{fields.get('code') or ''} {fields.get('type') or ''}".strip()
