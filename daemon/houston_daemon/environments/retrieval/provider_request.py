"""One bounded request to a provider over HTTP: time, size, patience, and failures with a code.

Knows no provider. The whole request, retries included, ends within the time given, even if the
server hangs, never stops sending or answers nonsense.
"""

import asyncio
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from houston_daemon.environments.retrieval.retrieval_protocol import SearchFailed
from houston_shared.backoff import RetryPolicy, parse_retry_after
from houston_shared.safe_text import safe

MAX_ANSWER_BYTES = 4_000_000
"""Most of an answer that is read; 100 hits are some 100 kB."""
_RETRY = RetryPolicy(attempts=3, first_wait=0.5, max_retry_after=math.inf)
_DETAIL = 200
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_CODES = {401: "unauthorized", 403: "unauthorized", 402: "quota", 429: "rate_limited"}
_CODES |= {432: "quota", 433: "quota"}  # Tavily: the plan's, and the pay-as-you-go limit


@dataclass(frozen=True, slots=True)
class Question:
    """What is sent."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str | int] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    """JSON of a POST."""


class _Passing(Exception):
    """A failure that may pass. after: seconds that the server asked to wait."""

    def __init__(self, failure: SearchFailed, after: float | None = None) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.after = after


async def answer(question: Question, seconds: float) -> dict[str, Any]:
    """The JSON object that the provider answers with. Raises SearchFailed.

    seconds: longest time for all of it. A status of 429 or 5xx and a broken connection are tried
    again, after the server's Retry-After where it fits into the time.
    """
    _check(question.url)
    end = time.monotonic() + seconds
    failure = SearchFailed("timeout", f"The search provider did not answer within {seconds:g} s.")
    try:
        async with asyncio.timeout(seconds), _client(question.url) as client:
            for attempt in range(1, _RETRY.attempts + 1):
                try:
                    return await _send_once(client, question)
                except _Passing as passing:
                    failure, wait = passing.failure, _RETRY.wait(attempt, passing.after)
                    if time.monotonic() + wait >= end:
                        break
                    await asyncio.sleep(wait if attempt < _RETRY.attempts else 0)
    except TimeoutError:
        pass  # what the last whole attempt said is more than that the time is over
    raise failure


def _check(url: str) -> None:
    """httpx finds some of this out only while it connects, each in a way of its own."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise SearchFailed("not_configured", "The address of the search provider is not valid.")


def _client(url: str) -> httpx.AsyncClient:
    host = urlsplit(url).hostname
    return httpx.AsyncClient(
        follow_redirects=False,  # an API that redirects is at another address than configured
        timeout=httpx.Timeout(None),  # one limit for all of it, above
        trust_env=host not in _LOOPBACK,
        verify=not url.startswith("http:"),
    )


async def _send_once(client: httpx.AsyncClient, question: Question) -> dict[str, Any]:
    try:
        async with client.stream(
            question.method,
            question.url,
            headers=dict(question.headers),
            params=dict(question.params),
            json=question.body,
        ) as response:
            body = await _body(response)
    except httpx.InvalidURL:
        raise SearchFailed(
            "not_configured", "The address of the search provider is not valid."
        ) from None
    except UnicodeError:  # httpx reads where an answer redirects to, whoever follows
        raise SearchFailed(
            "malformed", "The search provider redirects to something that is no address."
        ) from None
    except httpx.RequestError as problem:
        reason = type(problem).__name__
        failure = SearchFailed("unavailable", f"The search provider is not reached ({reason}).")
        raise _Passing(failure) from None
    if not response.is_success:
        raise _refusal(response, body)
    return _parse_answer(body)


async def _body(response: httpx.Response) -> bytes:
    parts, size = [], 0
    async for part in response.aiter_bytes():
        parts.append(part)
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise SearchFailed(
                "too_large", f"The search provider's answer is over {MAX_ANSWER_BYTES // 10**6} MB."
            )
    return b"".join(parts)


def _parse_answer(body: bytes) -> dict[str, Any]:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise SearchFailed("malformed", "The search provider's answer is not a JSON object.")
    return data


def _refusal(response: httpx.Response, body: bytes) -> Exception:
    status, detail = response.status_code, _detail(body)
    code = _CODES.get(status, "unavailable" if status >= 500 else "refused")
    sentence = {
        "unauthorized": "The search provider refused the key",
        "quota": "The search provider's quota is used up",
        "rate_limited": "The search provider wants fewer searches in a short time",
        "unavailable": "The search provider failed",
        "refused": "The search provider refused the search",
    }[code]
    after = parse_retry_after(response.headers.get("retry-after", ""))
    if code == "rate_limited" and after is not None:
        sentence += f"; try again in {math.ceil(after)} s"
    failure = SearchFailed(code, f"{sentence} (status {status}{f': {detail}' if detail else ''}).")
    passes = code in ("rate_limited", "unavailable")
    return _Passing(failure, after) if passes else failure


def _detail(body: bytes) -> str:
    """The sentence in an error body; providers nest it differently."""
    try:
        error: Any = json.loads(body)
    except (ValueError, RecursionError):
        return ""  # an error page is of no use to an agent
    for _ in range(3):
        if not isinstance(error, dict):
            break
        error = next((error[k] for k in ("message", "detail", "error") if k in error), "")
    return str(safe(error.strip().rstrip(".")[:_DETAIL])) if isinstance(error, str) else ""
