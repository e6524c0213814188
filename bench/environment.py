"""The workstation's figures: a command, a snapshot, a big workspace brought back, disk per step.

    python bench/environment.py [--only NAME]... [--files 50000] [--steps 1000] [--megabytes 500]

`--megabytes 5000` is the full size of the big workspace; it needs 20 GB of disk and some minutes.
Each figure is measured on the disk of bench/results and written to bench/results/environment.json
with the machine and the versions; figures not measured now are kept as they are. A figure that
misses its aim says so (`met`: false), and the exit code is 1.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pygit2

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable.machine import machine
from bench.world import branching, commands, restoring, snapshots, steps_on_disk

RESULTS = ROOT / "bench" / "results" / "environment.json"
Given = argparse.Namespace
FIGURES: dict[str, Callable[[Path, Given], dict[str, Any]]] = {
    "command": lambda folder, given: commands.measure(folder),
    "snapshot": lambda folder, given: snapshots.measure(folder, given.files, given.steps),
    "restore": lambda folder, given: restoring.measure(folder, given.files, given.megabytes),
    "branch": lambda folder, given: branching.measure(folder, given.files),
    "disk": lambda folder, given: steps_on_disk.measure(folder, given.steps),
}


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=sorted(FIGURES), default=[])
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=500)
    given = parser.parse_args()
    found: dict[str, Any] = {}
    for name in given.only or FIGURES:
        with tempfile.TemporaryDirectory(dir=RESULTS.parent) as folder:
            place = Path(folder)
            about = machine(place)
            about["versions"]["libgit2"] = pygit2.LIBGIT2_VERSION
            found[name] = {**about, **FIGURES[name](place, given)}
        print(json.dumps({name: found[name]}, indent=1), flush=True)
        key = name
        if name == "restore" and given.megabytes != parser.get_default("megabytes"):
            key = f"restore, {given.megabytes} MB"
        kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps({**kept, key: found[name]}, indent=1) + "\n")
    return 0 if all(one["met"] for one in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
