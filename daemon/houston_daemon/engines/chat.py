"""The chat client: any OpenAI-compatible /chat/completions endpoint. No token ids.

Tools go natively, or are left to the dialect's text (`tools_mode="text"`). Calls come back parsed;
arguments that are no JSON object mark their call instead of failing the sample. Rows from such an
engine are rendered, never exact.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

import httpx

from houston_daemon.engines.http import (
    Retry,
    Transient,
    check,
    client,
    events,
    finished_before,
    with_retries,
)
from houston_daemon.engines.protocol import (
    EngineUnavailable,
    FinishReason,
    Sampled,
    SampleRequest,
)
from houston_shared.records import Call, Message

READ_SECONDS = 600.0
ROLLOUT = "X-Houston-Rollout"
"""Header with the percent-encoded id of the rollout that asks: a gateway's log tells them apart."""
ReasoningField = Literal["chat_template", "effort", "none"]


@dataclass(slots=True)
class _Partial:
    """What has been sampled so far. calls: by the endpoint's index: id, name, arguments text."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: dict[int, list[str]] = field(default_factory=dict)
    finish: str = ""
    cached: int | None = None


class ChatEngine:
    """A chat endpoint.

    url: base address as the endpoint documents it, usually ending in `/v1`. window: largest prompt
    + answer, where known. tools_mode: `native`, or `text` when the dialect parses calls.
    reasoning_field: how the switch is sent: `chat_template` (vLLM, SGLang: enable_thinking),
    `effort` (OpenAI: reasoning_effort), or `none`. effort: its value when reasoning is on.
    """

    token_ids = False

    def __init__(
        self,
        name: str,
        url: str,
        model: str,
        api_key: str = "",
        *,
        window: int | None = None,
        tools_mode: Literal["native", "text"] = "native",
        reasoning_field: ReasoningField = "chat_template",
        effort: str = "medium",
        retry: Retry | None = None,
    ) -> None:
        self.name = name
        self.window = window
        self._model = model
        self._tools_mode = tools_mode
        self._reasoning_field = reasoning_field
        self._effort = effort
        self._retry = retry or Retry()
        self._http = client(url, api_key, READ_SECONDS)

    async def ready(self) -> None:
        """Return when the endpoint answers at all: what it lists and asks differs widely."""
        try:
            await self._http.get("/models", timeout=10.0)
        except httpx.TransportError as problem:
            raise EngineUnavailable(
                f"Engine {self.name} does not answer at {self._http.base_url}: "
                f"{str(problem) or type(problem).__name__}."
            ) from problem

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def sample(self, request: SampleRequest, stop: asyncio.Event) -> Sampled:
        """Sample once; see the protocol. An interrupted sample keeps its text and no calls."""
        started = time.monotonic()
        body = self._body(request)
        headers = {ROLLOUT: quote(request.rollout)} if request.rollout else {}
        partial = _Partial()

        async def once() -> bool:
            nonlocal partial
            partial = _Partial()
            return await finished_before(stop, self._stream(body, headers, partial))

        ended = bool(await with_retries(self.name, once, stop, self._retry))
        text, thought = _joined(partial.text), _joined(partial.reasoning)
        native = self._tools_mode == "native"
        reason: FinishReason = "interrupted"
        if ended:
            reason = "length" if partial.finish == "length" else "stop"
        return Sampled(
            text=text,
            finish_reason=reason,
            calls=(_calls(partial, request.step) if ended else ()) if native else None,
            thought=text if native else None,
            reasoning=thought,
            cached_tokens=partial.cached,
            seconds=time.monotonic() - started,
            parameters={
                "temperature": request.temperature,
                "top_p": request.top_p,
                "max_tokens": request.max_tokens,
                "reasoning": request.reasoning,
            },
        )

    async def _stream(
        self, body: dict[str, Any], headers: dict[str, str], partial: _Partial
    ) -> None:
        asking = self._http.stream("POST", "/chat/completions", json=body, headers=headers)
        async with asking as response:
            await check(response)
            async for event in events(response):
                try:
                    _take(event, partial)
                except (AttributeError, TypeError, ValueError) as problem:
                    raise Transient(f"it sent an event of another form: {problem}") from problem
        if not partial.finish:
            raise Transient("the stream ended before the sample")

    def _body(self, request: SampleRequest) -> dict[str, Any]:
        native = self._tools_mode == "native"
        body: dict[str, Any] = {
            "model": request.policy or self._model,
            "messages": [_message(message, native) for message in request.messages],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if native and request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        if self._reasoning_field == "chat_template":
            body["chat_template_kwargs"] = {"enable_thinking": request.reasoning}
        elif self._reasoning_field == "effort" and request.reasoning:
            body["reasoning_effort"] = self._effort
        return body


def _message(message: Message, native: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if not native:
        return made | ({"role": "user"} if message.role == "tool" else {})
    if message.calls:
        made["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in message.calls
        ]
    if message.role == "tool":
        made["tool_call_id"] = message.call_id
    return made


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    return dict(tool) if "function" in tool else {"type": "function", "function": dict(tool)}


def _text(value: Any) -> str:
    if value and not isinstance(value, str):
        raise TypeError(f"a text is a {type(value).__name__}")
    return value or ""


def _joined(parts: Sequence[str]) -> str:
    """The text of its parts: a character may be cut in two between them, as JSON spells it."""
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _take(event: Mapping[str, Any], partial: _Partial) -> None:
    if usage := event.get("usage"):
        details = usage.get("prompt_tokens_details") or {}
        partial.cached = details.get("cached_tokens", partial.cached)
    for choice in event.get("choices", ()):
        delta = choice.get("delta") or {}
        partial.text.append(_text(delta.get("content")))
        partial.reasoning.append(_text(delta.get("reasoning_content") or delta.get("reasoning")))
        for part in delta.get("tool_calls") or ():
            _extend(partial.calls, part)
        partial.finish = choice.get("finish_reason") or partial.finish


def _extend(calls: dict[int, list[str]], part: Mapping[str, Any]) -> None:
    """Join one piece of a call: its name comes once, its arguments in pieces."""
    function = part.get("function") or {}
    call = calls.setdefault(int(part.get("index") or 0), ["", "", ""])
    call[0] = str(part.get("id") or call[0])
    call[1] = _text(function.get("name")) or call[1]
    call[2] += _text(function.get("arguments"))


def _calls(partial: _Partial, step: int) -> Sequence[Call]:
    # Some endpoints count their ids from zero in every answer; ours are unique in a rollout.
    return tuple(
        _call(f"{step}.{place}" if step else id or f"0.{place}", _joined([name]), _joined([text]))
        for place, (_, (id, name, text)) in enumerate(sorted(partial.calls.items()))
    )


def _call(id: str, name: str, text: str) -> Call:
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError) as problem:
        return Call(id=id, name=name, arguments={}, error=f"The arguments are no JSON: {problem}.")
    if not isinstance(arguments, dict):
        return Call(id=id, name=name, arguments={}, error="The arguments are no JSON object.")
    return Call(id=id, name=name, arguments=arguments)
