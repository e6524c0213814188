"""Random keys on the console, as many as asked for: does any of them end it, or fail a part of it?

    python bench/console_fuzz.py [--keys 100000] [--first-seed 101] [--minutes 600]

Each seed presses its keys as `tests/console/test_fuzz.py` does, on a home of its own that goes on
meanwhile; seed by seed the daemon is away, restarts all the time, or is of another version. The
seeds, the keys on each screen and beside each daemon, and every fault with the keys before it are
printed and kept in bench/results/console_fuzz.json; 1 where there was a fault.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable.machine import machine

from tests.console.test_fuzz import DAEMON_STATES, DaemonState, fuzz

RESULT = ROOT / "bench" / "results" / "console_fuzz.json"
KEYS_A_SEED = 1_000


def pressed(seed: int, keys: int, daemon: DaemonState, visited: Counter[str]) -> str:
    """Press the keys of one seed; what failed, with the keys before it, or nothing."""
    with (
        tempfile.TemporaryDirectory(prefix="houston-fuzz-") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        try:
            visited.update(asyncio.run(fuzz(seed, keys, Path(folder), patch, daemon)))
        except Exception as problem:  # noqa: BLE001 whatever ends it is what is looked for
            notes = "\n".join(getattr(problem, "__notes__", ()))
            return f"{type(problem).__name__}: {problem}\n{notes}"
    return ""


def main() -> int:
    """Press, print, keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--first-seed", type=int, default=101)
    parser.add_argument("--minutes", type=float, default=600.0, help="no seed begins later")
    asked = parser.parse_args()
    began, seed = time.monotonic(), asked.first_seed
    visited: Counter[str] = Counter()
    beside: Counter[str] = Counter()
    faults: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        told: dict[str, Any] = machine(Path(folder))
    left = asked.keys
    while left > 0 and time.monotonic() - began < 60 * asked.minutes:
        keys = min(left, KEYS_A_SEED)
        daemon = DAEMON_STATES[seed % len(DAEMON_STATES)]
        before = visited.total()
        if words := pressed(seed, keys, daemon, visited):
            faults[f"{seed} ({daemon})"] = words
        beside[daemon] += visited.total() - before
        print(
            f"seed {seed}, daemon {daemon}: {visited.total():,} keys, "
            f"{len(faults)} faults  {words}",
            flush=True,
        )
        seed, left = seed + 1, left - keys
        result = {
            **told,
            "textual": version("textual"),
            "keys": visited.total(),
            "seeds": [asked.first_seed, seed - 1],
            "keys_by_screen": dict(visited.most_common()),
            "keys_by_daemon": dict(beside),
            "faults_by_seed": faults,
            "seconds": round(time.monotonic() - began),
        }
        RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
