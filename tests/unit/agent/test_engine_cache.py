"""Rollouts of a shared worker have one engine together; each release is counted."""

from collections.abc import Mapping
from typing import Any

from houston_daemon.agent.engine_cache import UNUSED_LIMIT, EngineCache
from houston_daemon.engines.token_engine import TokenEngine
from houston_shared.records import RolloutSpec, TaskRecord

TASK = TaskRecord(name="t", folder="/", definition="", instructions="")
URL = "http://127.0.0.1:9/v1"


def spec(**settings: Any) -> RolloutSpec:
    return RolloutSpec(
        rollout="r", task=TASK, engine="e", engine_settings={"kind": "token", **settings}
    )


def engine() -> TokenEngine:
    return TokenEngine("e", URL)


def is_closed(made: TokenEngine) -> bool:
    return made._http.is_closed


async def kept(cache: EngineCache, of: RolloutSpec, made: TokenEngine) -> object:
    settings: Mapping[str, Any] = of.engine_settings
    return (await cache.keep(of, URL, made, settings))[0]


async def test_a_second_rollout_gets_the_engine_of_the_first() -> None:
    cache, first = EngineCache(), engine()
    assert cache.take(spec(), URL) is None
    assert await kept(cache, spec(), first) is first
    assert cache.has(spec(), URL)
    assert cache.take(spec(), URL) == (first, spec().engine_settings)
    await cache.release(first)
    await cache.release(first)
    assert not is_closed(first), "the next rollout comes soon"
    await cache.close()
    assert is_closed(first)


async def test_of_two_that_were_made_at_once_one_is_kept() -> None:
    cache, first, second = EngineCache(), engine(), engine()
    await kept(cache, spec(), first)
    assert await kept(cache, spec(), second) is first
    assert (is_closed(first), is_closed(second)) == (False, True)


async def test_who_is_asked_otherwise_is_another() -> None:
    cache, first = EngineCache(), engine()
    await kept(cache, spec(), first)
    assert not cache.has(spec(adapters={"policy@2": "/p2"}), URL)
    assert not cache.has(spec(), "http://127.0.0.1:10/v1")


async def test_engines_that_nobody_uses_go_and_those_in_use_stay() -> None:
    cache, used = EngineCache(), engine()
    await kept(cache, spec(model="used"), used)
    others = [engine() for _ in range(UNUSED_LIMIT + 2)]
    for number, made in enumerate(others):
        await kept(cache, spec(model=str(number)), made)
        await cache.release(made)
    assert [is_closed(made) for made in others] == [True, True] + [False] * UNUSED_LIMIT
    assert not is_closed(used)


async def test_an_engine_of_a_script_is_made_for_each_rollout() -> None:
    cache, made = EngineCache(), engine()
    assert await kept(cache, spec(kind="script"), made) is made
    assert not cache.has(spec(kind="script"), URL)
    await cache.release(made)
    assert is_closed(made)
