"""Peak memory of an optimizer step of ECHO's two tracks beside that of one: one base, two adapters.

    python bench/echo_memory.py [--tokens 1024] [--rows 4]

SmolLM2-135M on the CPU, adapters of rank 16, AdamW, each reading a process of its own. The two
tracks step one after the other on the same model. Written to bench/results/echo_memory.json; exit
code 1 where both need more than 1.25 of what one needs.
"""

import argparse
import copy
import json
import math
import random
import resource
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable.machine import machine

RESULTS = ROOT / "bench" / "results" / "echo_memory.json"
MOST = 1.25


def step(tracks: int, tokens: int, rows: int) -> dict[str, float]:
    """Two optimizer steps of one track, or of both, in this process."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig

    from houston_daemon.engines.local_model import model_path
    from houston_daemon.training.credit.policy_gradient_rows import PolicyGradientRow
    from houston_daemon.training.echo.adapter_track import AdapterTrack
    from houston_daemon.training.rl.policy_gradient_batches import collate_pass
    from houston_daemon.training.rl.policy_gradient_trainer import PolicyGradientTrainer

    base = model_path()
    assert base is not None, "houston doctor --fetch-model"
    tokenizer: Any = AutoTokenizer.from_pretrained(base)
    tokenizer.pad_token = tokenizer.eos_token
    net = AutoModelForCausalLM.from_pretrained(base, dtype="float32")
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")

    def passes(seed: int) -> list[dict[str, Any]]:
        drawn = random.Random(seed)
        ids = [[drawn.randrange(1000, 40_000) for _ in range(tokens)] for _ in range(rows)]
        made = [
            PolicyGradientRow(
                str(number), str(number), row[:4], row[4:], [1] * (tokens - 4),
                [1.0 if number % 2 else -1.0] * (tokens - 4), [math.nan] * (tokens - 4),
            )
            for number, row in enumerate(ids)
        ]  # fmt: skip
        import torch

        whole = torch.tensor(float(rows * (tokens - 4)))
        weights = {row.rollout: 1.0 for row in made}
        return [collate_pass([row], weights, 0) | {"num_items_in_batch": whole} for row in made]

    with tempfile.TemporaryDirectory() as out:
        arguments = GRPOConfig(
            output_dir=out, max_steps=2, per_device_train_batch_size=2, num_generations=2,
            loss_type="dapo", beta=0.001, use_cpu=True, bf16=False, report_to="none",
            save_strategy="no", disable_tqdm=True, use_bias_correction_kl=False,
            gradient_checkpointing=False,
        )  # fmt: skip
        policy, critic = passes(1), passes(2)
        track: AdapterTrack | None = None

        def source(number: int) -> list[dict[str, Any]]:
            if track is not None:
                track.score(critic, cap=3.0)
                track.step(critic)
            trainer.score(policy, cap=3.0)
            return policy

        model: Any = get_peft_model(net, lora)
        trainer = PolicyGradientTrainer(
            model=model, arguments=arguments, source=source, keep=1, processing_class=tokenizer
        )
        if tracks == 2:
            config = trainer.model.peft_config[trainer.model.active_adapter]
            track = AdapterTrack(trainer, "critic", copy.deepcopy(config))
        trainer.train()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"peak_mib": round(peak, 1)}


def main() -> int:
    """Measure both, print, keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=4, help="each a pass of its own")
    parser.add_argument("--tracks", type=int, choices=(1, 2), help="measure in this process")
    asked = parser.parse_args()
    if asked.tracks:
        print(json.dumps(step(asked.tracks, asked.tokens, asked.rows)))
        return 0
    found = {}
    for tracks in (1, 2):
        words = [sys.executable, __file__, "--tracks", str(tracks)]
        words += ["--tokens", str(asked.tokens), "--rows", str(asked.rows)]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        found[tracks] = json.loads(told.splitlines()[-1])["peak_mib"]
    about = machine(Path(tempfile.gettempdir()))
    about["versions"] |= {name: version(name) for name in ("torch", "transformers", "trl", "peft")}
    ratio = round(found[2] / found[1], 3)
    result = {
        **about, "model": "SmolLM2-135M", "tokens": asked.tokens, "rows": asked.rows,
        "one_track_mib": found[1], "both_tracks_mib": found[2], "ratio": ratio,
    }  # fmt: skip
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: result[key] for key in ("one_track_mib", "both_tracks_mib", "ratio")}))
    return int(ratio > MOST)


if __name__ == "__main__":
    sys.exit(main())
