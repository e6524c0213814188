"""The engine contract over tokenizers in the styles of Llama 3, Mistral, DeepSeek and Gemma: a tiny
random model of each, served by the embedded server, is sent a rollout's prompts."""

import asyncio
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.engines.engine_protocol import SampleRequest
from houston_daemon.engines.token_engine import TokenEngine
from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts.dialect_protocol import PromptToolResult
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from tests.engines.conftest import Served, free_port, serve
from tests.support.family_tokenizers import family_tokenizer
from tests.support.tiers import sampled

STYLES = ("mistral-v3", "llama-3", "deepseek-v3", "gemma-4")
TOOL = ToolSpec("read", "Read.", {"type": "object", "properties": {}, "required": []})


@pytest.fixture(scope="module", params=sampled(STYLES, 1))
def styled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Served]]:
    folder = tmp_path_factory.mktemp("styled")
    model = random_model(folder / "model", request.param)
    port = free_port()
    command = [sys.executable, "-m", "houston_daemon.engines.embedded", "--die-with-parent"]
    command += ["--model", str(model), "--port", str(port)]
    for served in serve("embedded", command, port, folder, model):
        yield request.param, served


def random_model(folder: Path, style: str) -> Path:
    """A Llama of two layers over the style's vocabulary."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder.mkdir()
    file = Path(family_tokenizer(style, folder)).rename(folder / "tokenizer.json")
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file))
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=4096,
        eos_token_id=tokenizer.convert_tokens_to_ids(choose_dialect(style).stop_tokens[0]),
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def check_text(shown: str, decoded: str) -> None:
    """What an engine shows is what its ids say; a random model's half letters are told otherwise
    by who reads them one by one."""
    assert "\ufffd" in decoded or shown.strip() == decoded.strip()


async def test_a_rollouts_prompts_come_back_as_sent_and_begin_with_what_was_sampled(
    styled: tuple[str, Served],
) -> None:
    style, served = styled
    dialect, tokens = choose_dialect(style), PromptTokenizer(str(served.tokenizer_file))
    stops = [tokens.id_of(token) for token in dialect.stop_tokens]
    engine = TokenEngine("embedded", served.process.url)
    await engine.ready()
    prompt = tokens.encode(dialect.head("You help: é 日本.", [TOOL], "Read  the file."))
    for step in range(3):
        got = await engine.sample(
            SampleRequest(
                prompt_ids=tuple(prompt),
                messages=(),
                tools=(),
                max_tokens=12,
                stop_token_ids=tuple(number for number in stops if number is not None),
                temperature=1.0,
                cache_salt=uuid.uuid4().hex,
            ),
            asyncio.Event(),
        )
        assert list(got.prompt_ids or ()) == prompt
        assert got.token_ids is not None
        assert len(got.token_ids) == len(got.logprobs or ()) > 0
        ended = got.finish_reason == "stop"
        said = got.token_ids[:-1] if ended else got.token_ids
        check_text(got.text, tokens.decode(said))
        stop = tokens.decode(got.token_ids[-1:]) if ended else ""
        results = [PromptToolResult(f"{step}.0", "read", "text é")] if step else []
        prompt += [*got.token_ids, *tokens.encode(dialect.observation(results, "[tail]", stop))]
    await engine.close()


async def test_a_stop_token_ends_a_sample_and_is_not_shown(styled: tuple[str, Served]) -> None:
    style, served = styled
    dialect, tokens = choose_dialect(style), PromptTokenizer(str(served.tokenizer_file))
    engine = TokenEngine("embedded", served.process.url)
    await engine.ready()
    prompt = tuple(tokens.encode(dialect.question("s", "t")))
    free = SampleRequest(
        prompt_ids=prompt, messages=(), tools=(), max_tokens=8, temperature=0, cache_salt="a"
    )
    said = (await engine.sample(free, asyncio.Event())).token_ids or ()
    stopped = await engine.sample(
        SampleRequest(
            prompt_ids=prompt,
            messages=(),
            tools=(),
            max_tokens=8,
            stop_token_ids=(said[2],),
            temperature=0,
            cache_salt="a",
        ),
        asyncio.Event(),
    )
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == said[: said.index(said[2]) + 1]
    check_text(stopped.text, tokens.decode(stopped.token_ids[:-1]))
    await engine.close()
