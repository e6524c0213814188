"""Tiny models and rows for the tests of training: two layers, a vocabulary of 97 words."""

import json
import os
import random
from pathlib import Path
from typing import Any

# Before transformers is there, which reads them once.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from houston_daemon.training.runs import run_checkpoints
from houston_daemon.training.sft.sft_recipe import SftRecipe
from houston_daemon.training.sft.sft_run_folder import RunFolder, RunSpec

WORDS = 97


def config(**more: Any) -> LlamaConfig:
    return LlamaConfig(
        **{
            "vocab_size": WORDS,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 512,
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": 1,
            "pad_token_id": 1,
        }
        | more
    )


def save_model(folder: Path, **more: Any) -> Path:
    """A random model with a tokenizer, as a folder that transformers reads."""
    torch.manual_seed(7)
    model = LlamaForCausalLM(config(**more))
    with torch.no_grad():  # far from uniform, so that a wrong mask shows
        for parameter in model.parameters():
            parameter.mul_(4) if parameter.dim() > 1 else None
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_tokenizer(folder: Path) -> None:
    words = {"<unk>": 0, "<end>": 1} | {f"w{n}": n for n in range(2, WORDS)}
    plain = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=plain, unk_token="<unk>", eos_token="<end>", pad_token="<end>"
    )
    fast.save_pretrained(folder)


def row(number: int, length: int, *, weight: float = 1.0, seed: int = 0) -> dict[str, Any]:
    """A row with two trained stretches, as an export writes it."""
    drawn = random.Random(f"{seed}:{number}")
    ids = [drawn.randrange(2, WORDS) for _ in range(length)]
    weights = [0.0] * length
    for start, end in ((length // 4, length // 2), (3 * length // 4, length)):
        weights[start:end] = [weight] * (end - start)
    labels = [id if many else -100 for id, many in zip(ids, weights, strict=True)]
    return {
        "input_ids": ids,
        "labels": labels,
        "weights": weights,
        "row": f"r{number}/0.0",
        "rollout": f"r{number}",
        "task": "count-words",
        "kind": "react",
        "tokens": length,
        "trained": sum(1 for many in weights if many),
    }


LENGTHS = (5, 31, 12, 47, 9, 22, 64, 17, 38, 7)


def rows(lengths: tuple[int, ...] = LENGTHS, **more: Any) -> list[dict[str, Any]]:
    return [row(number, length, **more) for number, length in enumerate(lengths)]


def write(folder: Path, examples: list[dict[str, Any]], stem: str = "data") -> Path:
    """Rows as a folder that was exported."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(example) + "\n" for example in examples)
    (folder / f"{stem}.jsonl").write_text(lines)
    return folder


def run_folder(
    tmp_path: Path, base: Path, examples: list[dict[str, Any]], name: str = "run", **recipe: Any
) -> RunFolder:
    """A run that was asked for and not started."""
    folder = RunFolder(tmp_path / name)
    plain: dict[str, Any] = {"device": "cpu", "precision": "fp32", "batch": 4, "pack_tokens": 64}
    plain["report_to"] = "none"  # a tracker takes seconds to start
    folder.write_spec(RunSpec(run=name, recipe=SftRecipe(base=str(base), **(plain | recipe))))
    write(folder.data, examples)
    return folder


def write_checkpoint(folder: Path, step: int, kind: str = "") -> Path:
    """A whole checkpoint, as a trainer leaves it."""
    with run_checkpoints.unfinished_checkpoint(folder) as beside:
        checkpoint = beside / f"checkpoint-{step}"
        checkpoint.mkdir()
        (checkpoint / "optimizer.pt").write_bytes(b"x" * 100)
        (checkpoint / "deep").mkdir()
        (checkpoint / "deep" / "weights").write_bytes(b"y" * 50)
    return run_checkpoints.finish_checkpoint(folder, step, 2, kind)
