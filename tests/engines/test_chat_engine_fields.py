"""What a chat endpoint is sent, against a real server that refuses every field it does not know."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from houston_daemon.engines.chat_engine import ChatEngine
from houston_daemon.engines.engine_protocol import (
    EngineRefused,
    EngineSample,
    EngineUsage,
    SampleRequest,
)
from houston_daemon.engines.engine_registry import choose_engine
from houston_shared.backoff import RetryPolicy
from houston_shared.errors import ConfigurationError
from houston_shared.records import Message
from tests.engines.chat_server import ChatServer, delta

TOOL = {"name": "run_command", "parameters": {"type": "object", "properties": {}}}
MESSAGES = (Message(role="user", content="Begin."),)
COUNTS = {
    "prompt_tokens": 900,
    "completion_tokens": 70,
    "prompt_tokens_details": {"cached_tokens": 768},
    "completion_tokens_details": {"reasoning_tokens": 40},
}
FINE: list[Any] = [delta(content="Done."), delta("stop"), {"choices": [], "usage": COUNTS}]
WHOLE: dict[str, Any] = {
    "choices": [{"index": 0, "message": {"content": "Done."}, "finish_reason": "stop"}],
    "usage": COUNTS,
}
LEAST = {"model", "messages", "tools"}
STREAM = LEAST | {"stream"}
USUAL = STREAM | {"stream_options"}


@pytest.fixture
def server() -> Iterator[ChatServer]:
    made = ChatServer()
    made.start()
    yield made
    made.stop()


def engine(server: ChatServer, **settings: Any) -> ChatEngine:
    settings = {"kind": "chat", "url": server.url, "model": "some-model", **settings}
    made = choose_engine(settings, None, "strict")
    assert isinstance(made, ChatEngine)
    made._retry = RetryPolicy(attempts=2, first_wait=0.01, max_wait=0.02)
    return made


async def sampled(made: ChatEngine, **changes: Any) -> EngineSample:
    request = SampleRequest(None, MESSAGES, (TOOL,), 50, **changes)
    got = await made.sample(request, asyncio.Event())
    await made.close()
    return got


SENT: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # what the configuration says, what the task file says, what is sent besides `USUAL`
    "nothing": ({}, {}, {}),
    "reasoning, untold": ({"reasoning": True}, {"reasoning": True}, {}),
    "the task's temperature": ({}, {"temperature": 0.0}, {"temperature": 0.0}),
    "the task's top_p": ({}, {"top_p": 0.9}, {"top_p": 0.9}),
    "the task's limit": ({}, {"is_max_tokens_set": True}, {"max_tokens": 50}),
    "the task's limit by another name": (
        {"max_tokens_field": "max_completion_tokens"},
        {"is_max_tokens_set": True},
        {"max_completion_tokens": 50},
    ),
    "parameters": (
        {"parameters": {"top_k": 20, "provider": {"order": ["a"]}}},
        {},
        {"top_k": 20, "provider": {"order": ["a"]}},
    ),
    "parameters over the task": (
        {"parameters": {"temperature": 1.0}},
        {"temperature": 0.2},
        {"temperature": 1.0},
    ),
    "what the task asks and the engine must not be sent": (
        {"omit_parameters": ["temperature", "max_tokens"]},
        {"temperature": 0.2, "is_max_tokens_set": True},
        {},
    ),
}


@pytest.mark.parametrize("case", SENT)
async def test_nothing_is_sent_that_nobody_asked_for(server: ChatServer, case: str) -> None:
    configured, asked, more = SENT[case]
    server.allowed, server.answers = frozenset(USUAL | more.keys()), [FINE]
    got = await sampled(engine(server, **configured), **asked)
    (body,) = server.asked
    assert {k: v for k, v in body.items() if k not in USUAL} == more
    assert body.keys() == USUAL | more.keys()
    assert got.parameters == more, "the ledger has what was sent"


STRICT: dict[str, tuple[dict[str, Any], set[str], Any, list[set[str]]]] = {
    # configuration, fields that the server knows, its answer, fields of each request
    "no count of tokens": ({}, STREAM, FINE[:2], [USUAL, STREAM]),
    "no streams": ({}, LEAST, WHOLE, [USUAL, LEAST]),
    "no streams, as configured": ({"parameters": {"stream": False}}, STREAM, WHOLE, [STREAM]),
    "no count, as configured": ({"omit_parameters": ["stream_options"]}, STREAM, FINE, [STREAM]),
    "neither, as configured": ({"omit_parameters": ["stream"]}, LEAST, WHOLE, [LEAST]),
}


@pytest.mark.parametrize("case", STRICT)
async def test_houston_does_without_what_only_it_wants(server: ChatServer, case: str) -> None:
    """And asks once: the next sample of the same engine is sent what the first one came to."""
    configured, known, answer, sent = STRICT[case]
    server.allowed, server.answers = frozenset(known), [answer, answer]
    made = engine(server, **configured)
    request = SampleRequest(None, MESSAGES, (TOOL,), 50)
    await made.sample(request, asyncio.Event())
    assert (await sampled(made)).text == "Done."
    assert [set(body) for body in server.asked] == [*sent, sent[-1]]


async def test_a_parameter_that_is_refused_is_not_dropped(server: ChatServer) -> None:
    server.allowed = frozenset(USUAL)
    with pytest.raises(EngineRefused, match="Unrecognized request argument supplied: top_k"):
        await sampled(engine(server, parameters={"top_k": 5}))
    assert len(server.asked) == 1


USAGE: dict[str, tuple[Any, EngineUsage]] = {
    "all of it": (COUNTS, EngineUsage(900, 768, 70, 40)),
    "the least": ({"prompt_tokens": 5, "completion_tokens": 2}, EngineUsage(5, None, 2, None)),
    "details that are null": (
        {"prompt_tokens": 5, "prompt_tokens_details": None, "completion_tokens": 2},
        EngineUsage(5, None, 2, None),
    ),
    "a cache counted beside": (
        {"prompt_tokens": 5, "prompt_cache_hit_tokens": 4, "completion_tokens": 2},
        EngineUsage(5, 4, 2, None),
    ),
    "counts that are none": ({"prompt_tokens": "5", "completion_tokens": -1}, EngineUsage()),
    "null": (None, EngineUsage()),
}


@pytest.mark.parametrize("form", ["stream", "whole"])
@pytest.mark.parametrize("case", USAGE)
async def test_usage_is_what_the_endpoint_says(server: ChatServer, case: str, form: str) -> None:
    told, expected = USAGE[case]
    last = {"choices": [], "usage": told}
    server.answers = [[*FINE[:2], last] if form == "stream" else {**WHOLE, "usage": told}]
    assert (await sampled(engine(server))).usage == expected


async def test_a_whole_answer_has_its_calls_and_reasoning(server: ChatServer) -> None:
    calls = [
        {"id": id, "type": "function", "function": {"name": "run_command", "arguments": "{}"}}
        for id in ("a", "b")
    ]
    message = {"content": None, "reasoning_content": "Hm.", "tool_calls": calls}
    server.answers = [{"choices": [{"message": message, "finish_reason": "tool_calls"}]}]
    got = await sampled(engine(server), step=3)
    assert [(call.id, call.name) for call in got.calls or ()] == [
        ("3.0", "run_command"),
        ("3.1", "run_command"),
    ]
    assert (got.text, got.reasoning) == ("", "Hm.")


async def test_headers_are_sent_and_secrets_come_from_variables(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "value-of-the-gateway")
    server.answers = [FINE]
    headers = {"HTTP-Referer": "https://example.org"}
    await sampled(engine(server, headers=headers, headers_env={"x-api-key": "GATEWAY_KEY"}))
    (got,) = server.headers
    assert got["http-referer"] == "https://example.org"
    assert got["x-api-key"] == "value-of-the-gateway"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a key in a header": ({"headers": {"Authorization": "Bearer abc"}}, "looks like a secret"),
    "a key by its looks": (
        {"headers": {"x-gateway": "sk-abcdefghij0123456789abcdefghij"}},
        "looks like a secret",
    ),
    "a key in parameters": (
        {"parameters": {"key": "sk-abcdefghij0123456789abcdefghij"}},
        "looks like a secret",
    ),
    "messages": ({"parameters": {"messages": []}}, "may not name messages"),
    "the model, left out": ({"omit_parameters": ["model"]}, "may not name model"),
    "ids of a token engine": (
        {"kind": "token", "parameters": {"return_token_ids": False}},
        "may not name return_token_ids",
    ),
    "what the embedded server would ignore": (
        {"kind": "embedded", "parameters": {"top_k": 20, "stop": ["x"], "min_p": 0, "top_p": 0.9}},
        "may not name top_k, stop: its server uses only temperature and top_p",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_request_may_have_is_a_wrong_configuration(case: str) -> None:
    settings, why = REFUSED[case]
    with pytest.raises(ConfigurationError, match=why):
        choose_engine({"kind": "chat", "url": "http://127.0.0.1:1/v1", "model": "m", **settings})
