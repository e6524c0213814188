"""Does the adapter of `houston demo` do what people say? The packaged files, and the model without.

`python bench/errands.py [--orders N] [--arms adapter base] [--out FOLDER]`: held-out orders of
`errands-orders.toml`, one a rollout, said over the wire; followed where the next first call
is what was asked for, on what was named. Writes `bench/results/errands.json`.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable.machine import machine

from houston_daemon.demo.demo_tour import LIVE_ADAPTER, LIVE_FAMILY
from houston_daemon.experiments import experiment_recipe, measure_stage, order_vocabulary
from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.experiments.experiment_run import MODEL_ENGINE

RESULTS = ROOT / "bench" / "results" / "errands.json"
SEED = 1
MINUTES = 60


def measure(ground: ExperimentHome, folder: Path, policy: str, orders: int) -> dict[str, Any]:
    """One arm: shares with Wilson's intervals, by kind, seconds of a step. policy: or `base`."""
    recipe_file = experiment_recipe.find_recipe("errands")
    recipe = experiment_recipe.read_recipe(recipe_file)
    vocabulary = order_vocabulary.read_vocabulary(recipe_file.parent / recipe.orders.vocabulary)
    ground.run("policy", "activate", policy, "--engine", MODEL_ENGINE)
    begun = time.monotonic()
    said = measure_stage.begin_order_rollouts(
        ground, folder / policy, vocabulary, MODEL_ENGINE, orders, SEED, recipe.order_settings
    )
    ground.wait(said, 60 * MINUTES)
    heard = measure_stage.heard_orders(ground, said)
    result = measure_stage.obedience_result(heard)
    kinds = {outcome.order.kind for outcome in heard}
    result["kinds"] = {
        kind: dict(Counter(str(o.followed) for o in heard if o.order.kind == kind))
        for kind in sorted(kinds)
    }
    seconds = [step.sample.seconds for rollout in said for step in ground.steps(rollout)]
    result["sample_seconds_median"] = round(statistics.median(seconds), 2)
    result["minutes"] = round((time.monotonic() - begun) / 60, 1)
    return result


def main() -> None:
    """Measure the arms and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=104)
    parser.add_argument("--arms", nargs="+", default=["adapter", "base"])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    folder = asked.out or Path(tempfile.mkdtemp(prefix="errands-"))
    folder.mkdir(parents=True, exist_ok=True)
    recipe = experiment_recipe.read_recipe(experiment_recipe.find_recipe("errands"))
    ground = ExperimentHome(folder, {MODEL_ENGINE: recipe.model.engine}, recipe.at_once)
    figures = json.loads(RESULTS.read_bytes()) if RESULTS.is_file() else {"arms": {}}
    figures["adapter_bytes"] = sum(file.stat().st_size for file in LIVE_ADAPTER.iterdir())
    figures["lineage"] = json.loads((LIVE_ADAPTER / "lineage.json").read_bytes())
    ground.start()
    try:
        ground.run("policy", "import", str(LIVE_ADAPTER), "--name", LIVE_FAMILY)
        for arm in asked.arms:
            policy = f"{LIVE_FAMILY}@2" if arm == "adapter" else "base"
            measured = measure(ground, folder / "tasks", policy, asked.orders)
            figures["arms"][arm] = {**measured, "machine": machine(folder)}
            print(arm, figures["arms"][arm]["shares"]["all"], figures["arms"][arm]["kinds"])
            RESULTS.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    finally:
        ground.stop()


if __name__ == "__main__":
    main()
