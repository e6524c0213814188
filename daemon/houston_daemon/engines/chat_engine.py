"""The chat engine: any OpenAI-compatible /chat/completions endpoint. No token ids.

A request holds `model`, `messages`, `tools` if there are any, what the task file and the engine's
`parameters` say, and otherwise only `stream` and `stream_options`; an endpoint that refuses one of
these two by name is no longer sent it. Tools are sent natively, or as text in the dialect's form
(`tools_mode="text"`) for endpoints that take none. Rows from such an engine are rendered, never
exact.
"""

import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

import httpx

from houston_daemon.engines.engine_http import (
    PartialAnswer,
    lacks_version,
    make_http_client,
    raise_for_failure,
    read_events,
    read_whole_answer,
    run_unless_stopped,
    with_retries,
)
from houston_daemon.engines.engine_protocol import (
    EngineRefused,
    EngineSample,
    EngineUnavailable,
    SampleRequest,
)
from houston_daemon.prompts.dialect_protocol import Dialect
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.planner_dialect import planner_dialect
from houston_shared.backoff import RetryPolicy
from houston_shared.engine_settings import ReasoningField
from houston_shared.records import Message, ToolCall

CHAT_READ_SECONDS = 600.0
ROLLOUT_HEADER = "X-Houston-Rollout"
"""Header with the percent-encoded id of the rollout that asks: a gateway's log tells them apart."""
OWN_PARAMETERS = {"stream": True, "stream_options": {"include_usage": True}}
"""What Houston asks for by itself; `parameters` and `omit_parameters` win."""
RESERVED_CHAT_FIELDS = frozenset({"model", "messages", "tools", "n"})
"""Fields that `parameters` may not name: they are the rollout's."""


@dataclass(slots=True)
class _PartialCall:
    """A call of which pieces have come. number: the endpoint's own; it may give several the same.
    text: its arguments."""

    number: int
    id: str = ""
    name: str = ""
    text: str = ""


@dataclass(slots=True)
class _PartialChatAnswer(PartialAnswer):
    """calls: in the order in which they began."""

    reasoning: list[str] = field(default_factory=list)
    calls: list[_PartialCall] = field(default_factory=list)

    def _add_choice(self, choice: Mapping[str, Any]) -> None:
        """Add a part of a stream, or a whole answer: its message is a delta of everything."""
        delta = choice.get("delta") or choice.get("message") or {}
        self.text.append(_content_text(delta.get("content")))
        self.reasoning.append(
            _content_text(delta.get("reasoning_content") or delta.get("reasoning"))
        )
        for place, part in enumerate(delta.get("tool_calls") or ()):
            _extend_call(self.calls, part, place if "message" in choice else 0)


