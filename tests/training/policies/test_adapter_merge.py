"""A policy as one model, and as a GGUF file that computes the same. Tiny models, real libraries."""

import math
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from houston_daemon.training.policies import adapter_merge, gguf_export, policy_files
from houston_shared.errors import HoustonError

SHAPE = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "vocab_size": 300,
}  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama of random weights with a byte-level tokenizer."""
    folder = tmp_path_factory.mktemp("base")
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    plain.train_from_iterator(["Hello, who are you? List the files of the folder, then"], trainer)
    PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<end>").save_pretrained(folder)
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(**SHAPE, tie_word_embeddings=True, eos_token_id=0))
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that changes every linear layer."""
    folder = tmp_path_factory.mktemp("adapter")
    torch.manual_seed(2)
    net = peft.get_peft_model(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32),
        peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 0.05)
    net.save_pretrained(folder)
    return folder


def logits(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model.float().eval()(torch.arange(40)[None] + 10).logits
    return logits


def test_merged_weights_compute_what_base_and_adapter_do(
    base: Path, adapter: Path, tmp_path: Path
) -> None:
    model = adapter_merge.load_merged("lora", adapter, base)
    assert model.dtype == torch.bfloat16, "as its base"
    files = adapter_merge.write_merged(model, base, tmp_path / "out", {"name": "policy@2"})
    assert {"config.json", "model.safetensors", "tokenizer.json", "lineage.json"} <= {
        file.name for file in files
    }
    again = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto"))
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    before = logits(plain)
    both = logits(peft.PeftModel.from_pretrained(plain, adapter))
    assert (both - before).abs().max() > 20 * (again - both).abs().max()
    with pytest.raises(HoustonError, match="holds a merged model already"):
        adapter_merge.write_merged(model, base, tmp_path / "out", {})
    adapter_merge.write_merged(model, base, tmp_path / "out", {"name": "policy@3"}, force=True)
    assert "policy@3" in (tmp_path / "out" / "lineage.json").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "nothing is left beside it"


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_merged_model_is_never_written_over(tmp_path: Path, force: bool) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name, why in (("mine", "is not empty"), ("file", "is no folder")):
        with pytest.raises(HoustonError, match=why):
            adapter_merge.write_merged(None, tmp_path, tmp_path / name, {}, force)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "mine"


def test_a_registered_policy_is_no_merged_model(tmp_path: Path) -> None:
    """Nor is a copy of one: both have their lineage."""
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / policy_files.LINEAGE_FILE).write_text("{}")
    (copy / "adapter_model.safetensors").write_bytes(b"trained for a week")
    with pytest.raises(HoustonError, match="is not empty"):
        adapter_merge.write_merged(None, tmp_path, copy, {}, force=True)
    assert (copy / "adapter_model.safetensors").read_bytes() == b"trained for a week"


@pytest.mark.parametrize("precision", ["bf16", "f16", "f32"])
def test_a_gguf_file_computes_the_same(
    base: Path, adapter: Path, tmp_path: Path, precision: gguf_export.Precision
) -> None:
    model = adapter_merge.load_merged("lora", adapter, base)
    file = tmp_path / "policy.gguf"
    gguf_export.write_gguf(model, base, file, precision, "policy@2")
    assert gguf_export.compare_logits(model, base, file) < (1e-3 if precision == "f16" else 1e-5)
    other = adapter_merge.load_merged("full", base, base)
    assert gguf_export.compare_logits(other, base, file) > 1e-2, "the comparison sees other weights"
    next(other.parameters()).data.fill_(math.nan)
    assert gguf_export.compare_logits(other, base, file) == math.inf, "no number is no small gap"


def test_what_is_no_llama_is_refused(base: Path, tmp_path: Path) -> None:
    other = Qwen2ForCausalLM(Qwen2Config(**SHAPE))
    with pytest.raises(HoustonError, match="architecture 'qwen2'"):
        gguf_export.write_gguf(other, base, tmp_path / "x.gguf", "bf16", "x")
    scaled = LlamaConfig(**SHAPE, rope_parameters={"rope_type": "linear", "factor": 2.0,
                                                   "rope_theta": 10000.0})  # fmt: skip
    with pytest.raises(HoustonError, match="scaled positions"):
        gguf_export.write_gguf(LlamaForCausalLM(scaled), base, tmp_path / "x.gguf", "bf16", "x")
    assert list(tmp_path.iterdir()) == []


def test_an_adapter_of_another_shape_is_refused(adapter: Path, tmp_path: Path) -> None:
    small = LlamaForCausalLM(LlamaConfig(**{**SHAPE, "hidden_size": 32}))
    small.save_pretrained(tmp_path / "small")
    with pytest.raises(HoustonError, match="cannot be merged"):
        adapter_merge.load_merged("lora", adapter, tmp_path / "small")
