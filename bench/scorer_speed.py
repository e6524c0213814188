"""Decisions a second that a process reward model scores, beside its bare forward pass.

    python bench/scorer_speed.py [--device cpu|cuda] [--shape tiny|135m|600m|1b]… [--batch 8 …]
                                 [--texts 512] [--tokens 300]

The scorer is what training and live scores use (`training.prm.prm_scorer`), on texts of 0.5 to 1.5
times `--tokens`, in several sizes of batch. The raw limit is the same model on as many tokens in
batches of one length, with nothing tokenized, padded or copied. Weights are random: what a score is
does not change what it costs. `largest difference` is between a score here and one in float32 on
the CPU, over 32 texts. Written to bench/results/scorer_speed.json, for each device.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), *(str(ROOT / room) for room in ("daemon", "shared"))]

import torch
from bench.durable.machine import device_name, machine
from bench.training import SHAPES
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

from houston_daemon.training.prm import prm_scorer

RESULTS = ROOT / "bench" / "results" / "scorer_speed.json"
WORDS = 4_096
"""In the vocabulary; a word is a token."""
SIZES = {
    "tiny": {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4,
             "num_attention_heads": 4, "num_key_value_heads": 2},
    "600m": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
             "num_attention_heads": 16, "num_key_value_heads": 8},
    "135m": SHAPES["135m"],
    "1b": SHAPES["1b"],
}  # fmt: skip


def save_model(folder: Path, shape: str, device: str) -> None:
    """A scorer with random weights, in the kind of number that is served on the device."""
    torch.manual_seed(0)
    config = LlamaConfig(**SIZES[shape], vocab_size=WORDS, num_labels=1, pad_token_id=0)
    model = LlamaForSequenceClassification(config)
    torch.nn.init.normal_(model.score.weight, std=0.02)
    model.to(torch.bfloat16 if device == "cuda" else torch.float32).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(WORDS)}, "w1"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="w0", unk_token="w1", eos_token="w2"
    ).save_pretrained(folder)


def some_texts(count: int, tokens: int) -> list[str]:
    """Texts of 0.5 to 1.5 times so many tokens."""
    drawn = random.Random(3)
    lengths = [drawn.randint(tokens // 2, 3 * tokens // 2) for _ in range(count)]
    return [" ".join(f"w{drawn.randrange(3, WORDS)}" for _ in range(each)) for each in lengths]


def seconds_of(scorer: prm_scorer.ProcessRewardScorer, texts: list[str]) -> float:
    """Of scoring all of them, the second time."""
    scorer.score(texts[:64])
    began = time.perf_counter()
    scorer.score(texts)
    return time.perf_counter() - began


def limit(model: Any, texts: list[str], tokens: int, device: str, batch: int) -> float:
    """Tokens a second of the bare model on full batches of one length."""
    ids = torch.randint(3, WORDS, (batch, tokens), device=device)
    passes = max(2, len(texts) // batch // 4)
    with torch.inference_mode():
        model(input_ids=ids)
        _wait(device)
        began = time.perf_counter()
        for _ in range(passes):
            model(input_ids=ids)
        _wait(device)
    return passes * ids.numel() / (time.perf_counter() - began)


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def measure(shape: str, asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One size of model, in each size of batch."""
    save_model(folder, shape, asked.device)
    texts = some_texts(asked.texts, asked.tokens)
    total = sum(text.count(" ") + 1 for text in texts)
    scorer = prm_scorer.load_scorer(folder, asked.device)
    told: dict[str, Any] = {}
    for batch in asked.batch:
        prm_scorer.TEXTS_PER_BATCH = batch
        spent = seconds_of(scorer, texts)
        raw = limit(scorer._model, texts, asked.tokens, asked.device, batch)
        told[f"batches of {batch}"] = {
            "decisions_per_second": round(len(texts) / spent, 1),
            "tokens_per_second": round(total / spent),
            "bare_tokens_per_second": round(raw),
            "of_the_bare_pass": round(total / spent / raw, 3),
        }
    few = texts[:32]
    exact = prm_scorer.load_scorer(folder, "cpu").score(few)
    pairs = zip(scorer.score(few), exact, strict=True)
    told["largest_difference"] = round(max(abs(one - other) for one, other in pairs), 4)
    return told


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--shape", choices=tuple(SIZES), action="append", default=[])
    parser.add_argument("--batch", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=300)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="houston-scorer-") as temporary:
        folder = Path(temporary)
        about = machine(folder)
        about["versions"]["torch"] = torch.__version__
        told = {**about, "device": device_name(asked.device), "texts": asked.texts}
        for shape in asked.shape or ["tiny", "135m"]:
            told[shape] = measure(shape, asked, folder / shape)
            print(shape, json.dumps(told[shape], indent=1), flush=True)
            kept = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
            RESULTS.write_text(json.dumps({**kept, asked.device: told}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
