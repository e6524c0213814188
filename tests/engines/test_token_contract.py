"""What every token server must do, whoever serves it: the same scenarios for embedded and vLLM."""

import asyncio
import json
import os
import shutil
import signal
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.engines import token_engine
from houston_daemon.engines.engine_protocol import EngineRefused, EngineUnavailable, SampleRequest
from houston_daemon.engines.token_engine import TokenEngine
from houston_daemon.review.judge import judge_engine as desks
from houston_daemon.review.judge import judge_template, judge_verdicts
from houston_daemon.review.judge.judge_cache import JudgeCache
from houston_daemon.review.judge.judge_client import JudgeCost, WindowJudge
from houston_shared.backoff import RetryPolicy
from houston_shared.config_sections import JudgeSettings
from houston_shared.home import Home
from tests.engines.adapters import make_adapter
from tests.engines.conftest import Served
from tests.support.judged_rollouts import step, trace

END = 2
SCHEMA = {
    "type": "object",
    "properties": {
        "thought": {"type": "string", "maxLength": 40},
        "call": {
            "type": "object",
            "properties": {
                "name": {"enum": ["sleep", "open_file"]},
                "seconds": {"type": "integer", "minimum": 0, "maximum": 60},
            },
            "required": ["name", "seconds"],
            "additionalProperties": False,
        },
    },
    "required": ["thought", "call"],
    "additionalProperties": False,
}


