"""ScienceWorld's own winning sequences, played through the whole of Houston, one for each task.

A daemon runs the packaged suite with a script engine: seed n is a variation of task n. What counts
is the score that the rollout has at its end. The result: bench/results/scienceworld.json.

    python bench/gold_sequences.py [--first 0] [--seeds 30] [--at-once 2]
"""

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from houston_daemon.environments.simulation.scienceworld_environment import choose_variation
from houston_shared.task import load_task
from tests.support.gold_sequences import Gold, script
from tests.support.station import Station

PACKAGED = Path("daemon/houston_daemon/demo/tasks/scienceworld/task.toml")
AIM = 20
"""Tasks that must end with 100."""


def task_file(folder: Path) -> Path:
    """The packaged suite with room for the longest sequence."""
    file = folder / "suite" / "task.toml"
    file.parent.mkdir()
    text = PACKAGED.read_text(encoding="utf-8").replace("steps = 120", "steps = 400")
    file.write_text(text, encoding="utf-8")
    return file


def started(station: Station, task: Path, gold: Gold, seed: int) -> dict[str, Any]:
    """Start the rollout of one seed; what is known of it."""
    world = choose_variation(load_task(task).task.scienceworld, seed)
    actions = gold.sequence(world["task"], world["variation"])
    engine = station.script(script(actions), f"gold-{seed}")
    words = ("rollout", "start", str(task), "--seed", str(seed), "--engine", engine)
    (row,) = station.json(*words)
    return {**world, "seed": seed, "actions": len(actions), "rollout": row["rollout"]}


def ended(station: Station, found: dict[str, Any]) -> dict[str, Any]:
    """The rollout's end, and how long its acts took."""
    record = station.ended(found["rollout"], 900)
    query = "SELECT best_score, last_score, steps FROM rollouts WHERE id = ?"
    best, last, steps = station.query(query, found["rollout"])[0]
    return {
        **{key: found[key] for key in ("task", "variation", "seed", "actions")},
        "state": record["state"],
        "reason": record["reason"],
        "score": last,
        "best": best,
        "steps": steps,
        "active_seconds": round(record["active_seconds"], 2),
    }


def main() -> int:
    """Play, print and keep the result; 0 when the aim is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="first seed; then nothing is kept")
    parser.add_argument("--at-once", type=int, default=2)
    arguments = parser.parse_args()
    begun, rows, running = time.monotonic(), [], []
    gold = Gold()
    with tempfile.TemporaryDirectory() as folder:
        station = Station(Path(folder))
        station.start()
        try:
            task = task_file(Path(folder))
            for seed in range(arguments.first, arguments.seeds):
                running.append(started(station, task, gold, seed))
                if len(running) >= arguments.at_once:
                    rows.append(ended(station, running.pop(0)))
                    print(rows[-1], flush=True)
            rows += [ended(station, one) for one in running]
        finally:
            station.clear()
    full = sum(row["score"] == 100.0 for row in rows)
    result = {
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "what": "gold sequences through daemon, worker and script engine, one variation a task",
        "tasks": len(rows),
        "at_100": full,
        "aim": AIM,
        "seconds": round(time.monotonic() - begun, 1),
        "active_seconds_per_step": round(
            statistics.median(row["active_seconds"] / max(1, row["steps"]) for row in rows), 3
        ),
        "rows": rows,
    }
    file = Path(__file__).parent / "results" / "scienceworld.json"
    if not arguments.first:
        file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in result.items() if key != "rows"}))
    return 0 if full >= AIM or len(rows) < AIM else 1


if __name__ == "__main__":
    sys.exit(main())