class ChatEngine:
    """A chat endpoint.

    url: base address as the endpoint documents it, usually ending in `/v1`. window: largest prompt
    + answer, where known. tools_mode: `native`, or `text` where the dialect writes and reads calls.
    reasoning_field: how the switch is sent: `chat_template` (vLLM, SGLang: enable_thinking),
    `effort` (OpenAI: reasoning_effort, where reasoning is on), or `none`. max_tokens_field: the
    name of the limit of an answer, where the task file sets one. parameters: added to each request,
    over all others but the rollout's own. omit: fields that are never sent. headers: of each
    request.
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
        dialect: Dialect | None = None,
        reasoning_field: ReasoningField = "none",
        max_tokens_field: str = "max_tokens",
        parameters: Mapping[str, Any] | None = None,
        omit: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        retry: RetryPolicy | None = None,
        silence_seconds: float = 0.0,
    ) -> None:
        self.name = name
        self.window = window
        self._url, self._model = url, model
        self._tools_mode = tools_mode
        self._dialect = dialect or choose_dialect("chatml-json")
        self._reasoning_field = reasoning_field
        self._max_tokens_field = max_tokens_field
        self._added = dict(parameters or {})
        self._omitted = set(omit)
        """Of the configuration, and what the endpoint has refused of `OWN_PARAMETERS`."""
        self._retry = retry or RetryPolicy()
        self._http = make_http_client(url, api_key, silence_seconds or CHAT_READ_SECONDS, headers)

    async def ready(self) -> None:
        """Return when the endpoint answers at all, since endpoints differ widely in what they
        list."""
        try:
            await self._http.get("/models", timeout=10.0)
        except httpx.RequestError as problem:
            raise EngineUnavailable(
                f"Engine {self.name} does not answer at {self._http.base_url}: "
                f"{str(problem) or type(problem).__name__}."
            ) from problem

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def sample(self, request: SampleRequest, stop: asyncio.Event) -> EngineSample:
        """Sample once; see the protocol. An interrupted sample keeps its text and no calls."""
        started = time.monotonic()
        headers = {ROLLOUT_HEADER: quote(request.rollout)} if request.rollout else {}
        partial = _PartialChatAnswer()

        async def once() -> bool:
            nonlocal partial
            while True:
                partial, body = _PartialChatAnswer(), self._body(request)
                try:
                    return await run_unless_stopped(stop, self._ask(body, headers, partial))
                except EngineRefused as problem:
                    if not (refused := _refused_own_parameters(body, problem)):
                        problem.next = _address_hint(self._url, problem)
                        raise
                    self._omitted.add(refused)

        ended = bool(await with_retries(self.name, once, stop, self._retry, request.waiting))
        text, thought = _join_parts(partial.text), _join_parts(partial.reasoning)
        native = self._tools_mode == "native"
        return EngineSample(
            text=text,
            finish_reason=partial.finish_reason(ended),
            calls=(_parse_calls(partial, request.step) if ended else ()) if native else None,
            thought=text if native else None,
            reasoning=thought,
            usage=partial.usage,
            seconds=time.monotonic() - started,
            parameters={
                k: v
                for k, v in self._body(request).items()
                if k not in (*RESERVED_CHAT_FIELDS, *OWN_PARAMETERS)
            },
        )

    async def _ask(
        self, body: dict[str, Any], headers: dict[str, str], partial: _PartialChatAnswer
    ) -> None:
        stream = self._http.stream("POST", "/chat/completions", json=body, headers=headers)
        async with stream as response:
            await raise_for_failure(response)
            is_whole = response.headers.get("content-type", "").startswith("application/json")
            await partial.read(read_whole_answer(response) if is_whole else read_events(response))

    def _body(self, request: SampleRequest) -> dict[str, Any]:
        native = self._tools_mode == "native"
        body: dict[str, Any] = {
            "model": request.policy or self._model,
            "messages": [_chat_message(message) for message in request.messages]
            if native
            else _text_messages(request, self._dialect),
        }
        if native and request.tools:
            body["tools"] = [_chat_tool(tool) for tool in request.tools]
        if request.is_max_tokens_set:
            body[self._max_tokens_field] = request.max_tokens
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if request.top_p is not None:
            body["top_p"] = request.top_p
        if self._reasoning_field == "chat_template":
            body["chat_template_kwargs"] = {"enable_thinking": request.reasoning}
        elif self._reasoning_field == "effort" and request.reasoning:
            body["reasoning_effort"] = "medium"
        body |= {**OWN_PARAMETERS, **self._added}
        if not body.get("stream") or "stream" in self._omitted:
            body.pop("stream_options", None)
        return {name: value for name, value in body.items() if name not in self._omitted}


def _refused_own_parameters(body: Mapping[str, Any], problem: EngineRefused) -> str:
    """Which of the fields that nobody asked for an endpoint refuses by name; empty for none."""
    if problem.status not in (400, 422):
        return ""
    for name in reversed(OWN_PARAMETERS):  # a refusal of the options may name the stream, too
        sent = name in body and body[name] == OWN_PARAMETERS[name]
        if sent and re.search(rf"\b{name}\b", problem.cause):
            return name
    return ""


def _address_hint(url: str, problem: EngineRefused) -> str:
    """What to mend where an address may lack the `/v1` that most APIs have; empty elsewhere."""
    if problem.status != 404 or not lacks_version(url) or "model" in problem.cause:
        return ""
    return f"Where its API is below /v1, set `url` of the engine to {url.rstrip('/')}/v1."


def _chat_message(message: Message) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.calls:
        sent["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
            }
            for call in message.calls
        ]
    if message.role == "tool":
        sent["tool_call_id"] = message.call_id
    return sent


def _text_messages(request: SampleRequest, dialect: Dialect) -> list[dict[str, Any]]:
    """The messages for an endpoint that knows no tools: the first one lists them with the form of
    an answer, earlier answers stand in that form, and results are a user's."""
    own = planner_dialect(dialect) if request.role == "planner" else dialect
    sent, tools = [], request.tools
    for message in request.messages:
        content = message.content
        if message.role == "system" and tools:
            listed = "\n".join(json.dumps(_chat_tool(tool), ensure_ascii=False) for tool in tools)
            content += f"\n\n# Tools\n{listed}\n\n# Answer\nEach answer has this form:\n{own.form}"
            tools = ()
        elif message.calls:
            content = "".join(piece.text for piece in own.assistant(content, message.calls))
            for stop in own.stop_tokens:
                content = content.removesuffix(stop)
        role = "user" if message.role == "tool" else message.role
        sent.append({"role": role, "content": content})
    return sent


def _chat_tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    return dict(tool) if "function" in tool else {"type": "function", "function": dict(tool)}


def _content_text(value: Any) -> str:
    if value and not isinstance(value, str):
        raise TypeError(f"a text is a {type(value).__name__}")
    return value or ""


def _join_parts(parts: Sequence[str]) -> str:
    """The text of its parts: a character may be cut in two between them, as JSON spells it."""
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _extend_call(calls: list[_PartialCall], part: Mapping[str, Any], place: int) -> None:
    """Join one piece of a call: its name comes once, its arguments in pieces.

    place: its place, where the endpoint gives it none. Some endpoints give all calls of an answer
    the same number: a piece with another id begins another call.
    """
    function = part.get("function") or {}
    number, id = int(part.get("index") or place), str(part.get("id") or "")
    same = [call for call in reversed(calls) if call.number == number]
    call = next((call for call in same if not id or call.id in ("", id)), None)
    if call is None:
        call = _PartialCall(number)
        calls.append(call)
    call.id = id or call.id
    call.name = _content_text(function.get("name")) or call.name
    call.text += _content_text(function.get("arguments"))


def _parse_calls(partial: _PartialChatAnswer, step: int) -> Sequence[ToolCall]:
    # Some endpoints count their ids from zero in every answer; ours are unique in a rollout.
    calls = sorted(partial.calls, key=lambda call: call.number)
    return tuple(
        _parse_call(
            f"{step}.{place}" if step else call.id or f"0.{place}",
            _join_parts([call.name]),
            _join_parts([call.text]),
        )
        for place, call in enumerate(calls)
    )


def _parse_call(id: str, name: str, text: str) -> ToolCall:
    try:
        arguments = json.loads(text or "{}")
    except (ValueError, RecursionError) as problem:
        return ToolCall(
            id=id, name=name, arguments={}, error=f"The arguments are no JSON: {problem}."
        )
    if not isinstance(arguments, dict):
        return ToolCall(id=id, name=name, arguments={}, error="The arguments are no JSON object.")
    return ToolCall(id=id, name=name, arguments=arguments)
