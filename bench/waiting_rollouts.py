"""What rollouts that wait cost the daemon's process, and what it costs with none.

    python bench/waiting_rollouts.py [--sizes 0 50 100 200] [--seconds 30] [--pause 3600] [--as now]
                                      [--artifacts]

A real daemon in a new home for each size, rollouts of the environment `null` by the script engine
in shared workers, as such rollouts have. Each samples for `--pause` seconds: with the default
nothing happens but that they wait. When all sample, processor time of `--seconds` is counted.

`--artifacts` copies into a store in a folder beside the home, as `[artifacts]` has it.

`daemon` is the daemon's own process, ms of processor time a second, by its threads: the supervisor
(`main`), the recorder (the busiest other) and the rest. `a_rollout` is what one rollout adds to it,
over the same daemon with none. `workers` and `search index` are its children. `messages` are those
that workers sent in a second and that were answered. Written to bench/results/waiting_rollouts.json
under the name given with `--as`; sizes that are not run again keep their figures.
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

from houston_daemon.service import rollout_start_checks
from houston_shared import wire
from houston_shared.config import load_configuration
from houston_shared.control_client import ControlClient
from houston_shared.task import load_task
from tests.support.ray_nodes import descendants
from tests.support.station import Station, command_line

RESULTS = ROOT / "bench" / "results" / "waiting_rollouts.json"
STEPS = 10_000
"""More than anybody waits for: the daemon is stopped in the middle."""
STARTED_SECONDS = 900.0
SETTLED_SECONDS = 8.0
"""Until a daemon that has just started has nothing more to do."""
CHILDREN = {
    "agent.shared_worker": "workers",
    "recorder.search_indexer": "search index",
}
WAITING = "SELECT count(*) FROM rollouts WHERE activity = 'sampling'"


def start_rollouts(station: Station, size: int, pause: float, counted: str = WAITING) -> float:
    """Start rollouts with a step every `pause` seconds; seconds until the query has counted all."""
    variables = {k: v for k, v in station.environment.items() if "HOUSTON" in k}
    loaded = load_configuration(str(station.home), environment=variables)
    task = station.folder / "task"
    task.mkdir()
    (task / "task.toml").write_text(
        'name = "grow"\ninstructions = "Go on."\nenvironment = "null"\nsandbox = "none"\n'
        f"[budget]\nsteps = {STEPS}\n"
    )
    noop = {"name": "noop", "arguments": {"text": "looked at the box and found a code"}}
    line = {"thought": "a step", "calls": [noop], "delay": pause}
    specs = rollout_start_checks.build_rollout_specs(
        loaded, load_task(task), station.script([line] * STEPS), size, 0
    )
    began = time.monotonic()
    with ControlClient(loaded.home, 60.0) as client:
        client.ask(wire.StartRollouts(request=os.urandom(8).hex(), specs=specs))
    while station.query(counted)[0][0] < size:
        assert time.monotonic() - began < STARTED_SECONDS, station.log()
        time.sleep(0.5)
    return time.monotonic() - began


class Watched:
    """Processor time of a daemon and its children, as the kernel counts it."""

    def __init__(self, station: Station) -> None:
        self._pid = station.pid

    def seconds(self) -> dict[str, float]:
        """So far, by part; of the daemon's threads those besides the first in one list."""
        threads = {
            entry.name: _seconds(entry) for entry in Path(f"/proc/{self._pid}/task").iterdir()
        }
        spent = {f"thread {name}": value for name, value in threads.items()}
        for pid in descendants(self._pid)[1:]:
            line = command_line(Path(f"/proc/{pid}"))
            part = next((part for word, part in CHILDREN.items() if word in line), "other children")
            spent[part] = spent.get(part, 0.0) + sum(
                _seconds(entry) for entry in Path(f"/proc/{pid}/task").iterdir()
            )
        return spent

    def spent_in(self, seconds: float) -> dict[str, float]:
        """ms of processor time in each of the next seconds, by part."""
        before, began = self.seconds(), time.monotonic()
        time.sleep(seconds)
        after, took = self.seconds(), time.monotonic() - began
        spent = {part: 1e3 * (after[part] - before.get(part, 0.0)) / took for part in after}
        main = spent.pop(f"thread {self._pid}")
        rest = [spent.pop(part) for part in list(spent) if part.startswith("thread ")]
        own = {"daemon": main + sum(rest), "main": main, "recorder": max(rest)}
        own["other threads"] = own["daemon"] - main - own["recorder"]
        return {part: round(value, 2) for part, value in {**own, **spent}.items()}


def _seconds(thread: Path) -> float:
    try:
        return int((thread / "schedstat").read_text().split()[0]) / 1e9
    except OSError:  # it has ended
        return 0.0


def measure(size: int, seconds: float, pause: float, artifacts: bool) -> dict[str, Any]:
    """One size, in a home of its own."""
    with tempfile.TemporaryDirectory() as folder:
        station = Station(Path(folder))
        station.home.mkdir(mode=0o700)
        store = f"[artifacts]\nurl = '{Path(folder, 'store').as_uri()}'\n" * artifacts
        settings = f"[daemon]\nmax_rollouts = {max(1, size)}\n{store}"
        (station.home / "houston.toml").write_text(settings)
        station.start()
        try:
            started = start_rollouts(station, size, pause) if size else 0.0
            time.sleep(SETTLED_SECONDS)
            (before,) = station.json("daemon", "status")
            counted_from = time.monotonic()
            spent = Watched(station).spent_in(seconds)
            (after,) = station.json("daemon", "status")
            counted = time.monotonic() - counted_from
        finally:
            station.stop()
    return {
        "rollouts": size,
        "pause_seconds": pause,
        "artifacts": artifacts,
        "started_seconds": round(started, 1),
        "messages": round((after["acked"] - before["acked"]) / counted, 1),
        "ms_a_second": spent,
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description="what waiting rollouts cost the daemon")
    parser.add_argument("--sizes", type=int, nargs="*", default=[0, 50, 100, 200])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--pause", type=float, default=3_600.0, help="seconds of a step")
    parser.add_argument("--artifacts", action="store_true", help="copied into a store")
    parser.add_argument("--as", dest="name", default="now", help="under which it is kept")
    asked = parser.parse_args()
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    earlier = kept.get(asked.name, {"runs": []})
    runs = {
        (run.get("artifacts", False), run["pause_seconds"], run["rollouts"]): run
        for run in earlier["runs"]
    }
    for size in asked.sizes:
        run = measure(size, asked.seconds, asked.pause, asked.artifacts)
        runs[asked.artifacts, asked.pause, size] = run
        print(json.dumps(run), flush=True)
    none = next((run for run in runs.values() if not run["rollouts"]), None)
    for run in runs.values():
        if none and run["rollouts"]:
            above = run["ms_a_second"]["daemon"] - none["ms_a_second"]["daemon"]
            run["ms_a_second_a_rollout"] = round(above / run["rollouts"], 3)
    kept[asked.name] = {
        "machine": machine(RESULTS.parent),
        "runs": [runs[key] for key in sorted(runs)],
    }
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