def ask(served: Served, text: str = "Count from one to five.", **changes: object) -> SampleRequest:
    """A greedy request with a cache of its own: what follows a cached prefix is computed in other
    portions and may round to another id where two are as good as equal."""
    plain = SampleRequest(
        prompt_ids=served.ids(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"),
        messages=(),
        tools=(),
        max_tokens=16,
        stop_token_ids=(END,),
        temperature=0,
        cache_salt=uuid.uuid4().hex,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def endless(served: Served) -> SampleRequest:
    """A request that this model answers by saying the same sentence until its bound."""
    return ask(served, "Say hello.", max_tokens=4000)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of two policies, the same for all who share the server."""
    folder = tmp_path_factory.mktemp("policies")
    return {f"policy@{n}": str(make_adapter(folder / str(n), n)) for n in (2, 3)}


async def sampled(engine: TokenEngine, request: SampleRequest):  # type: ignore[no-untyped-def]
    return await engine.sample(request, asyncio.Event())


@pytest.mark.slow
async def test_knows_its_window(engine: TokenEngine) -> None:
    assert engine.window == 8192


async def test_prompt_ids_come_back_as_sent(engine: TokenEngine, served: Served) -> None:
    request = ask(served)
    got = await sampled(engine, request)
    assert list(got.prompt_ids) == list(request.prompt_ids or ())


async def test_every_sampled_id_has_one_log_probability(
    engine: TokenEngine, served: Served
) -> None:
    got = await sampled(engine, ask(served, temperature=0.9, top_p=0.95))
    assert len(got.token_ids) == len(got.logprobs) > 0
    assert all(value <= 0 for value in got.logprobs)
    assert got.text == served.text([i for i in got.token_ids if i != END])


async def test_the_stop_token_is_sampled_and_not_shown(engine: TokenEngine, served: Served) -> None:
    got = await sampled(engine, ask(served, "What is the capital of France?", max_tokens=40))
    assert got.finish_reason == "stop"
    assert got.token_ids[-1] == END
    assert "<|im_end|>" not in got.text


@pytest.mark.slow
async def test_a_stop_token_of_the_request_ends_the_sample(
    engine: TokenEngine, served: Served
) -> None:
    free = await sampled(engine, ask(served))
    third = free.token_ids[2]
    got = await sampled(engine, ask(served, stop_token_ids=(END, third)))
    assert got.finish_reason == "stop"
    assert list(got.token_ids) == list(free.token_ids[: list(free.token_ids).index(third) + 1])


@pytest.mark.slow
async def test_an_answer_at_its_bound_says_length(engine: TokenEngine, served: Served) -> None:
    got = await sampled(engine, ask(served, max_tokens=3))
    assert got.finish_reason == "length"
    assert len(got.token_ids) == 3


@pytest.mark.slow
async def test_guided_answers_are_always_valid(engine: TokenEngine, served: Served) -> None:
    def one(number: int) -> SampleRequest:
        return ask(
            served,
            f"Choose a call, number {number}.",
            grammar=SCHEMA,
            temperature=0.9,
            max_tokens=200,
        )

    for got in await asyncio.gather(*(sampled(engine, one(number)) for number in range(10))):
        answer = json.loads(got.text)
        assert set(answer) == {"thought", "call"}
        assert len(answer["thought"]) <= 40
        assert answer["call"]["name"] in ("sleep", "open_file")
        assert 0 <= answer["call"]["seconds"] <= 60
        assert got.finish_reason == "stop"
        assert got.token_ids[-1] == END, "rows train no answer that has no stop token"


async def test_log_probabilities_say_what_they_are_of(engine: TokenEngine, served: Served) -> None:
    """Raw ones do not change with the temperature; a grammar's are after its mask."""
    question = "What is the capital of France?"
    cold = await sampled(engine, ask(served, question, max_tokens=1))
    hot = await sampled(engine, ask(served, question, max_tokens=1, temperature=0.01))
    assert hot.token_ids == cold.token_ids
    assert hot.logprobs[0] == pytest.approx(cold.logprobs[0], abs=0.05)
    assert cold.logprobs[0] < -1e-3  # at temperature 0.01 itself it would be 0
    assert hot.logprob_kind == "before_temperature", "it was drawn at 0.01"
    forced = await sampled(engine, ask(served, grammar={"const": "Z"}, temperature=1))
    assert forced.logprob_kind == "after_grammar"
    assert forced.text == '"Z"'


@pytest.mark.slow
async def test_temperature_zero_is_deterministic(engine: TokenEngine, served: Served) -> None:
    first, second = [
        await sampled(engine, ask(served, "Name three colours.", max_tokens=12)) for _ in range(2)
    ]
    assert first.token_ids == second.token_ids


@pytest.mark.slow
async def test_an_extended_prompt_is_taken_from_the_cache(
    engine: TokenEngine, served: Served
) -> None:
    """An append-only context pays for what was appended, up to a block of the cache."""
    salt = "extended"
    prompt = served.ids("one two three four five six seven eight nine ten " * 60)
    first = await sampled(engine, ask(served, prompt_ids=prompt, cache_salt=salt))
    longer = [*prompt, *first.token_ids, *served.ids("eleven twelve thirteen " * 10)]
    second = await sampled(engine, ask(served, prompt_ids=longer, cache_salt=salt))
    assert first.usage.cached_tokens in (0, None)
    assert second.usage.cached_tokens >= (len(prompt) // 128) * 128
    other = await sampled(engine, ask(served, prompt_ids=longer, cache_salt="policy@2"))
    assert other.usage.cached_tokens in (0, None)


async def test_a_cached_continuation_is_the_uncached_one(
    engine: TokenEngine, served: Served
) -> None:
    head = served.ids("<|im_start|>user\n" + "The sky is blue. The grass is green. " * 20)
    tail = served.ids("What colour is the sky?<|im_end|>\n<|im_start|>assistant\n")
    await sampled(engine, ask(served, prompt_ids=head, cache_salt="a", max_tokens=1))
    cached = await sampled(engine, ask(served, prompt_ids=head + tail, cache_salt="a"))
    fresh = await sampled(engine, ask(served, prompt_ids=head + tail, cache_salt="b"))
    assert cached.usage.cached_tokens > 0 == (fresh.usage.cached_tokens or 0)
    assert cached.token_ids == fresh.token_ids


@pytest.fixture
def first_ids(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when ids of any sample have come: from then on it is under way."""
    came, add = asyncio.Event(), token_engine._PartialSample._add_choice

    def add_and_tell(partial: Any, choice: Any) -> None:
        add(partial, choice)
        if partial.ids:
            came.set()

    monkeypatch.setattr(token_engine._PartialSample, "_add_choice", add_and_tell)
    return came


async def test_an_interrupt_keeps_what_was_sampled(
    engine: TokenEngine, served: Served, first_ids: asyncio.Event
) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(engine.sample(endless(served), stop))
    await first_ids.wait()
    stop.set()
    got = await running
    assert got.finish_reason == "interrupted"
    assert 0 < len(got.token_ids) == len(got.logprobs) < 4000
    after = await sampled(engine, ask(served))  # the server is free at once
    assert after.finish_reason in ("stop", "length")


async def test_a_set_stop_samples_nothing(engine: TokenEngine, served: Served) -> None:
    stop = asyncio.Event()
    stop.set()
    got = await engine.sample(ask(served), stop)
    assert (got.finish_reason, list(got.token_ids)) == ("interrupted", [])


REFUSED = {
    "prompt and answer over the window": {"prompt_ids": [100] * 8192, "max_tokens": 100},
    "an id outside the vocabulary": {"prompt_ids": [1, 49152 + 10_000]},
    "a policy that nobody loaded": {"policy": "policy@9"},
    "a schema that is none": {"grammar": {"type": "no such type"}},
}


@pytest.mark.parametrize("case", REFUSED)
async def test_a_wrong_request_is_refused(engine: TokenEngine, served: Served, case: str) -> None:
    with pytest.raises(EngineRefused):
        await sampled(engine, ask(served, **REFUSED[case]))
    assert (await sampled(engine, ask(served, max_tokens=1))).token_ids


async def test_requests_in_flight_share_the_server(
    engine: TokenEngine, served: Served, first_ids: asyncio.Event
) -> None:
    """A short request does not wait for the end of a long one."""
    stop = asyncio.Event()
    running = asyncio.create_task(engine.sample(endless(served), stop))
    await first_ids.wait()
    short = await sampled(engine, ask(served, max_tokens=3))
    assert len(short.token_ids) == 3
    assert not running.done()
    stop.set()
    assert (await running).finish_reason == "interrupted"


@pytest.mark.slow
async def test_a_policy_is_loaded_when_it_is_first_asked_for(
    served: Served, adapters: dict[str, str]
) -> None:
    """Each policy samples with its own adapter, the base model stays as it was."""
    engine = TokenEngine(served.kind, served.process.url, adapters=adapters)
    base = await sampled(engine, ask(served))
    second = await sampled(engine, ask(served, policy="policy@2"))
    third = await sampled(engine, ask(served, policy="policy@3"))
    assert len({base.token_ids, second.token_ids, third.token_ids}) == 3
    assert (await sampled(engine, ask(served, policy="policy@2"))).token_ids == second.token_ids
    assert (await sampled(engine, ask(served))).token_ids == base.token_ids
    await engine.close()


@pytest.mark.slow
async def test_another_policy_of_the_same_name_is_never_sampled_from(
    served: Served, adapters: dict[str, str], tmp_path: Path
) -> None:
    """Homes that share a server each count from 2: the ledger would name the wrong one."""
    theirs = TokenEngine(served.kind, served.process.url, adapters=adapters)
    await sampled(theirs, ask(served, policy="policy@2", max_tokens=1))
    folder = str(make_adapter(tmp_path / "2", 7))
    ours = TokenEngine(served.kind, served.process.url, adapters={"policy@2": folder})
    with pytest.raises(EngineUnavailable, match="has another policy@2"):
        await sampled(ours, ask(served, policy="policy@2"))
    await sampled(theirs, ask(served, policy="policy@2", max_tokens=1))
    await theirs.close()
    await ours.close()


@pytest.mark.slow
async def test_what_a_home_at_the_same_path_has_left_is_never_sampled_from(
    served: Served, tmp_path: Path
) -> None:
    """The server outlives a home that is built anew; the ledger would name other weights."""
    got = []
    for seed, content in ((2, "aa"), (7, "bb"), (7, "bb")):
        folder = tmp_path / "policies" / "policy@9"
        shutil.rmtree(tmp_path / "policies", ignore_errors=True)
        make_adapter(folder, seed)
        engine = TokenEngine(
            served.kind,
            served.process.url,
            adapters={"policy@9": str(folder)},
            contents={"policy@9": content},
        )
        got.append((await sampled(engine, ask(served, policy="policy@9"))).token_ids)
        await engine.close()
    assert got[0] != got[1] == got[2]


@pytest.mark.slow
async def test_an_adapter_that_is_not_there_is_refused(served: Served, tmp_path: Path) -> None:
    gone = {"policy@8": str(tmp_path / "gone")}
    engine = TokenEngine(served.kind, served.process.url, adapters=gone)
    with pytest.raises(EngineRefused):
        await sampled(engine, ask(served, policy="policy@8"))
    await engine.close()


@pytest.mark.slow
async def test_a_killed_server_is_unavailable_and_the_request_works_later(
    served: Served, adapters: dict[str, str], first_ids: asyncio.Event
) -> None:
    """kill -9 in mid-sample: the same request is answered by the server that is started again,
    which has lost its adapters and gets them again."""
    engine = TokenEngine(
        served.kind,
        served.process.url,
        adapters=adapters,
        retry=RetryPolicy(attempts=2, first_wait=0.1),
    )
    await engine.ready()
    before = await sampled(engine, ask(served, policy="policy@2"))
    first_ids.clear()
    running = asyncio.create_task(sampled(engine, endless(served)))
    await first_ids.wait()
    os.kill(served.process.pid or 0, signal.SIGKILL)
    with pytest.raises(EngineUnavailable):
        await running
    served.process.stop()
    with pytest.raises(EngineUnavailable):
        await engine.ready()
    served.start()  # on this thread: a server that ends with its parent ends with its thread
    got = await sampled(engine, replace(endless(served), max_tokens=5))
    assert len(got.token_ids) == 5
    after = await sampled(engine, ask(served, policy="policy@2"))
    assert after.token_ids == before.token_ids
    await engine.close()


@pytest.mark.slow
async def test_a_judge_gets_a_verdict(served: Served, tmp_path: Path) -> None:
    """The whole path but the recorder: windows that fit, ids, the schema, the answer, the cache."""
    made = trace([step(1, "a line")])
    short = judge_template.parse_template(
        "=== system ===\nSay of each step keep or mask.\n=== window ===\n{{task}}\n{{scores}}\n"
        "{{guidance}}\n{{key}}\n{{steps}}\n{{judged}}\n=== again ===\n{{problem}} {{judged}}\n",
        "short",
    )
    settings = {"kind": "token", "url": served.process.url, "tokenizer": str(served.tokenizer_file)}
    engine = TokenEngine(served.kind, served.process.url)
    await engine.ready()
    desk = desks.make_judge_client(served.kind, engine, settings)
    assert desk.window == engine.window == 8192 and desk.model
    cost = JudgeCost()
    asking = WindowJudge(desk, short, JudgeSettings(), JudgeCache(Home(tmp_path)), cost)
    windows = judge_verdicts.plan_windows(made, short, desk)
    first = [await asking.judge_window(window) for window in windows]
    assert [list(one.steps) for one in first] == [[1]]
    assert cost.requests >= 1 and cost.sampled_tokens > 10 and not cost.about
    again = [await asking.judge_window(window) for window in windows]
    assert [one.steps for one in again] == [one.steps for one in first]
    assert all(one.cached for one in again)
    await engine.close()
