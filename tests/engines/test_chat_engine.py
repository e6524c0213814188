"""The chat engine against a real HTTP server that answers well, badly, late and not at all."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from houston_daemon.engines.chat_engine import ChatEngine
from houston_daemon.engines.engine_protocol import (
    EngineRefused,
    EngineSample,
    EngineUnavailable,
    SampleRequest,
)
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_shared.backoff import RetryPolicy
from houston_shared.records import Message, ToolCall
from tests.engines.chat_server import ChatServer, delta, tool
from tests.engines.conftest import free_port
from tests.integration.agent.endpoint import Endpoint, Page

TOOL = {"name": "run_command", "parameters": {"type": "object", "properties": {}}}
MESSAGES = (
    Message(role="system", content="You act."),
    Message(role="user", content="Begin."),
    Message(
        role="assistant",
        content="I look.",
        calls=(ToolCall(id="1.0", name="run_command", arguments={"command": "ls"}),),
    ),
    Message(role="tool", content="README.md", call_id="1.0"),
)
FINE = [delta(content="Done."), delta("stop")]
QUICK = RetryPolicy(attempts=4, first_wait=0.01, max_wait=0.02, max_retry_after=0.05)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    made = ChatServer()
    made.start()
    yield made
    made.stop()


def engine(server: ChatServer, **settings: Any) -> ChatEngine:
    return ChatEngine("chat:test", server.url, "some-model", "secret", retry=QUICK, **settings)


def ask(**changes: Any) -> SampleRequest:
    return SampleRequest(None, MESSAGES, (TOOL,), 50, step=2, **changes)


async def sampled(made: ChatEngine, request: SampleRequest | None = None) -> EngineSample:
    got = await made.sample(request or ask(), asyncio.Event())
    await made.close()
    return got


PASSING = {
    "too many requests": [(429, {"retry-after": "0.02"}), FINE],
    "a wait longer than we give": [(429, {"retry-after": "3600"}), FINE],
    "overloaded": [(503, {}), (500, {}), FINE],
    "the connection drops in mid-stream": [[delta(content="Do"), "drop"], FINE],
    "the stream ends without an end": [[delta(content="Do")], FINE],
    "an answer that the server gave up": [[delta(content="Do"), delta("abort")], FINE],
    "an answer that failed in the server": [[delta(content="Do"), delta("error")], FINE],
    "an answer that is packed wrongly": [(200, {"content-encoding": "gzip"}), FINE],
    "an error within the stream": [[{"error": {"message": "busy", "code": 503}}], FINE],
    "one with a word for a code": [[{"error": {"message": "busy", "code": "overloaded"}}], FINE],
    "one that is a sentence": [[{"error": "busy"}], FINE],
    "a line that is no object": [[7], FINE],
    "choices that are none": [[{"choices": [7]}], FINE],
    "a text that is none": [[delta("stop", content=[7])], FINE],
}


@pytest.mark.parametrize("case", PASSING)
async def test_what_passes_is_tried_again(server: ChatServer, case: str) -> None:
    server.answers = list(PASSING[case])
    got = await sampled(engine(server))
    assert (got.text, got.finish_reason) == ("Done.", "stop")
    assert len(server.asked) == len(PASSING[case])
    assert server.asked[0] == server.asked[-1]


async def test_half_a_character_is_no_reason_to_end(server: ChatServer) -> None:
    """Two halves in two events are one character; one alone is none that could be stored."""
    server.answers = [[delta(content="a\ud83e"), delta(content="\udd8a b\ud800"), delta("stop")]]
    assert (await sampled(engine(server))).text == "a\U0001f98a b\ufffd"
    parts = [tool('{"command": "a\ud83e'), tool('\udd8a"}'), delta("tool_calls")]
    server.answers = [parts]
    (call,) = (await sampled(engine(server))).calls or ()
    assert call.arguments == {"command": "a\U0001f98a"}


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n"], ids=["lines", "lines of Windows"])
async def test_a_line_of_a_stream_ends_nowhere_but_at_its_end(server: ChatServer, end: str) -> None:
    """Servers write signs that end a line of text elsewhere into their JSON as they are."""
    said = "a\u2028b\u2029c\x85d\x1ce"
    event = f"data: {json.dumps(delta('stop', content=said), ensure_ascii=False)}{end}".encode()
    cut = event.index("\u2029".encode()) + 1  # within a character
    server.answers = [[event[:cut], event[cut:]]]
    assert (await sampled(engine(server))).text == said


async def test_what_does_not_pass_is_unavailable_after_bounded_tries(server: ChatServer) -> None:
    server.answers = [(503, {})] * 10
    with pytest.raises(EngineUnavailable, match="4 attempts: it answered 503: not now"):
        await sampled(engine(server))
    assert len(server.asked) == 4


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_a_refusal_is_not_tried_again(server: ChatServer, status: int) -> None:
    server.answers = [(status, {}), FINE]
    with pytest.raises(EngineRefused, match=str(status)):
        await sampled(engine(server))
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("end", "answer", "is_told"),
    [
        ("", (404, "<html>Not Found</html>"), True),
        ("/v1", (404, "<html>Not Found</html>"), False),
        ("", (404, '{"error": {"message": "The model `m` does not exist"}}'), False),
        ("", (400, '{"error": {"message": "No."}}'), False),
    ],
    ids=["forgotten", "there", "of a model", "another refusal"],
)
async def test_a_forgotten_v1_is_told(end: str, answer: tuple[int, str], is_told: bool) -> None:
    endpoint = Endpoint(lambda body: Page(answer[1], answer[0]))
    url = f"{endpoint.url.removesuffix('/v1')}{end}"
    with pytest.raises(EngineRefused) as refused:
        await sampled(ChatEngine("chat:test", url, "m", retry=QUICK))
    endpoint.close()
    assert (f"set `url` of the engine to {url}/v1" in refused.value.next) == is_told


async def test_nobody_there_is_unavailable() -> None:
    made = ChatEngine("chat:none", f"http://127.0.0.1:{free_port()}/v1", "m", retry=QUICK)
    with pytest.raises(EngineUnavailable):
        await made.ready()
    with pytest.raises(EngineUnavailable):
        await sampled(made)


ARGUMENTS = {
    "an object": ('{"command": "ls"}', {"command": "ls"}, ""),
    "nothing": ("", {}, ""),
    "cut off": ('{"command": "l', {}, "no JSON"),
    "a list": ("[1]", {}, "no JSON object"),
    "nested without end": ("[" * 100_000, {}, "no JSON"),
}


@pytest.mark.parametrize("case", ARGUMENTS)
async def test_arguments_are_parsed_or_marked(server: ChatServer, case: str) -> None:
    text, arguments, error = ARGUMENTS[case]
    server.answers = [[delta(content="I try."), tool(text), delta("tool_calls")]]
    got = await sampled(engine(server))
    assert got.calls is not None
    (call,) = got.calls
    assert (call.name, call.arguments) == ("run_command", arguments)
    assert (error in call.error) and bool(call.error) == bool(error)
    assert got.thought == "I try."


async def test_calls_in_pieces_are_joined_and_numbered(server: ChatServer) -> None:
    pieces = [tool('{"command":'), tool("{}", 1, "finish"), tool(' "ls"}'), delta("tool_calls")]
    server.answers = [pieces]
    got = await sampled(engine(server))
    assert [(call.id, call.name, call.arguments) for call in got.calls or ()] == [
        ("2.0", "run_command", {"command": "ls"}),
        ("2.1", "finish", {}),
    ]


def numbered(id: str | None, index: int | None, name: str, text: str) -> dict[str, Any]:
    call = {"id": id, "index": index, "function": {"name": name, "arguments": text}}
    return {key: value for key, value in call.items() if value is not None}


PARALLEL = {
    "all called 0": [[numbered("a", 0, "read", "{}")], [numbered("b", 0, "write", "{}")]],
    "without a number": [[numbered("a", None, "read", "{}"), numbered("b", None, "write", "{}")]],
    "in pieces with their ids": [
        [numbered("a", 0, "read", "{")],
        [numbered("a", 0, "", "}")],
        [numbered("b", 0, "write", "{")],
        [numbered("b", 0, "", "}")],
    ],
    "ids once": [
        [numbered("a", 0, "read", "{")],
        [numbered(None, 0, "", "}"), numbered("b", 1, "write", "{")],
        [numbered(None, 1, "", "}")],
    ],
}
"""As Gemini's endpoint and several gateways stream calls of one answer, and as OpenAI does."""


