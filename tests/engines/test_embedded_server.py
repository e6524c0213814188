"""What only the embedded server has to answer for: its caches, its attention, its own end."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import (
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from houston_daemon.engines.embedded.embedded_model import AdapterRefused, EmbeddedModel
from houston_daemon.engines.embedded.prefix_cache import PrefixCache, PrefixCacheEntry
from houston_daemon.engines.embedded.sampling_jobs import MAX_RUNNING_JOBS, TextStream, draw_token
from houston_daemon.engines.engine_process import process_start_time
from houston_daemon.engines.token_engine import TokenEngine
from tests.engines.adapters import make_adapter
from tests.engines.conftest import Served, free_port
from tests.engines.test_token_contract import ask, endless
from tests.support.family_tokenizers import family_tokenizer
from tests.training.sft.tiny import save_model, save_tokenizer

SCOPE = ("", "")


@pytest.fixture(scope="module")
def tiny() -> LlamaForCausalLM:
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return LlamaForCausalLM(config).eval()


def run(model: LlamaForCausalLM, entry: PrefixCacheEntry, ids: list[int]) -> torch.Tensor:
    """Feed what the entry lacks of `ids`; returns the last logits."""
    with torch.inference_mode():
        out = model(torch.tensor([ids[len(entry.ids) :]]), past_key_values=entry.kv)
    entry.ids[:] = ids
    return out.logits[0, -1]


@pytest.mark.parametrize("window", [None, 6], ids=["full attention", "sliding window"])
def test_rows_of_one_pass_come_out_as_the_library_computes_each(
    tmp_path: Path, window: int | None
) -> None:
    """Long and short rows, prompts in parts, one new token beside many: nobody sees another row."""
    torch.manual_seed(1)
    more = {} if window is None else {"sliding_window": window, "use_sliding_window": True}
    kind = (
        (LlamaConfig, LlamaForCausalLM) if window is None else (MistralConfig, MistralForCausalLM)
    )
    config = kind[0](
        vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, **more,
    )  # fmt: skip
    net = kind[1](config).eval()
    net.save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    model = EmbeddedModel(tmp_path, "float32")
    assert model.shares_passes
    rows = [list(range(1, 40)), [5, 6, 7], list(range(60, 90))]
    cuts = [(20, 38, 39), (1, 2, 3), (29, 29, 30)]
    caches = [DynamicCache(config=config) for _ in rows]
    begun = [0] * len(rows)
    for turn in range(3):
        some = [at for at, cut in enumerate(cuts) if cut[turn] > begun[at]]
        logits = model.forward(
            [(rows[at][begun[at] : cuts[at][turn]], caches[at]) for at in some], ""
        )
        for at in some:
            begun[at] = cuts[at][turn]
        for at, found in zip(some, logits, strict=True):
            with torch.inference_mode():
                wanted = net(torch.tensor([rows[at][: begun[at]]])).logits[0, -1]
            torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)


def one_tensor_of_another_shape(folder: Path) -> None:
    tensors = load_file(folder / "adapter_model.safetensors")
    last = max(name for name in tensors if "lora_B" in name)
    tensors[last] = torch.zeros(tensors[last].shape[0] + 1, tensors[last].shape[1])
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})


def cut_weights(folder: Path) -> None:
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])


def modules_that_are_not_there(folder: Path) -> None:
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"target_modules": ["gone"]}))


def another_kind_of_adapter(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"peft_type": "PROMPT_TUNING"}')


def half_a_config(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", ')


@pytest.mark.parametrize("good_first", [False, True], ids=["the first", "after another"])
@pytest.mark.parametrize(
    "damage",
    [
        one_tensor_of_another_shape,
        cut_weights,
        modules_that_are_not_there,
        another_kind_of_adapter,
        half_a_config,
    ],
)
def test_a_refused_adapter_leaves_the_model_as_it_was(
    tmp_path: Path, damage: Callable[[Path], None], good_first: bool
) -> None:
    """Half of it is in the model by then: the base model must not sample with it, nor another."""
    fresh, model = (EmbeddedModel(save_model(tmp_path / "m"), "float32") for _ in range(2))
    good, bad = (str(make_adapter(tmp_path / name, 3, 32, 2)) for name in ("good", "bad"))

    def logits(of: EmbeddedModel, adapter: str) -> torch.Tensor:
        return of.forward([([1, 2, 3, 4], DynamicCache(config=of.config))], adapter)[0]

    base = logits(fresh, "")
    fresh.load_adapter("good", good)
    assert not torch.allclose(logits(fresh, "good"), base, atol=1e-3)
    if good_first:
        model.load_adapter("good", good)
    damage(Path(bad))
    with pytest.raises(AdapterRefused):
        model.load_adapter("bad", bad)
    torch.testing.assert_close(logits(model, ""), base)
    if not good_first:
        model.load_adapter("good", good)
    torch.testing.assert_close(logits(model, "good"), logits(fresh, "good"))
    torch.testing.assert_close(logits(model, ""), base)
    assert model.adapters == {"good": good}


REUSED = {
    "nothing known": ([], [1, 2, 3], 0),
    "extended": ([1, 2, 3, 4], [1, 2, 3, 4, 5, 6], 4),
    "the same again": ([1, 2, 3, 4], [1, 2, 3, 4], 3),
    "cut back": ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 9], 4),
    "branched early": ([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 9, 9], 2),
    "another start": ([1, 2, 3, 4], [9, 2, 3, 4], 0),
}


@pytest.mark.parametrize("case", REUSED)
def test_the_common_prefix_is_reused_exactly(tiny: LlamaForCausalLM, case: str) -> None:
    known, prompt, common = REUSED[case]
    pool = PrefixCache(tiny.config, 1000)
    if known:
        first = pool.take(SCOPE, known)
        run(tiny, first, known)
        pool.release_entry(first)
    entry = pool.take(SCOPE, prompt)
    assert entry.ids == prompt[:common]
    fresh = PrefixCache(tiny.config, 1000).take(SCOPE, prompt)
    torch.testing.assert_close(run(tiny, entry, prompt), run(tiny, fresh, prompt))


def test_two_at_once_share_a_prefix_without_disturbing_each_other(tiny: LlamaForCausalLM) -> None:
    pool = PrefixCache(tiny.config, 1000)
    head = [1, 2, 3, 4, 5, 6]
    one = pool.take(SCOPE, [*head, 7])
    run(tiny, one, head)
    two = pool.take(SCOPE, [*head, 8])
    assert two is not one
    assert two.ids == head
    expected = run(tiny, PrefixCache(tiny.config, 1000).take(SCOPE, head), [*head, 7])
    run(tiny, two, [*head, 8])
    torch.testing.assert_close(run(tiny, one, [*head, 7]), expected)


def test_adapters_and_salts_never_share(tiny: LlamaForCausalLM) -> None:
    pool = PrefixCache(tiny.config, 1000)
    first = pool.take(("policy@1", "a"), [1, 2, 3])
    run(tiny, first, [1, 2, 3])
    pool.release_entry(first)
    assert pool.take(("policy@2", "a"), [1, 2, 3, 4]).ids == []
    assert pool.take(("policy@1", "b"), [1, 2, 3, 4]).ids == []
    assert pool.take(("policy@1", "a"), [1, 2, 3, 4]).ids == [1, 2, 3]


def test_a_reloaded_adapter_starts_without_caches(tiny: LlamaForCausalLM) -> None:
    """Those at rest and those in use: both hold what the earlier weights computed."""
    pool = PrefixCache(tiny.config, 1000)
    idle, busy = (pool.take(("policy@1", salt), [1, 2, 3]) for salt in "ab")
    for entry in (idle, busy):
        run(tiny, entry, [1, 2, 3])
    pool.release_entry(idle)
    pool.forget("policy@1")
    pool.release_entry(busy)
    for salt in "ab":
        assert pool.take(("policy@1", salt), [1, 2, 3, 4]).ids == []


def test_the_oldest_prefix_is_forgotten_first(tiny: LlamaForCausalLM) -> None:
    pool = PrefixCache(tiny.config, max_tokens=10)
    for start in (10, 20, 30):
        ids = list(range(start, start + 5))
        entry = pool.take(SCOPE, ids)
        run(tiny, entry, ids)
        pool.release_entry(entry)
    assert pool.take(SCOPE, [10, 11, 12]).ids == []
    assert pool.take(SCOPE, [30, 31, 32]).ids == [30, 31]


def test_many_short_contexts_that_act_by_turns_are_all_kept(tiny: LlamaForCausalLM) -> None:
    """A group of rollouts: each comes back when all the others have been."""
    pool = PrefixCache(tiny.config, max_tokens=1000)
    contexts = [[number // 10, number % 10, 3, 3] for number in range(100)]
    for ids in contexts:
        entry = pool.take(SCOPE, ids)
        run(tiny, entry, ids)
        pool.release_entry(entry)
    assert [pool.take(SCOPE, [*ids, 5]).ids for ids in contexts] == contexts


DRAWS = {
    "greedy": ([0.0, 3.0, 2.0], None, 0.0, 1.0, {1}),
    "greedy under a mask": ([0.0, 3.0, 2.0], [True, False, True], 0.0, 1.0, {2}),
    "a small nucleus": ([0.0, 3.0, 2.9], None, 1.0, 0.4, {1}),
    "a nucleus of two": ([0.0, 3.0, 2.9], None, 1.0, 0.9, {1, 2}),
}


@pytest.mark.parametrize("case", DRAWS)
def test_draws(case: str) -> None:
    logits, mask, temperature, top_p, possible = DRAWS[case]
    row = torch.tensor(logits)
    allowed = None if mask is None else torch.tensor(mask)
    seen = {draw_token(row, allowed, temperature, top_p) for _ in range(100)}
    assert {token for token, _ in seen} == possible
    kept = row if allowed is None else row.masked_fill(~allowed, float("-inf"))
    for token, logprob in seen:
        assert logprob == pytest.approx(float(torch.log_softmax(kept, -1)[token]))


@pytest.mark.model
@pytest.mark.parametrize("style", ["mistral-v3", "gemma-4", "llama-3"])
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=st.text(st.characters(blacklist_categories=("Cs",)), max_size=30), data=st.data())
def test_text_is_told_as_it_is_sampled_whatever_that_is(
    tmp_path_factory: pytest.TempPathFactory, style: str, text: str, data: st.DataObject
) -> None:
    tokens = Tokenizer.from_file(family_tokenizer(style, tmp_path_factory.getbasetemp()))
    ids = tokens.encode(text, add_special_tokens=False).ids
    said = TextStream(False)
    told = "".join(said.step(tokens, token) for token in ids)
    whole = tokens.decode(ids, skip_special_tokens=False)
    assert "\ufffd" in whole or told == whole
    noise = data.draw(st.lists(st.integers(0, tokens.get_vocab_size() - 1), max_size=20))
    said = TextStream(False)
    assert len("".join(said.step(tokens, token) for token in noise)) <= sum(
        len(tokens.id_to_token(token)) for token in noise
    )


async def test_clients_that_leave_free_their_places(embedded: Served) -> None:
    """As many endless samples as run at once are abandoned; the next request is still served."""
    engine = TokenEngine("embedded", embedded.process.url)
    stop = asyncio.Event()
    running = [engine.sample(endless(embedded), stop) for _ in range(MAX_RUNNING_JOBS)]
    asyncio.get_running_loop().call_later(2.0, stop.set)
    assert {got.finish_reason for got in await asyncio.gather(*running)} == {"interrupted"}
    got = await engine.sample(ask(embedded, max_tokens=3), asyncio.Event())
    assert len(got.token_ids or ()) == 3
    await engine.close()


@pytest.mark.slow
@pytest.mark.model
async def test_log_probabilities_are_those_at_temperature_1_and_are_called_so(
    embedded: Served, model_folder: Path
) -> None:
    """Recomputed from the weights: drawn at 0.7, an answer was nats more probable than they say."""
    from transformers import AutoModelForCausalLM

    net = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.bfloat16).eval()
    engine = TokenEngine("embedded", embedded.process.url)
    await engine.ready()
    for temperature, kind in ((0.7, "before_temperature"), (1.0, "policy")):
        told = plain = scaled = tokens = 0.0
        for _ in range(3):  # one answer may happen to be nearly certain
            request = ask(embedded, "Tell me a story.", max_tokens=48, temperature=temperature)
            got = await engine.sample(request, asyncio.Event())
            assert got.logprob_kind == kind
            prompt, ids = list(request.prompt_ids or ()), list(got.token_ids or ())
            with torch.no_grad():
                logits = net(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1].float()
            drawn = torch.tensor(ids)[:, None]
            plain += float(torch.log_softmax(logits, -1).gather(1, drawn).sum())
            scaled += float(torch.log_softmax(logits / temperature, -1).gather(1, drawn).sum())
            told += sum(got.logprobs or ())
            tokens += len(ids)
        assert told == pytest.approx(plain, abs=0.02 * tokens)
        if temperature != 1:
            assert scaled - told > 3, "they are not those with which it was drawn"
    await engine.close()


@pytest.mark.slow
@pytest.mark.model
def test_a_malformed_request_is_refused_for_good(embedded: Served) -> None:
    """A client sends again what a server could not do, and not what it refuses."""
    address = embedded.process.url.removesuffix("/v1")
    for path in ("v1/completions", "tokenize", "v1/load_lora_adapter", "v1/unload_lora_adapter"):
        answer = httpx.post(f"{address}/{path}", content=b"{half", timeout=60)
        assert answer.status_code == 400 and answer.json()["error"]["code"] == 400, path


@pytest.mark.slow
@pytest.mark.model
async def test_a_whole_answer_is_the_streamed_one(embedded: Served) -> None:
    engine = TokenEngine("embedded", embedded.process.url)
    await engine.ready()
    streamed = await engine.sample(ask(embedded), asyncio.Event())
    body = {**engine._body(ask(embedded)), "stream": False}
    url = embedded.process.url + "/completions"
    answer = (await asyncio.to_thread(httpx.post, url, json=body, timeout=60)).json()
    assert answer["choices"][0]["token_ids"] == list(streamed.token_ids or ())
    assert answer["choices"][0]["text"] == streamed.text
    assert answer["usage"]["completion_tokens"] == len(streamed.token_ids or ())
    await engine.close()


@pytest.mark.slow
@pytest.mark.model
def test_it_ends_with_its_parent_when_asked(model_folder: Path, tmp_path: Path) -> None:
    port = free_port()
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time\n"
            "child = subprocess.Popen(sys.argv[1:])\n"
            "print(child.pid, flush=True)\n"
            "time.sleep(600)",
            *(sys.executable, "-m", "houston_daemon.engines.embedded", "--die-with-parent"),
            *("--model", str(model_folder), "--port", str(port)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    wait_for(lambda: reachable(port))
    parent.kill()
    parent.wait()
    wait_for(lambda: process_start_time(child) is None)


def reachable(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=2).is_success
    except httpx.HTTPError:
        return False


def wait_for(true: object) -> None:
    deadline = time.monotonic() + 240
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.1)
