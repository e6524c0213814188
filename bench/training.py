"""Training: tokens/s and peak memory of `houston train sft` beside plain SFTTrainer, same rows.

    python bench/training.py [--device cpu|cuda] [--rows even|uneven|long]… [--full] [--model …]
                             [--rounds 2] [--clock wall|cpu] [--no-keep]

By default SmolLM2-135M with a LoRA adapter on the CPU, on rows of one length and of uneven lengths,
four minutes. Each reading is a process of its own, the sides take turns, and the medians are
compared; figures are written to bench/results/training.json with machine and versions. Tokens are
those of rows, never padding. Plain SFTTrainer is measured as it comes (batches of four rows with
padding) and with one row a pass, its best where padding would cost most; `met` holds against the
first. `--clock cpu` compares seconds of one processor instead, which a busy machine leaves alone;
such figures are not kept.

On a GPU: `--device cuda --rows long --full --model 1b` (rows of 32,768 tokens, random weights of
that shape, no download). Model FLOPs utilisation is against the bf16 matrix rate measured there:
6 × weights for every token (4 with an adapter, whose base gets no gradient), the head for trained
tokens only, and the causal half of attention. Where torch, transformers and accelerate are there
and nothing can be fetched, the rest (trl, peft, datasets, pyarrow, pandas, dill, multiprocess,
xxhash, msgspec, pyzmq, zstandard) is 45 MB as a folder made with `pip install --no-deps --target`,
less pyarrow's flight, substrait, headers and tests, in a tar.xz; name the folder in PYTHONPATH.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), *(str(ROOT / room) for room in ("daemon", "shared"))]
RESULTS = ROOT / "bench" / "results" / "training.json"
BATCH = 8
"""Rows of an optimizer step."""
TRAINED = 0.25
"""Share of a row's tokens that are trained: answers between longer observations."""
SHAPES: dict[str, dict[str, Any]] = {
    "135m": {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
             "num_attention_heads": 9, "num_key_value_heads": 3},
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
           "num_attention_heads": 32, "num_key_value_heads": 8},
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
           "num_attention_heads": 32, "num_key_value_heads": 8},
}  # fmt: skip
VOCABULARY = 49_152
SIDES = ("houston", "plain, 4 rows", "plain, 1 row")


def lengths(kind: str, device: str) -> list[int]:
    """Tokens of each row, a few optimizer steps of them; the first step only warms up."""
    drawn = random.Random(6)
    if kind == "long":
        return [32_768] * (4 * BATCH if device == "cuda" else BATCH)
    steps = 12 if device == "cuda" else 3
    if kind == "even":
        return [192] * (steps * BATCH)
    return [min(1536, round(drawn.lognormvariate(4.6, 1.0)) + 16) for _ in range(steps * BATCH)]


