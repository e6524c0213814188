"""An engine of several servers: which one a rollout keeps to, and every way in which one fails.

Two real embedded servers with a tiny model; what no such server does (a refusal with 429, an
adapter that it cannot load) is answered by a scripted endpoint beside them.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from houston_daemon.engines import engine_http, token_engine
from houston_daemon.engines.engine_protocol import (
    EngineRefused,
    EngineSample,
    EngineUnavailable,
    SampleRequest,
)
from houston_daemon.engines.engine_registry import choose_engine
from houston_daemon.engines.replicated_engine import ReplicatedEngine
from houston_daemon.service.engine_supervisor import adapters_of
from houston_daemon.training.policies import adapter_loader
from houston_shared.backoff import RetryPolicy
from houston_shared.engine_settings import EngineSettings, server_name
from houston_shared.errors import HoustonError
from houston_shared.wire import EngineReplica, ReplicaUse
from tests.engines.adapters import make_adapter
from tests.engines.conftest import Served, free_port, serve
from tests.integration.agent.endpoint import Answer, Endpoint, Page, error
from tests.training.sft import tiny

pytestmark = pytest.mark.timeout(400)
LONG = 500
"""Tokens of a sample in the middle of which a server can be lost."""
QUICK = RetryPolicy(attempts=2, first_wait=0.01, max_wait=0.02)


# --- which one ------------------------------------------------------------------------------------


def replicas(*names: str, **states: str) -> tuple[EngineReplica, ...]:
    return tuple(
        EngineReplica(name, f"http://{name}/v1", states.get(name, "ready"))  # type: ignore[arg-type]
        for name in names
    )


def routed(count: int, among: tuple[EngineReplica, ...]) -> dict[str, str]:
    engine = ReplicatedEngine("e", among, lambda replica: NoEngine())
    uses = {f"task-{number}": engine.use_of(f"task-{number}") for number in range(count)}
    return {rollout: use.replica for rollout, use in uses.items() if use}


class NoEngine:
    """A client that is asked nothing."""

    name, token_ids, window = "none", True, None


def test_a_rollout_keeps_to_its_replica_whoever_asks() -> None:
    three = replicas("a", "b", "c")
    assert routed(50, three) == routed(50, three[::-1]), "also after a restart"


def test_only_the_rollouts_of_a_replica_that_is_away_move() -> None:
    before = routed(300, replicas("a", "b", "c"))
    after = routed(300, replicas("a", "b", "c", b="down"))
    moved = {rollout for rollout in before if before[rollout] != after[rollout]}
    assert moved == {rollout for rollout in before if before[rollout] == "b"}
    shares = Counter(after[rollout] for rollout in moved)
    assert set(shares) == {"a", "c"} and min(shares.values()) > len(moved) / 4, "both take some"
    assert max(Counter(before.values()).values()) < 130, "each has about a third"


@pytest.mark.parametrize(
    ("states", "kept"),
    [
        pytest.param({"a": "draining"}, {"b"}, id="one that leaves takes no more"),
        pytest.param({"a": "down", "b": "draining"}, {"b"}, id="the last one that answers does"),
        pytest.param({"a": "down", "b": "down"}, set(), id="none that is down"),
    ],
)
def test_where_samples_may_go(states: dict[str, str], kept: set[str]) -> None:
    assert set(routed(20, replicas("a", "b", **states)).values()) == kept


# --- faults, at real servers ----------------------------------------------------------------------


@dataclass
class Servers:
    """Two embedded servers of one model."""

    served: tuple[Served, Served]
    adapter: Path

    @property
    def urls(self) -> list[str]:
        return [each.process.url for each in self.served]

    def of(self, name: str) -> Served:
        return next(each for each in self.served if server_name(each.process.url) == name)

    def engine(self, *more_urls: str, **settings: Any) -> ReplicatedEngine:
        made = choose_engine(
            {"kind": "token", "urls": [*self.urls, *more_urls], **settings}, None, "pool", QUICK
        )
        assert isinstance(made, ReplicatedEngine)
        return made


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    folder = tmp_path_factory.mktemp("replicas")
    model = tiny.save_model(folder / "model", max_position_embeddings=4_096)
    with ExitStack() as ending:
        made = []
        for number in range(2):
            port, own = free_port(), folder / str(number)
            words = ["-m", "houston_daemon.engines.embedded", "--die-with-parent"]
            words += ["--model", str(model), "--port", str(port), "--dtype", "float32"]
            served = serve("embedded", [sys.executable, *words], port, own, model)
            made.append(next(served))
            ending.callback(served.close)
        yield Servers((made[0], made[1]), make_adapter(folder / "policy@2", 2, width=32, layers=2))


@pytest.fixture
async def pool(servers: Servers) -> AsyncIterator[ReplicatedEngine]:
    engine = servers.engine(adapters={"policy@2": str(servers.adapter)})
    await engine.ready()
    yield engine
    await engine.close()


@pytest.fixture
def streaming(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once a part of an answer has come."""
    begun = asyncio.Event()

    async def telling(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
        async for event in engine_http.read_events(response):
            yield event
            begun.set()

    monkeypatch.setattr(token_engine, "read_events", telling)
    return begun


def asks(rollout: str = "probe-aaaa", tokens: int = 8, policy: str = "") -> SampleRequest:
    return SampleRequest(
        prompt_ids=list(range(2, 40)),
        messages=(),
        tools=(),
        max_tokens=tokens,
        temperature=0,
        policy=policy,
        rollout=rollout,
    )


async def sampled(engine: ReplicatedEngine, request: SampleRequest) -> EngineSample:
    return await engine.sample(request, asyncio.Event())


def told(engine: ReplicatedEngine, servers: Servers, **states: str) -> None:
    """Tell the engine how its servers stand. states: by `home` and `other` of the probe."""
    use = engine.use_of("probe-aaaa")
    assert use
    engine.use(
        [
            EngineReplica(
                name := server_name(url),
                url,
                states.get("home" if name == use.replica else "other", "ready"),  # type: ignore[arg-type]
                "it does not answer",
            )
            for url in servers.urls
        ]
    )


@pytest.mark.parametrize("fault", ["killed", "stalled"])
async def test_a_replica_is_lost_in_mid_sample(
    servers: Servers,
    pool: ReplicatedEngine,
    streaming: asyncio.Event,
    caplog: pytest.LogCaptureFixture,
    fault: str,
) -> None:
    """The whole request goes to the other one, and its answer is as if nothing had happened."""
    expected = await sampled(pool, asks("another", LONG))
    streaming.clear()
    asking = asyncio.ensure_future(sampled(pool, asks(tokens=LONG)))
    await streaming.wait()
    home = pool.use_of("probe-aaaa")
    assert home and home.requests == 1
    process = servers.of(home.replica).process
    assert process.pid
    number = signal.SIGKILL if fault == "killed" else signal.SIGSTOP
    send(process.pid, number)
    try:
        if fault == "stalled":
            told(pool, servers, home="down")
        got = await asking
    finally:
        send(process.pid, signal.SIGCONT)
        if fault == "killed":
            servers.of(home.replica).start()
    assert (got.token_ids, got.finish_reason) == (expected.token_ids, "length")
    assert got.logprobs == pytest.approx(expected.logprobs, abs=1e-3)
    assert f"replica {home.replica} of engine pool is not used" in caplog.text
    told(pool, servers)
    assert (await sampled(pool, asks())).finish_reason == "length"
    assert pool.use_of("probe-aaaa") == ReplicaUse(home.replica), "both are back"


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


async def test_a_silent_one_is_left_without_a_daemon_too(servers: Servers) -> None:
    """A judge or a trainer is told by nobody that a server hangs."""
    engine = servers.engine(silence_seconds=0.5)
    await engine.ready()
    home = engine.use_of("probe-aaaa")
    assert home
    pid = servers.of(home.replica).process.pid
    assert pid
    send(pid, signal.SIGSTOP)
    try:
        got = await sampled(engine, asks())
    finally:
        send(pid, signal.SIGCONT)
        await engine.close()
    assert got.finish_reason == "length"


async def test_what_a_leaving_one_samples_is_waited_for(
    servers: Servers, pool: ReplicatedEngine, streaming: asyncio.Event
) -> None:
    asking = asyncio.ensure_future(sampled(pool, asks(tokens=LONG)))
    await streaming.wait()
    home = pool.use_of("probe-aaaa")
    assert home
    told(pool, servers, home="draining")
    assert pool.use_of("probe-aaaa") == home, "it still works at the sample"
    assert len((await asking).token_ids or ()) == LONG
    now = pool.use_of("probe-aaaa")
    assert now and now.replica != home.replica, "the next goes elsewhere"


async def test_every_replica_samples_with_the_rollouts_policy(
    servers: Servers, pool: ReplicatedEngine
) -> None:
    """One that lacks the adapter loads it; none answers with its own model instead."""
    base = await sampled(pool, asks())
    used: set[str] = set()
    for number in range(12):
        rollout = f"probe-{number}"
        got = await sampled(pool, asks(rollout, policy="policy@2"))
        assert got.logprobs != pytest.approx(base.logprobs, abs=1e-3)
        use = pool.use_of(rollout)
        used.add(use.replica if use else "")
    assert used == set(map(server_name, servers.urls)), "both were asked"


def test_an_activation_loads_into_all_or_none(servers: Servers) -> None:
    card = {"id": "m", "max_model_len": 4_096}
    pages = {
        "/models": lambda _: (200, {"data": [card]}),
        "/load_lora_adapter": lambda _: error(400, "no room for it"),
    }
    endpoint = Endpoint(lambda body: error(500, "it is asked nothing"), pages=pages)
    two = [adapter_loader.AdapterServer(server_name(url), url) for url in servers.urls]
    with pytest.raises(HoustonError, match="no room for it"):
        third = adapter_loader.AdapterServer("third", endpoint.url)
        adapter_loader.load_on_all([*two, third], "policy@3", servers.adapter, {}, {})
    endpoint.close()
    had = [adapter_loader.served_models(each).adapters.keys() for each in two]
    assert not any("policy@3" in names for names in had), "who had loaded it has it no more"
    assert adapter_loader.load_on_all(two, "policy@3", servers.adapter, {}, {}) == ()
    assert all("policy@3" in adapter_loader.served_models(each).adapters for each in two)


def says_429(body: Any) -> Answer:
    return error(429, "too many requests")


def has_no_adapter(body: Any) -> Answer:
    return error(404, "The model `policy@2` does not exist.")


@pytest.mark.parametrize(
    ("decide", "why"),
    [
        pytest.param(says_429, "429", id="refuses with 429"),
        pytest.param(has_no_adapter, "policy@2", id="cannot load the adapter"),
        pytest.param(lambda body: error(500, "CUDA error"), "500", id="a fault of its own"),
        pytest.param(lambda body: error(401, "wrong key"), "401", id="takes another key"),
    ],
)
async def test_a_replica_refuses(
    servers: Servers, caplog: pytest.LogCaptureFixture, decide: Callable[[Any], Answer], why: str
) -> None:
    """The rollout goes to the next at once, and asks that one no more for a while."""
    card = {"id": "m", "max_model_len": 4_096}
    pages = {
        "/models": lambda _: (200, {"data": [card]}),
        "/health": lambda _: (200, {}),
        "/load_lora_adapter": lambda _: error(400, "no room for policy@2"),
    }
    endpoint = Endpoint(decide, pages=pages)
    engine = servers.engine(endpoint.url, adapters={"policy@2": str(servers.adapter)})
    theirs = server_name(endpoint.url)
    rollouts = [f"probe-{number}" for number in range(40)]
    homes = {rollout: engine.use_of(rollout) for rollout in rollouts}
    at_it = [rollout for rollout, use in homes.items() if use == ReplicaUse(theirs)]
    try:
        for rollout in at_it[:3]:
            got = await sampled(engine, asks(rollout, policy="policy@2"))
            assert got.finish_reason == "length"
    finally:
        endpoint.close()
        await engine.close()
    assert len(at_it) >= 3 and len(endpoint.asked) == 1, "the others of it did not try again"
    assert theirs in caplog.text and why in caplog.text, "the log says why the rollout moved"


async def test_all_are_away_and_one_comes_back(servers: Servers) -> None:
    ports = [free_port(), free_port()]
    urls = [f"http://127.0.0.1:{port}/v1" for port in ports]
    engine = choose_engine({"kind": "token", "urls": urls}, None, "pool", QUICK)
    assert isinstance(engine, ReplicatedEngine)
    with pytest.raises(EngineUnavailable) as raised:
        await sampled(engine, asks())
    assert all(f"127.0.0.1:{port}" in raised.value.cause for port in ports)
    ended = EngineReplica("a", urls[0], "down", "it ended")
    engine.use([ended, EngineReplica("b", urls[1], "down")])
    with pytest.raises(EngineUnavailable) as raised:
        await sampled(engine, asks())
    assert "none of the 2 replicas of engine pool answers (a: it ended)" in raised.value.cause
    engine.use([ended, EngineReplica("b", servers.urls[0])])
    assert (await sampled(engine, asks())).finish_reason == "length"
    await engine.close()


async def test_what_all_refuse_is_refused() -> None:
    endpoints = [Endpoint(lambda body: error(400, "temperature?")) for _ in range(2)]
    engine = choose_engine(
        {"kind": "chat", "model": "m", "urls": [each.url for each in endpoints]},
        None,
        "pool",
        QUICK,
    )
    with pytest.raises(EngineRefused, match="temperature"):
        await engine.sample(replace(asks(), prompt_ids=None), asyncio.Event())
    for endpoint in endpoints:
        endpoint.close()
    await engine.close()


async def test_an_interrupted_sample_is_no_failure(
    pool: ReplicatedEngine, streaming: asyncio.Event
) -> None:
    stop = asyncio.Event()
    asking = asyncio.ensure_future(pool.sample(asks(tokens=LONG), stop))
    await streaming.wait()
    home = pool.use_of("probe-aaaa")
    stop.set()
    got = await asking
    assert got.finish_reason == "interrupted" and 0 < len(got.token_ids or ()) < LONG
    now = pool.use_of("probe-aaaa")
    assert home and now and now.replica == home.replica


@pytest.mark.parametrize(
    ("page", "found"),
    [
        pytest.param(
            (200, {"data": [{"id": "m"}, {"id": "p@2", "parent": "m"}]}), ("p@2",), id="one"
        ),
        pytest.param(Page("<html>"), (), id="a page of HTML"),
        pytest.param((200, {"data": [7]}), (), id="no models"),
        pytest.param(error(500, "busy"), (), id="a fault"),
    ],
)
def test_what_a_replica_has_loaded(page: Answer, found: tuple[str, ...]) -> None:
    """Whatever it says, who watches it goes on."""
    endpoint = Endpoint(lambda body: page, pages={"/models": lambda _: page})
    assert adapters_of(EngineSettings(kind="token"), endpoint.url) == found
    endpoint.close()


def test_nothing_of_a_url_is_shown_but_where() -> None:
    assert server_name("http://user:key@10.0.0.1:8000/v1?token=x") == "10.0.0.1:8000"
