"""Peak memory of `houston train sft`, measured beside what is estimated before the first step.

    python bench/training_memory.py [--cases NAME…] [--no-keep]

SmolLM2-135M on the CPU, one optimizer step (of all weights two), each reading a process of its own.
The estimate must never be below what was measured, nor above it by more than `FACTOR`. Figures are
written to bench/results/training_memory.json. Needs 14 GB of free memory and ten minutes.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), *(str(ROOT / room) for room in ("daemon", "shared"))]
RESULTS = ROOT / "bench" / "results" / "training_memory.json"
FACTOR = 1.75
"""The most that an estimate may be above what was measured."""
VOCABULARY = 49_152
CASES: dict[str, tuple[list[int], dict[str, Any]]] = {
    "lora bf16 512": ([512], {"precision": "bf16"}),
    "lora bf16 2048": ([2048], {"precision": "bf16"}),
    "lora bf16 4096": ([4096], {"precision": "bf16"}),
    "lora bf16 7710": ([7710], {"precision": "bf16"}),
    "lora bf16 4096 in one pass of four rows": ([1024] * 4, {"precision": "bf16"}),
    "lora bf16 4096 checkpointing": (
        [4096],
        {"precision": "bf16", "gradient_checkpointing": True},
    ),
    "lora bf16 7710 checkpointing": (
        [7710],
        {"precision": "bf16", "gradient_checkpointing": True},
    ),
    "lora fp32 2048": ([2048], {"precision": "fp32"}),
    "lora fp32 2048 checkpointing": ([2048], {"precision": "fp32", "gradient_checkpointing": True}),
    "full bf16 512": ([512], {"full": True, "precision": "bf16"}),
    "full bf16 2048": ([2048], {"full": True, "precision": "bf16"}),
    "full bf16 4096 checkpointing": (
        [4096],
        {"full": True, "precision": "bf16", "gradient_checkpointing": True},
    ),
    "full fp32 2048": ([2048], {"full": True, "precision": "fp32"}),
}
"""Tokens of the rows of a step, and the recipe."""


def row(number: int, length: int) -> dict[str, Any]:
    """Random ids, of which every fourth stretch is trained."""
    drawn = random.Random(number)
    ids = [drawn.randrange(VOCABULARY) for _ in range(length)]
    weights = [float(at // 64 % 4 == 3) for at in range(length)]
    return {"input_ids": ids, "weights": weights, "row": f"r{number}", "kind": "react"}


def read(case: str, base: str) -> dict[str, Any]:
    """Train in this process."""
    from houston_daemon.training.runs.run_progress import ProgressWriter
    from houston_daemon.training.sft import training_memory, training_run
    from houston_daemon.training.sft.sft_recipe import SftRecipe
    from houston_daemon.training.sft.sft_run_folder import RunFolder, RunSpec

    lengths, settings = CASES[case]
    estimated, check = 0, training_memory.refuse_too_large

    def checked(peak: Any, folder: RunFolder, *more: Any) -> None:
        nonlocal estimated
        estimated = peak.bytes(sum(lengths), folder.spec.recipe.gradient_checkpointing)
        check(peak, folder, *more)

    training_memory.refuse_too_large = checked
    recipe = SftRecipe(
        base=base,
        device="cpu",
        epochs=1 + bool(settings.get("full")),  # the second step has the optimizer's state, too
        batch=len(lengths),
        save_steps=1000,
        **settings,
    )
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(Path(place) / "run")
        folder.write_spec(RunSpec(run="run", recipe=recipe))
        folder.data.mkdir()
        found = [row(number, length) for number, length in enumerate(lengths)]
        lines = "".join(json.dumps(one) + "\n" for one in found)
        (folder.data / "data.jsonl").write_text(lines)
        training_run.train_run(folder, ProgressWriter(folder.path))
        result = folder.result
        assert result is not None
        return {
            "measured_mib": result.memory_bytes >> 20,
            "estimated_mib": estimated >> 20,
            "ratio": round(estimated / result.memory_bytes, 2),
            "tokens_per_second": round(result.tokens_per_second, 1),
        }


def _apart(case: str, base: str) -> dict[str, Any]:
    words = [sys.executable, __file__, "--one", case, "--base", base]
    quiet = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TQDM_DISABLE": "1"}
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **quiet})
    if done.returncode:
        sys.stderr.write(done.stderr)
        raise SystemExit(f"{case} ended with {done.returncode}")
    reading: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"{case}: {reading}", file=sys.stderr, flush=True)
    return reading


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=list(CASES))
    parser.add_argument("--no-keep", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--base", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    from houston_daemon.engines.local_model import fetch_model

    base = given.base or str(fetch_model(lambda line: print(line, file=sys.stderr)))
    if given.one:
        print(json.dumps(read(given.one, base)))
        return 0
    from bench.durable.machine import machine

    RESULTS.parent.mkdir(exist_ok=True)
    found = {case: _apart(case, base) for case in given.cases}
    met = all(1 <= one["ratio"] <= FACTOR for one in found.values())
    told = {**machine(RESULTS.parent), "factor": FACTOR, "met": met, "cases": found}
    print(json.dumps(told, indent=1))
    if not given.no_keep:
        RESULTS.write_text(json.dumps(told, indent=1) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
