"""The manual's environment for TRL, on a suite that is served as OpenEnv: GRPO plays and is paid.

The model is tiny and was taught one call by heart, so that there is something to see.
"""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import chat_template_utils as templates

from tests.support.small_tokenizer import small_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MANUAL = (Path(__file__).parents[3] / "docs" / "foreign-environments.md").read_text()
EXAMPLE = re.findall(r"```python\n(.*?)```", MANUAL, re.DOTALL)[0]
CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call><|im_end|>'


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        number = int(found.getsockname()[1])
    folder = tmp_path_factory.mktemp("served")
    words = [sys.executable, "-m", "houston_shared.command", "env", "serve", "word-worlds"]
    environment = {
        **os.environ,
        "HOUSTON_HOME": str(folder / "home"),
        "HOUSTON__HOSTS__ROOT": str(folder / "root"),
    }
    process = subprocess.Popen([*words, "--port", str(number)], env=environment)
    end = time.monotonic() + 240
    while True:
        assert process.poll() is None and time.monotonic() < end
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", number)) == 0:
                break
        time.sleep(0.1)
    yield number
    process.terminate()
    process.wait()


def taught(tokenizer: Any, prompts: list[str]) -> Any:
    """A tiny model that answers each of these prompts with one call."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=8_192,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    answer = tokenizer(CALL, add_special_tokens=False).input_ids
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(300):
        prompt = tokenizer(prompts[step % len(prompts)], add_special_tokens=False).input_ids
        ids = torch.tensor([[*prompt, *answer]])
        labels = ids.clone()
        labels[:, : len(prompt)] = -100
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if loss.item() < 0.01:
            break
    assert loss.item() < 0.05, "it was taught"
    return model


def test_grpo_trains_on_a_served_suite(tmp_path: Path, port: int) -> None:
    file = small_tokenizer(tmp_path)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=file, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        chat_template=templates.qwen3_chat_template,
    )  # fmt: skip
    space: dict[str, Any] = {}
    exec(EXAMPLE.replace(":8000", f":{port}"), space)  # noqa: S102
    boxes = space["Boxes"]
    probe = boxes()
    tools = [probe.enter, probe.look, probe.open, probe.read]
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": f"Find what you are asked for. {probe.reset(seed=seed)}"}],
            tools=tools, add_generation_prompt=True, tokenize=False,
        )
        for seed in range(4)
    ]  # fmt: skip
    probe.client.close()
    folder = tmp_path / "model"
    taught(tokenizer, prompts).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    trainer = space["train"](
        str(folder), output_dir=str(tmp_path / "out"), max_steps=1, num_generations=2,
        per_device_train_batch_size=2, report_to=[], use_cpu=True, temperature=0.1, bf16=False,
        shuffle_dataset=False,
    )  # fmt: skip
    logged = {name: value for line in trainer.state.log_history for name, value in line.items()}
    assert logged["tools/call_frequency"] >= 1 and logged["tools/failure_frequency"] == 0
    assert logged["rewards/Boxes/mean"] == 0.0, "looking is not paid"
    assert trainer.environments and "open nothing" in trainer.environments[0].look()