def rows(kind: str, device: str) -> list[dict[str, Any]]:
    """Random ids with answers spread over each row."""
    drawn = random.Random(7)
    made = []
    for number, length in enumerate(lengths(kind, device)):
        ids = [drawn.randrange(VOCABULARY) for _ in range(length)]
        weights = [0.0] * length
        answer = max(1, round(length * TRAINED / 8))
        for end in range(length, 0, -max(1, length // 8)):
            weights[max(0, end - answer) : end] = [1.0] * (end - max(0, end - answer))
        labels = [one if many else -100 for one, many in zip(ids, weights, strict=True)]
        row = {"input_ids": ids, "labels": labels, "weights": weights}
        made.append({**row, "row": f"r{number}", "kind": "react"})
    return made


# --- one reading, in a process of its own --------------------------------------------------


def read(side: str, kind: str, given: argparse.Namespace) -> dict[str, Any]:
    """Train once; tokens/s over all steps but the first, peak memory, seconds."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        base = given.model_folder or _random_model(place / "base", given.model)
        found = rows(kind, given.device)
        measure = _houston if side == "houston" else _plain
        times, memory, facts = measure(place, base, found, given, 4 if "4" in side else 1)
    tokens = [len(row["input_ids"]) for row in found]
    after = sum(tokens) - facts.pop("first_tokens")
    seconds = times[-1] - times[0]
    return {"tokens_per_second": after / seconds, "memory_bytes": memory, **facts}


def _clock(given: argparse.Namespace) -> float:
    return time.process_time() if given.clock == "cpu" else time.perf_counter()


def _recipe(base: str, given: argparse.Namespace, found: list[dict[str, Any]]) -> Any:
    from houston_daemon.training.sft.sft_recipe import SftRecipe

    longest = max(len(row["input_ids"]) for row in found)
    return SftRecipe(
        base=base,
        full=given.full,
        epochs=1,
        batch=BATCH,
        max_length=longest,
        pack_tokens=max(longest, 1024 if given.device == "cpu" else 32_768),
        device=given.device,
        gradient_checkpointing=given.checkpointing,
        save_steps=10_000,
    )


def _houston(
    place: Path, base: str, found: list[dict[str, Any]], given: argparse.Namespace, _: int
) -> tuple[list[float], int, dict[str, Any]]:
    from houston_daemon.training.runs.run_progress import ProgressWriter
    from houston_daemon.training.sft import batch_plan, training_run
    from houston_daemon.training.sft.sft_run_folder import RunFolder, RunSpec

    times: list[float] = []
    losses: list[float] = []
    most = 0

    class Timed(ProgressWriter):
        def step_done(self, **said: Any) -> None:
            nonlocal most
            times.append(_clock(given))
            losses.append(said["loss"])
            most = said["memory"]
            super().step_done(**said)

    folder = RunFolder(place / "run")
    recipe = _recipe(base, given, found)
    folder.write_spec(RunSpec(run="run", recipe=recipe))
    folder.data.mkdir()
    lines = "".join(json.dumps(row) + "\n" for row in found)
    (folder.data / "data.jsonl").write_text(lines)
    training_run.train_run(folder, Timed(folder.path))
    first = batch_plan.epoch_order([1] * len(found), 0, recipe.seed)[:BATCH]
    tokens = sum(len(found[row]["input_ids"]) for row in first)
    return times, most, {"first_tokens": tokens, "loss": losses[-1]}


def _plain(
    place: Path, base: str, found: list[dict[str, Any]], given: argparse.Namespace, micro: int
) -> tuple[list[float], int, dict[str, Any]]:
    """SFTTrainer on the same rows in the same order, with the same adapter, kinds and schedule."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback, set_seed
    from trl import SFTConfig, SFTTrainer

    from houston_daemon.training.sft import batch_plan, sft_model, training_memory

    recipe = _recipe(base, given, found)
    bf16 = sft_model.has_fast_bf16(Path(base), torch.device(given.device))
    times: list[float] = []
    losses: list[float] = []

    class Timed(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any, **rest: Any) -> None:
            if "loss" in logs:
                times.append(_clock(given))
                losses.append(logs["loss"])

    class InOrder(SFTTrainer):  # type: ignore[misc]
        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    order = batch_plan.epoch_order([1] * len(found), 0, recipe.seed)
    set_seed(recipe.seed)
    trainer = InOrder(
        model=AutoModelForCausalLM.from_pretrained(
            base, dtype=torch.bfloat16 if bf16 and not recipe.full else torch.float32
        ),
        args=SFTConfig(
            output_dir=str(place / "plain"),
            num_train_epochs=1,
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=BATCH // micro,
            learning_rate=recipe.learning_rate,
            lr_scheduler_type="cosine",
            weight_decay=recipe.weight_decay,
            bf16=bf16,
            use_cpu=given.device == "cpu",
            gradient_checkpointing=recipe.gradient_checkpointing,
            max_length=None,
            save_strategy="no",
            logging_steps=1,
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(
            [{name: found[row][name] for name in ("input_ids", "labels")} for row in order]
        ),
        processing_class=AutoTokenizer.from_pretrained(base),
        peft_config=None
        if recipe.full
        else LoraConfig(
            r=recipe.lora_rank,
            lora_alpha=recipe.lora_alpha,
            target_modules=recipe.lora_targets,
            task_type="CAUSAL_LM",
        ),
        callbacks=[Timed()],
    )
    trainer.train()
    first = sum(len(found[row]["input_ids"]) for row in order[:BATCH])
    return times, training_memory.peak_bytes(), {"first_tokens": first, "loss": losses[-1]}


def _random_model(folder: Path, shape: str) -> str:
    import torch
    from transformers import LlamaForCausalLM

    from tests.training.sft import tiny

    torch.manual_seed(0)
    config = tiny.config(vocab_size=VOCABULARY, max_position_embeddings=131_072, **SHAPES[shape])
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tiny.save_tokenizer(folder)
    return str(folder)


# --- all of them -----------------------------------------------------------------------------


def matrix_rate(device: str) -> float:
    """FLOP/s of a bf16 product of square matrices: what the chip gives to the best customer."""
    import torch

    size = 8192 if device == "cuda" else 2048
    left, right = (torch.randn(size, size, device=device).bfloat16() for _ in range(2))
    best = 0.0
    for _ in range(8):
        began = time.perf_counter()
        for _ in range(4):
            left @ right
        if device == "cuda":
            torch.cuda.synchronize()
        best = max(best, 4 * 2 * size**3 / (time.perf_counter() - began))
    return best


def flops_per_token(base: str, kind: str, given: argparse.Namespace) -> float:
    """Of training: weights that a token meets, the head's where it is trained, and attention."""
    config = json.loads((Path(base) / "config.json").read_text())
    width, layers = config["hidden_size"], config["num_hidden_layers"]
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    inner = width // heads
    attention = width * inner * (2 * heads + 2 * groups)
    weights = layers * (attention + 3 * width * config["intermediate_size"])
    weights += TRAINED * width * config["vocab_size"]
    each = lengths(kind, given.device)
    mean = sum(one * one for one in each) / sum(each)
    return (6 if given.full else 4) * weights + 6 * layers * heads * inner * mean


def main() -> int:
    """Measure, print, keep."""
    given = _arguments()
    if given.side:
        print(json.dumps(read(given.side, given.kind, given)))
        return 0
    from bench.durable.machine import device_name, machine

    RESULTS.parent.mkdir(exist_ok=True)
    about = machine(RESULTS.parent)
    about["versions"] |= _versions()
    with tempfile.TemporaryDirectory() as folder:
        base = given.model_folder or _random_model(Path(folder), given.model)
        given.model_folder = base
        rate = matrix_rate(given.device)
        found = {kind: _figure(kind, given, rate) for kind in given.rows}
    name = f"{given.device}, {given.model}, {'full' if given.full else 'lora'}"
    result = {**about, "device": device_name(given.device), "bf16_matrix_flops": rate, **found}
    print(json.dumps({name: result}, indent=1), flush=True)
    if not given.no_keep and given.clock == "wall":
        kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        kept[name] = {**kept.get(name, {}), **result}
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    return 0 if all(one["met"] for one in found.values()) else 1


def _figure(kind: str, given: argparse.Namespace, rate: float) -> dict[str, Any]:
    sides = [side for side in SIDES if kind == "uneven" or side != "plain, 1 row"]
    if kind == "long":
        sides = ["houston", "plain, 1 row"]
    readings: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for turn in range(given.rounds):
        for side in sides if turn % 2 == 0 else reversed(sides):
            readings[side].append(_apart(side, kind, given))
    told: dict[str, Any] = {}
    flops = flops_per_token(given.model_folder, kind, given)
    for side, each in readings.items():
        speed = statistics.median(one["tokens_per_second"] for one in each)
        told[side] = {
            "tokens_per_second": round(speed, 1),
            "readings": [round(one["tokens_per_second"], 1) for one in each],
            "memory_mib": round(statistics.median(one["memory_bytes"] for one in each) / 2**20),
            "flops_utilisation": round(speed * flops / rate, 3) if given.clock == "wall" else None,
            "loss": each[-1]["loss"],
        }
    aim = 1.3 if kind == "uneven" else 1.0
    ours, first = told["houston"], told[sides[1]]
    ratios = {
        side: round(ours["tokens_per_second"] / told[side]["tokens_per_second"], 2)
        for side in sides[1:]
    }
    each_length = lengths(kind, given.device)
    return {
        "rows": len(each_length),
        "tokens": sum(each_length),
        "longest": max(each_length),
        "trained_share": TRAINED,
        **told,
        "ratio": ratios,
        "memory_ratio": round(ours["memory_mib"] / first["memory_mib"], 2),
        "aim": aim,
        "met": ratios[sides[1]] >= aim,
    }


def _apart(side: str, kind: str, given: argparse.Namespace) -> dict[str, Any]:
    words = [sys.executable, str(Path(__file__)), "--side", side, "--kind", kind]
    words += ["--device", given.device, "--model-folder", given.model_folder]
    words += ["--clock", given.clock]
    words += ["--full"] if given.full else []
    words += ["--checkpointing"] if given.checkpointing else []
    quiet = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TQDM_DISABLE": "1"}
    quiet |= {"OMP_NUM_THREADS": "1"} if given.clock == "cpu" else {}
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **quiet})
    if done.returncode:
        sys.stderr.write(done.stderr)
        raise SystemExit(f"{side} on {kind} rows ended with {done.returncode}")
    reading: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    told = f"{reading['tokens_per_second']:.0f} tokens/s, {reading['memory_bytes'] >> 20} MiB"
    print(f"{kind} rows, {side}: {told}", file=sys.stderr, flush=True)
    return reading


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("torch", "transformers", "trl", "peft", "accelerate")}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rows", nargs="+", choices=("even", "uneven", "long"))
    parser.add_argument("--model", default="smollm2", choices=("smollm2", *SHAPES))
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--no-keep", action="store_true")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--model-folder", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.rows = given.rows or ["even", "uneven"]
    if given.model == "smollm2" and not given.model_folder:
        from houston_daemon.engines.local_model import fetch_model

        given.model_folder = str(fetch_model(lambda line: print(line, file=sys.stderr)))
    return given


if __name__ == "__main__":
    sys.exit(main())