@pytest.mark.parametrize("case", PARALLEL)
async def test_parallel_calls_stay_apart(server: ChatServer, case: str) -> None:
    server.answers = [[*(delta(tool_calls=part) for part in PARALLEL[case]), delta("tool_calls")]]
    got = await sampled(engine(server))
    assert [(call.name, call.error) for call in got.calls or ()] == [("read", ""), ("write", "")]


async def test_the_context_is_sent_with_its_calls_and_tools(server: ChatServer) -> None:
    server.answers = [FINE]
    await sampled(engine(server))
    (asked,) = server.asked
    assert [message["role"] for message in asked["messages"]] == [m.role for m in MESSAGES]
    (call,) = asked["messages"][2]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"command": "ls"}
    assert asked["messages"][3]["tool_call_id"] == call["id"] == "1.0"
    assert asked["tools"] == [{"type": "function", "function": TOOL}]
    assert "seed" not in asked
    assert server.keys == ["Bearer secret"]


async def test_each_request_names_the_rollout_that_asks(server: ChatServer) -> None:
    """So the log of a gateway tells rollouts apart; who is no rollout names none."""
    server.answers = [FINE, FINE]
    await sampled(engine(server), ask(rollout="find-ä-7"))
    await sampled(engine(server))
    assert server.rollouts == ["find-%C3%A4-7", ""]


