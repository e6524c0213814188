"""`houston train echo` on suites for language models: attempts, critiques and refinements in a chat
dialect, in files and in a simulator. The model is SmolLM2's tokenizer with a few random weights, so
it says nothing sensible and ends its answers by chance: what it learns is no matter here."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoTokenizer, LlamaForCausalLM

from houston_daemon.engines.local_model import model_path
from tests.support.station import Station

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
TEMPLATE = """\
=== system ===
Say in one sentence what the agent should do otherwise.

=== attempt ===
{{task}}
{{criteria}}
{{steps}}
{{score}}

=== answer ===
plain
"""
"""A whole answer is the critique: random words keep to no form."""


@pytest.fixture(scope="module")
def babbler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = str(model_path())
    settings, tokenizer = AutoConfig.from_pretrained(base), AutoTokenizer.from_pretrained(base)
    settings.update(
        {
            **{"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
            **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16},
            "tie_word_embeddings": False,
        }
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(settings)
    with torch.no_grad():  # one direction that every token has says that the answer ends
        model.model.embed_tokens.weight[:, 0] = 4.0
        model.lm_head.weight[tokenizer.convert_tokens_to_ids("<|im_end|>"), 0] = 1.0
    folder = tmp_path_factory.mktemp("babbler")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def trained(station: Station, model: Path, suite: str) -> dict[str, Any]:
    station.home.mkdir(parents=True, exist_ok=True)
    (station.home / "houston.toml").write_text(
        f'[engines.chat]\nkind = "embedded"\nmodel = "{model}"\ndialect = "chatml-json"\n'
    )
    template = station.folder / "critic.md"
    template.write_text(TEMPLATE)
    station.start()
    small = ("groups=2", "group_size=2", "updates=1", "precision=fp32", "device=cpu")
    settings = [
        f"--set={each}" for each in (*small, "report_to=none", f"critic_template={template}")
    ]
    words = ("train", "echo", "--suite", suite, "--engine", "chat", "--recipe", "echo_small")
    told = station.run(*words, *settings, "--name", "chat", "--json", timeout=800)
    return dict(json.loads(told.stdout.splitlines()[-1]))


@pytest.mark.parametrize("suite", ["small-workstation", "science-games", "text-games"])
def test_attempts_are_criticised_and_tried_again(
    station: Station, babbler: Path, suite: str
) -> None:
    told = trained(station, babbler, suite)
    (update,) = told["updates"]
    critic = update["critic"]
    assert (critic["attempts"], critic["failed"]) == (2, 0)
    assert critic["critiques"] == 2 * (2 - critic["full"])
    said = [
        critique["text"]
        for file in (Path(told["folder"]) / "critiques").iterdir()
        for attempt in json.loads(file.read_text())
        for critique in attempt["critiques"]
    ]
    usable = [text for text in said if text]
    assert len(said) - len(usable) == critic["malformed"] + critic["silent"]
    tried = [rollout for (rollout,) in station.query("SELECT rollout FROM refinements")]
    assert sorted(station.show(each)["refines"]["text"] for each in tried) == sorted(usable)
    assert usable, "else nothing was tried again"
    assert told["policy"] == "chat@2"
