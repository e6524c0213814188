"""How long a new version of a policy takes from the trainer to an engine that samples with it.

    python bench/weight_handover.py [--suite word-worlds] [--engine embedded] [--updates 6]
                                    [--model DIR] [--folder DIR] [--set KEY=VALUE]

Two trainings by DAPO: an adapter, which the running engine loads, and all weights, for which the
daemon starts an engine (`full = true`). Seconds of each hand-over by its parts, beside a plain copy
of the same files. Written to bench/results/weight_handover.json, of another suite with its name.
"""

import json
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.learning import keep_result, learning_arguments, learning_home, trained

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_shared.policy_and_run_files import policies_folder

ARMS = {
    "adapter": (),
    "all weights": ("full=true", "learning_rate=2e-5"),
}
PARTS = ("saving", "registering", "loading", "syncing")
"""Of a hand-over; the last is all of it."""


def handed_over(home: ExperimentHome, run: dict[str, Any]) -> dict[str, Any]:
    """Seconds of every hand-over of a run but the first, whose policy the engine had."""
    updates = run["updates"][1:]
    folder = policies_folder(home.home) / run["policy"]
    spent = {part: [update["seconds"][part] for update in updates] for part in PARTS}
    return {
        "hand-overs": len(updates),
        "files_mb": round(sum(file.stat().st_size for file in folder.iterdir()) / 1e6, 1),
        "copied_s": round(copied(folder, home.folder / "copy"), 4),
        **{
            f"{part}_s": {"median": round(statistics.median(each), 3), "worst": max(each)}
            for part, each in spent.items()
        },
    }


def copied(folder: Path, place: Path) -> float:
    """Seconds of a plain copy of a folder."""
    began = time.monotonic()
    shutil.copytree(folder, place)
    took = time.monotonic() - began
    shutil.rmtree(place)
    return took


def main() -> int:
    """Train both, print, keep."""
    parser = learning_arguments(__doc__ or "", "word-worlds", 6, list(ARMS), list(ARMS))
    asked = parser.parse_args()
    with learning_home(asked) as (home, about):
        result = {
            **about,
            "by_arm": {
                arm: handed_over(home, trained(home, arm, 1, asked, settings=ARMS[arm]))
                for arm in asked.arms
            },
        }
    keep_result("weight_handover", asked, "word-worlds", result)
    print(json.dumps(result["by_arm"], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
