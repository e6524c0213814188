"""Nothing acked is lost, and what that costs: the figures of durability, with their aims.

    python bench/durability.py [--only NAME]...

Each figure is measured on the disk of bench/results and written to bench/results/durability.json
with the machine, the versions and a raw baseline; figures not measured now are kept as they are.
A figure that misses its aim says so (`met`: false), and the exit code is 1.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable import cuts, restart, speaking, throughput
from bench.durable.machine import machine

RESULTS = ROOT / "bench" / "results" / "durability.json"
FIGURES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "power_cuts": cuts.measure,
    "throughput": throughput.measure,
    "restart": restart.measure,
    "guidance": speaking.measure,
}


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=sorted(FIGURES), default=[])
    wanted = parser.parse_args().only or list(FIGURES)
    found: dict[str, Any] = {}
    for name in wanted:
        with tempfile.TemporaryDirectory(dir=RESULTS.parent) as folder:
            place = Path(folder)
            found[name] = {**machine(place), **FIGURES[name](place)}
        print(json.dumps({name: found[name]}, indent=1), flush=True)
        kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps({**kept, name: found[name]}, indent=1) + "\n")
    return 0 if all(one["met"] for one in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
