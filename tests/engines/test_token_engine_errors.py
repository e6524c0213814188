"""Whatever a token server streams, an engine asks again or refuses in a sentence."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from houston_daemon.engines import engine_http
from houston_daemon.engines.engine_protocol import EngineRefused, EngineUnavailable, SampleRequest
from houston_daemon.engines.token_engine import TokenEngine
from houston_shared.backoff import RetryPolicy
from tests.engines.chat_server import ChatServer
from tests.support.web import web

ASKED = SampleRequest(prompt_ids=[1, 2], messages=(), tools=(), max_tokens=4)


def choice(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, **fields}]}


GOOD = choice(text="ok", token_ids=[7], logprobs={"token_logprobs": [-0.5]}, finish_reason="stop")
ODD: dict[str, Any] = {
    "a list": [],
    "choices that are a number": {"choices": 3},
    "a choice that is a text": {"choices": ["x"]},
    "log-probabilities in a list": choice(text="a", token_ids=[7], logprobs=[-0.5]),
    "ids that are a number": choice(text="a", token_ids=7),
    "ids in letters": choice(
        text="a", token_ids=["7"], logprobs={"token_logprobs": [-0.5]}, finish_reason="stop"
    ),
    "a log-probability that is none": choice(
        text="a", token_ids=[7], logprobs={"token_logprobs": [None]}, finish_reason="stop"
    ),
    "a text that is a table": choice(
        text=[1], token_ids=[7], logprobs={"token_logprobs": [-0.5]}, finish_reason="stop"
    ),
    "a sample that it gave up": choice(
        text="a", token_ids=[8], logprobs={"token_logprobs": [-0.5]}, finish_reason="abort"
    ),
    "usage that is a list": {"usage": [1], "choices": []},
}


@pytest.fixture
def server() -> Iterator[ChatServer]:
    made = ChatServer()
    made.start()
    yield made
    made.stop()


def engine(server: ChatServer) -> TokenEngine:
    retry = RetryPolicy(attempts=2, first_wait=0.01, max_wait=0.01)
    return TokenEngine("token:test", server.url, "m", 100, retry=retry)


@pytest.mark.parametrize("name", ODD)
async def test_it_is_asked_again(server: ChatServer, name: str) -> None:
    server.answers += [[ODD[name]], [GOOD]]
    made = engine(server)
    got = await made.sample(ASKED, asyncio.Event())
    assert (got.text, list(got.token_ids or ()), len(server.asked)) == ("ok", [7], 2)
    await made.close()


async def test_samples_share_a_connection(server: ChatServer) -> None:
    """Over TLS a new one takes longer than many a tool call."""
    server.answers += [[GOOD]] * 3
    made = engine(server)
    for _ in range(3):
        await made.sample(ASKED, asyncio.Event())
    assert len(server.ports) == 3 and len(set(server.ports)) == 1
    await made.close()


async def test_a_stream_that_stays_open_is_not_waited_for(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_http, "STREAM_END_SECONDS", 0.1)
    server.answers += [[GOOD, "stay"], [GOOD]]
    made = engine(server)
    for _ in range(2):
        got = await asyncio.wait_for(made.sample(ASKED, asyncio.Event()), 30)
        assert got.text == "ok"
    assert len(set(server.ports)) == 2
    assert await asyncio.to_thread(server.left.wait, 10), "it was left"
    await made.close()


async def test_one_that_never_learns_is_unavailable(server: ChatServer) -> None:
    server.answers += [[ODD["a list"]]] * 2
    made = engine(server)
    with pytest.raises(EngineUnavailable, match="not a JSON object"):
        await made.sample(ASKED, asyncio.Event())
    await made.close()


async def test_a_cache_is_salted_with_what_a_policy_is_and_not_only_with_its_name(
    server: ChatServer,
) -> None:
    """Another one may have had its name on this server, and left what it computed."""
    folder = {"policy@2": "/home/policies/policy@2"}
    kinds: list[dict[str, Any]] = [
        {},
        {"adapters": folder},
        {"adapters": folder, "contents": {"policy@2": "a"}},
        {"adapters": folder, "contents": {"policy@2": "b"}},
    ]
    server.answers += [[GOOD]] * len(kinds)
    for kind in kinds:
        made = TokenEngine("token:test", server.url, "m", 100, **kind)
        asked = replace(ASKED, policy="policy@2", cache_salt="policy@2")
        await made.sample(asked, asyncio.Event())
        await made.close()
    assert len({asked["cache_salt"] for asked in server.asked}) == len(kinds)


async def test_ids_without_their_log_probabilities_are_refused(server: ChatServer) -> None:
    server.answers += [[choice(text="a", token_ids=[7], finish_reason="stop")]]
    made = engine(server)
    with pytest.raises(EngineRefused, match="1 token ids with 0 log-prob"):
        await made.sample(ASKED, asyncio.Event())
    await made.close()


@pytest.mark.parametrize("body", [{"data": []}, {"data": None}, {"data": [3]}, [], "x", {}])
async def test_a_server_that_lists_no_model_is_away(body: Any) -> None:
    """So answers one that is still loading, or something else at that address."""
    with web() as pages:
        pages.pages["/health"] = (200, {}, b"")
        pages.pages["/v1/models"] = (200, {}, json.dumps(body).encode())
        made = TokenEngine("token:test", pages.url().rstrip("/") + "/v1")
        with pytest.raises(EngineUnavailable, match="model"):
            await made.ready()
        await made.close()
