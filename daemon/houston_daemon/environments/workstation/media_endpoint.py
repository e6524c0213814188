"""The OpenAI-compatible endpoint for audio and pictures: two requests, retried where that helps.

`/audio/transcriptions` takes a file, `/chat/completions` takes pictures as data addresses. Knows no
files and no agent; a request is bounded in time and its answer in size.
"""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import httpx
import msgspec

from houston_shared.backoff import RetryPolicy, parse_retry_after
from houston_shared.config_sections import MultimodalSettings

_RETRY = RetryPolicy(attempts=3, first_wait=0.5, max_wait=10.0, max_retry_after=10.0)
_AGAIN = frozenset({408, 409, 429, 500, 502, 503, 504})
_MAX_ANSWER_BYTES = 4_000_000
_QUOTED = 300


class NoEndpointAnswer(Exception):
    """The endpoint gave no answer; the text is for the agent."""


class Picture(NamedTuple):
    """One picture for a model."""

    kind: str
    """Its media type, `image/png`."""
    data: bytes


class Endpoint:
    """Requests to the node's multimodal endpoint."""

    def __init__(self, settings: MultimodalSettings, key: str) -> None:
        self._settings = settings
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    @property
    def missing(self) -> str:
        """Why there is no endpoint to ask, in words; empty where there is one."""
        if self._settings.url:
            return ""
        return (
            "This node has no endpoint for sound and pictures; the operator can name one in "
            "houston.toml: [tools.multimodal] url, model, audio_model. Go on without it."
        )

    async def transcribe(self, name: str, data: bytes, model: str) -> str:
        """The speech in a sound file. Raises NoEndpointAnswer."""
        answer = await self._ask(
            "/audio/transcriptions",
            data={"model": model or self._settings.audio_model, "response_format": "json"},
            files={"file": (name, data)},
        )
        return _text(answer.get("text") if isinstance(answer, dict) else None)

    async def look(self, pictures: Sequence[Picture], task: str) -> str:
        """What a model says of pictures. Raises NoEndpointAnswer."""
        body = await asyncio.to_thread(_question, self._settings.model, pictures, task)
        kind = {"Content-Type": "application/json"}
        answer = await self._ask("/chat/completions", content=body, headers=kind)
        try:
            return _text(answer["choices"][0]["message"]["content"])
        except (KeyError, IndexError, TypeError):
            raise NoEndpointAnswer("The endpoint's answer has no message.") from None

    async def _ask(self, path: str, **body: Any) -> Any:
        try:
            async with (
                asyncio.timeout(self._settings.seconds),
                httpx.AsyncClient(
                    timeout=self._settings.seconds, trust_env=False, headers=self._headers
                ) as client,
            ):
                return await self._post_with_retries(
                    client, self._settings.url.rstrip("/") + path, body
                )
        except TimeoutError:
            seconds = f"{self._settings.seconds:g}"
            raise NoEndpointAnswer(f"The endpoint gave no answer within {seconds} s.") from None
        except (httpx.InvalidURL, UnicodeError):  # httpx reads an answer's Location, too
            raise NoEndpointAnswer(
                "The endpoint's address in houston.toml, or where it redirects to, is no URL."
            ) from None

    async def _post_with_retries(
        self, client: httpx.AsyncClient, url: str, body: Mapping[str, Any]
    ) -> Any:
        for attempt in range(1, _RETRY.attempts + 1):
            asked_wait, last = None, attempt == _RETRY.attempts
            try:
                answer = await _posted(client, url, body)
            except httpx.TimeoutException:
                raise TimeoutError from None
            except httpx.HTTPError as problem:
                if last:
                    reason = f"The endpoint cannot be reached: {type(problem).__name__}."
                    raise NoEndpointAnswer(reason) from None
            else:
                if answer.status not in _AGAIN or last:
                    return _parse_answer(answer)
                asked_wait = answer.wait
            await asyncio.sleep(_RETRY.wait(attempt, asked_wait))
        raise AssertionError("the last try returns or raises")


def _question(model: str, pictures: Sequence[Picture], task: str) -> bytes:
    """The request about pictures: tens of megabytes, so it is made once and aside."""
    parts: list[dict[str, Any]] = [{"type": "text", "text": task}]
    for picture in pictures:
        encoded = base64.b64encode(picture.data).decode()
        address = f"data:{picture.kind};base64,{encoded}"
        parts.append({"type": "image_url", "image_url": {"url": address}})
    return msgspec.json.encode({"model": model, "messages": [{"role": "user", "content": parts}]})


class _Answer(NamedTuple):
    status: int
    wait: float | None
    """Seconds that the server asks to wait before the next try."""
    body: bytes


async def _posted(client: httpx.AsyncClient, url: str, body: Mapping[str, Any]) -> _Answer:
    async with client.stream("POST", url, **body) as response:
        data = bytearray()
        async for chunk in response.aiter_bytes(1 << 16):
            data += chunk
            if len(data) > _MAX_ANSWER_BYTES:
                raise NoEndpointAnswer("The endpoint's answer is longer than 4 MB.")
        wait = parse_retry_after(response.headers.get("retry-after", ""))
        return _Answer(response.status_code, wait, bytes(data))


def _parse_answer(answer: _Answer) -> Any:
    if answer.status >= 300:
        words = " ".join(answer.body.decode("utf-8", "replace").split())[:_QUOTED]
        raise NoEndpointAnswer(
            f"The endpoint answered {answer.status}: {words or 'no reason given'}"
        )
    try:
        return msgspec.json.decode(answer.body)
    except (ValueError, RecursionError):
        raise NoEndpointAnswer("The endpoint's answer is no JSON.") from None


def _text(content: Any) -> str:
    """The words of an answer, which may come in parts."""
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if not isinstance(content, str) or not content.strip():
        raise NoEndpointAnswer("The endpoint's answer is empty.")
    return content