async def test_as_text_the_dialect_parses(server: ChatServer) -> None:
    server.answers = [[delta(content='{"calls": []}'), delta("stop")]]
    got = await sampled(engine(server, tools_mode="text"))
    assert (got.calls, got.thought, got.text) == (None, None, '{"calls": []}')
    assert "tools" not in server.asked[0]
    assert {m["role"] for m in server.asked[0]["messages"]} == {"system", "user", "assistant"}


async def test_as_text_a_model_is_told_its_tools_and_sees_its_calls(server: ChatServer) -> None:
    """What an endpoint without tools answers can be read only where the model knows the form."""
    server.answers = [[delta(content="x"), delta("stop")]]
    await sampled(engine(server, tools_mode="text", dialect=choose_dialect("hermes")))
    system, _, answer, result = server.asked[0]["messages"]
    assert system["content"].startswith("You act.") and '"name": "run_command"' in system["content"]
    assert system["content"].endswith(choose_dialect("hermes").form)
    assert answer["content"].startswith("I look.\n<tool_call>")
    assert '{"command": "ls"}' in answer["content"] and "<|im_end|>" not in answer["content"]
    assert result == {"role": "user", "content": "README.md"}


async def test_reasoning_stays_apart(server: ChatServer) -> None:
    server.answers = [[delta(reasoning_content="Hm. "), delta(content="Yes."), delta("stop")]]
    got = await sampled(engine(server), ask(reasoning=True))
    assert (got.text, got.thought, got.reasoning) == ("Yes.", "Yes.", "Hm. ")


SWITCH = {
    (None, True): {},
    (None, False): {},
    ("chat_template", True): {"chat_template_kwargs": {"enable_thinking": True}},
    ("chat_template", False): {"chat_template_kwargs": {"enable_thinking": False}},
    ("effort", True): {"reasoning_effort": "medium"},
    ("effort", False): {},
    ("none", True): {},
}


@pytest.mark.parametrize("case", SWITCH, ids=str)
async def test_the_reasoning_switch(server: ChatServer, case: tuple[str | None, bool]) -> None:
    server.answers = [FINE]
    settings = {} if case[0] is None else {"reasoning_field": case[0]}
    await sampled(engine(server, **settings), ask(reasoning=case[1]))
    sent = {k: server.asked[0][k] for k in server.asked[0] if "reasoning" in k or "kwargs" in k}
    assert sent == SWITCH[case]


async def test_an_interrupt_keeps_the_text_and_frees_the_server(server: ChatServer) -> None:
    server.answers = [[delta(content="Half a "), tool('{"a'), 600.0, delta("stop")]]
    made, stop = engine(server), asyncio.Event()
    running = asyncio.create_task(made.sample(ask(), stop))
    assert await asyncio.to_thread(server.pausing.wait, 10)
    await asyncio.sleep(0.5)  # for what was sent to arrive
    stop.set()
    got = await running
    await made.close()
    assert (got.text, got.finish_reason, got.calls) == ("Half a ", "interrupted", ())
    assert await asyncio.to_thread(server.left.wait, 10)


async def test_an_interrupt_ends_the_waiting_between_tries(server: ChatServer) -> None:
    server.answers = [(503, {})] * 2
    patient = RetryPolicy(attempts=2, first_wait=600, max_wait=600)
    made = ChatEngine("chat:test", server.url, "m", retry=patient)
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.3, stop.set)
    got = await made.sample(ask(), stop)
    await made.close()
    assert (got.finish_reason, got.text) == ("interrupted", "")
