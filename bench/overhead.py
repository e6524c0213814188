"""What the loop adds to a step besides model and tool: script engine, null tool, durable.

Real daemon, real workers, real ZeroMQ, real SQLite with synchronous=FULL. The figure of a step is
the time between the journal's observations of two neighbouring steps. The raw limit in the same
run: one process that commits the same four records of a step, a transaction each, to SQLite.

    python bench/overhead.py [--steps 300] [--rollouts 1,8,32,64]
"""

import argparse
import json
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.support.station import Station

RECORDS_A_STEP = 4
"""sample, intent, result, observation."""
RECORD_BYTES = 600


def task(station: Station, steps: int) -> Path:
    """A task in the null environment."""
    file = station.task(budget=f"steps = {steps + 1}\nactive_seconds = 36000")
    file.write_text('environment = "null"\n' + file.read_text())
    return file


def script(station: Station, steps: int) -> str:
    """A script of calls that do nothing."""
    step = {"thought": "go on", "calls": [{"name": "noop", "arguments": {"text": "x" * 200}}]}
    return station.script([step] * steps)


def measure(rollouts: int, steps: int) -> dict[str, Any]:
    """Run `rollouts` at once to their end; figures from the journal."""
    with tempfile.TemporaryDirectory(prefix="houston-bench-") as folder:
        station = Station(Path(folder))
        station.start()
        try:
            ids = station.rollout(task(station, steps), script(station, steps), rollouts)
            for rollout in ids:
                station.ended(rollout, 900)
            (status,) = station.json("daemon", "status")
            gaps = [gap for rollout in ids for gap in step_gaps(station, rollout)]
            ((first, last, count),) = station.query(
                "SELECT min(at), max(at), count(*) FROM events WHERE kind = 'observation'"
            )
        finally:
            station.stop()
    return {
        "rollouts": rollouts,
        "steps": count,
        "step_median_ms": round(statistics.median(gaps), 3),
        "step_p99_ms": round(statistics.quantiles(gaps, n=100)[98], 3),
        "steps_per_second": round(count / ((last - first) / 1e6), 1),
        "commit_p99_ms": status["commit_p99_ms"],
        "longest_silence_s": round(status["longest_silence"], 2),
    }


def step_gaps(station: Station, rollout: str) -> list[float]:
    """Milliseconds between neighbouring observations of one rollout."""
    rows = station.query(
        "SELECT at FROM events WHERE rollout = ? AND kind = 'observation' ORDER BY seq", rollout
    )
    return [(after - before) / 1000 for (before,), (after,) in pairwise(rows)]


def raw(steps: int) -> dict[str, Any]:
    """The same commits without Houston: one process, one transaction a record."""
    with tempfile.TemporaryDirectory(prefix="houston-bench-") as folder:
        connection = sqlite3.connect(Path(folder) / "raw.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, body BLOB)")
        body = os.urandom(RECORD_BYTES)
        times = []
        for _ in range(steps):
            start = time.perf_counter()
            for _ in range(RECORDS_A_STEP):
                connection.execute("INSERT INTO events (body) VALUES (?)", (body,))
            times.append((time.perf_counter() - start) * 1000)
        connection.close()
    return {
        "step_median_ms": round(statistics.median(times), 3),
        "step_p99_ms": round(statistics.quantiles(times, n=100)[98], 3),
    }


def main() -> None:
    """Measure, print, keep as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rollouts", default="1,8,32,64")
    given = parser.parse_args()
    limit = raw(given.steps)
    runs = []
    for count in map(int, given.rollouts.split(",")):
        runs.append(measure(count, max(60, given.steps // max(1, count // 4))))
        print(json.dumps(runs[-1]), flush=True)
    report = {
        "bench": "overhead",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "versions": {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version},
        "raw_four_commits": limit,
        "runs": runs,
        "ratio_median_to_raw": round(runs[0]["step_median_ms"] / limit["step_median_ms"], 2),
    }
    Path(__file__).parent.joinpath("results", "overhead.json").write_text(
        json.dumps(report, indent=1) + "\n"
    )
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
