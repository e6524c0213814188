"""What an annotator waits for, on a rollout of 50,000 steps and a million lines that goes on.

    python bench/console.py [--steps 50000] [--small 2000] [--seconds 10] [--no-peers]

A home with twenty rollouts; the real recorder in a process of its own; `houston console` in a
pseudo-terminal of 160 x 50, timed from outside, from the key to the bytes of the frame that shows
what it did. Ten steps a second arrive. The same steps, in the same run, in mini-swe-agent's
inspector and in a Textual app with one Collapsible a step, both from PyPI (`annotating.peers`), at
a size at which they come to an end: one widget a step takes minutes and gigabytes at 50,000.
Written to bench/results/console.json with the aims; the exit code is 1 when one is missed.
"""

import argparse
import json
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.annotating import houston, peers, stored
from bench.durable.machine import machine

RESULTS = ROOT / "bench" / "results" / "console.json"
LINES = 20
"""Of every step's output."""


def judged(figures: dict[str, Any], steps: int) -> dict[str, dict[str, Any]]:
    """Each aim with what was found."""
    long, home = figures[f"{steps} steps"], figures["from home"]
    preview = figures["at home"]
    arriving = long["while steps arrive"]
    first = max(one["first_hits_ms"] for one in (*long["search"].values(), arriving["search"]))
    still = max(one["idle_bytes_a_second"] for one in (home, preview, long))
    narrow = figures["low bandwidth"]
    found = {
        "open a rollout, ms": (300, home["open"]["median_ms"]),
        "open home, ms": (300, preview["open"]["median_ms"]),
        "key at home, ms": (10, preview["key"]["down"]["median_ms"]),
        "following at home, bytes a second": (60_000, preview["following"]["bytes_a_second"]),
        "jump, ms": (50, arriving["jump"]["median_ms"]),
        "key, ms": (10, arriving["key"]["down"]["median_ms"]),
        "first hits of a search, ms": (100, first),
        "memory that a long rollout adds, MB": (60, home["memory_added_mb"]),
        "idle, bytes a second": (0, max(still, narrow["idle_bytes_a_second"])),
        "following, bytes a second": (60_000, long["following"]["bytes_a_second"]),
    }
    return {
        name: {"aim": aim, "found": value, "met": value <= aim}
        for name, (aim, value) in found.items()
    }


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument(
        "--small", type=int, default=2_000, help="steps that peers come to grips with"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="that bytes are counted")
    parser.add_argument("--no-peers", action="store_true")
    given = parser.parse_args()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="houston-bench-") as name:
        folder = Path(name)
        stored.write(folder / "home", given.steps, given.small, LINES).close()
        figures = houston.measure(folder / "home", given.steps, given.small, given.seconds)
        result: dict[str, Any] = {
            "what": "houston console in a pseudo-terminal of 160x50, timed from outside",
            **machine(folder),
            "textual": version("textual"),
            "steps": given.steps,
            "lines": given.steps * LINES,
            "steps_a_second": houston.RATE,
            "aims": judged(figures, given.steps),
            "houston": figures,
        }
        if not given.no_peers:
            peers.prepared()
            result["peers"] = peers.measure(folder, given.small, given.steps, LINES)
            result["peers_are"] = [peers.INSPECTOR, *peers.NEEDS[:1]]
    result["seconds"] = round(time.perf_counter() - began)
    text = json.dumps(result, indent=1) + "\n"
    print(text, end="")
    RESULTS.write_text(text)
    return 0 if all(one["met"] for one in result["aims"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
