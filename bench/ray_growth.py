"""What a step costs as rollouts grow in number, with workers as actors of a Ray cluster.

    python bench/ray_growth.py [--sizes 10 50] [--own 10] [--seconds 40] [--pause 10]

Two nodes on this machine (`ray.cluster_utils`), a real daemon in a new home, rollouts of the
environment `null` by the script engine, each with a step every `--pause` seconds: what long agents
do most is wait. `--sizes` share workers as such rollouts do, `--own` have one each as every rollout
on a host does. When all have closed a step, processor time is counted for `--seconds`, by part.

`ms a step` is what is spent above the idle cluster and daemon of the same run, for each step
closed; `flat` is that of the largest size over that of the smallest. `recorder` is its thread's
share of one processor. `mb a rollout` is the proportional memory of workers and their actors.
Written to bench/results/ray_growth.json; sizes that are not run again keep their figures.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable.machine import machine
from bench.waiting_rollouts import start_rollouts

from tests.support.ray_nodes import RayNodes, descendants
from tests.support.station import Station, command_line

RESULTS = ROOT / "bench" / "results" / "ray_growth.json"
FLAT = 1.2
"""What a step may cost with the most rollouts, over what it costs with the fewest."""
TICK = os.sysconf("SC_CLK_TCK")
CLOSED = "SELECT count(*) FROM rollouts WHERE steps > 0"
PARTS = {
    "service.daemon_process": "daemon",
    "service.ray_cluster": "driver",
    "agent.shared_worker": "workers",
    "agent.rollout_worker": "workers",
    "ray::WorkerActor": "actors",
    "service.fork_server": "actors",
    "recorder.search_indexer": "search index",
    "gcs_server": "ray",
    "raylet": "ray",
    "ray/": "ray",
}
"""Word of a command line → part, the first that fits."""


class Fleet:
    """A daemon and two nodes."""

    def __init__(self, folder: Path, size: int, per_worker: int) -> None:
        self.nodes = RayNodes(dict(os.environ))
        for name in ("a", "b"):
            self.nodes.add(name, 512)
        self.station = Station(folder)
        self.station.home.mkdir(mode=0o700)
        (self.station.home / "houston.toml").write_text(
            f"[daemon]\nmax_rollouts = {size}\nrollouts_per_worker = {per_worker}\n"
            f"[ray]\naddress = '{self.nodes.address}'\ncpus = 0.01\n"
        )
        self.station.start()

    def close(self) -> None:
        """End both."""
        self.station.stop()
        self.nodes.close()

    def start(self, size: int, pause: float) -> float:
        """Start rollouts; seconds until each has closed a step."""
        return start_rollouts(self.station, size, pause, CLOSED)

    def steps(self) -> int:
        """Closed steps of all rollouts."""
        return int(self.station.query("SELECT coalesce(sum(steps), 0) FROM rollouts")[0][0])

    def processes(self) -> dict[Path, str]:
        """What belongs to daemon and cluster → its part."""
        found = {}
        for pid in descendants(os.getpid()) + descendants(self.station.pid):
            entry = Path(f"/proc/{pid}")
            line = command_line(entry)
            part = next((part for word, part in PARTS.items() if word in line), "")
            if part:
                found[entry] = part
        return found

    def cpu(self) -> dict[str, float]:
        """Processor seconds so far, by part; `recorder` is the daemon's busiest other thread."""
        spent = dict.fromkeys([*PARTS.values(), "recorder"], 0.0)
        for entry, part in self.processes().items():
            spent[part] += _seconds(entry / "stat")
        daemon = Path(f"/proc/{self.station.pid}")
        threads = [each for each in (daemon / "task").iterdir() if each.name != daemon.name]
        spent["recorder"] = max(_seconds(each / "stat") for each in threads)
        return spent

    def memory_mb(self) -> dict[str, float]:
        """Proportional memory of workers and actors, each page shared out among its users."""
        total = {"workers": 0.0, "actors": 0.0}
        for entry, part in self.processes().items():
            if part in total:
                words = (entry / "smaps_rollup").read_text().split()
                total[part] += int(words[words.index("Pss:") + 1]) / 1024
        return total


def _seconds(file: Path) -> float:
    try:
        fields = file.read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICK


def spent_in(fleet: Fleet, seconds: float) -> tuple[dict[str, float], int, float]:
    """Processor seconds by part, steps, and seconds, of the next while."""
    before, steps, began = fleet.cpu(), fleet.steps(), time.monotonic()
    time.sleep(seconds)
    after, took = fleet.cpu(), time.monotonic() - began
    return {part: after[part] - before[part] for part in after}, fleet.steps() - steps, took


def measure(size: int, per_worker: int, seconds: float, pause: float) -> dict[str, Any]:
    """One size, in a home and a cluster of its own."""
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder), size, per_worker)
        try:
            time.sleep(10)
            idle, _, idle_took = spent_in(fleet, seconds / 2)
            started = fleet.start(size, pause)
            busy, steps, took = spent_in(fleet, seconds)
            memory = fleet.memory_mb()
            actors = sum(part == "actors" for part in fleet.processes().values())
        finally:
            fleet.close()
    above = {part: busy[part] - idle[part] * took / idle_took for part in busy}
    whole = sum(value for part, value in above.items() if part != "recorder")
    return {
        "rollouts": size,
        "rollouts_per_worker": per_worker,
        "actors": actors,
        "started_seconds": round(started, 1),
        "steps_a_second": round(steps / took, 2),
        "ms_a_step": round(whole / steps * 1_000, 2),
        "ms_a_step_by_part": {
            part: round(value / steps * 1_000, 2) for part, value in sorted(above.items())
        },
        "recorder": round(busy["recorder"] / took, 4),
        "idle_processors": round(
            sum(value for part, value in idle.items() if part != "recorder") / idle_took, 3
        ),
        "mb_a_rollout": round(sum(memory.values()) / size, 1),
        "mb": {part: round(value, 1) for part, value in memory.items()},
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description="growth of rollouts over a Ray cluster")
    parser.add_argument("--sizes", type=int, nargs="*", default=[10, 50])
    parser.add_argument("--own", type=int, nargs="*", default=[10])
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--pause", type=float, default=10.0, help="seconds of a rollout's step")
    asked = parser.parse_args()
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": []}
    runs = {(run["rollouts_per_worker"], run["rollouts"]): run for run in kept["runs"]}
    for per_worker, sizes in ((16, asked.sizes), (1, asked.own)):
        for size in sizes:
            run = measure(size, per_worker, asked.seconds, asked.pause)
            runs[per_worker, size] = {**run, "pause_seconds": asked.pause}
            print(json.dumps(run, indent=1), flush=True)
    shared = [run for (per_worker, _), run in sorted(runs.items()) if per_worker > 1]
    flat = shared[-1]["ms_a_step"] / shared[0]["ms_a_step"] if len(shared) > 1 else None
    found = {"machine": machine(RESULTS.parent), "runs": [runs[key] for key in sorted(runs)]}
    found |= {"flat": flat and round(flat, 3), "flat_limit": FLAT}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(f"flat: {found['flat']} (limit {FLAT}), {len(shared)} sizes", flush=True)


if __name__ == "__main__":
    main()
