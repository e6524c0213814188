"""What 1,000 steps of a real rollout take on disk: the home, and what lies under the host's root.

A real daemon runs a script; every step runs a command that changes a file and prints some lines.
A database is as large as a reader sees it, with what waits in its write-ahead log to be copied. The
logs themselves are emptied and filled again: they are no growth, and their most is given apart.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from bench.world.line import fit
from bench.world.snapshots import taken

from tests.support.station import Station

POINTS = 10


def measure(folder: Path, steps: int) -> dict[str, Any]:
    """Aim: the disk grows along a line, no point further from it than 5 % of the growth."""
    station = Station(folder)
    station.start()
    try:
        budget = f"steps = {steps + 1}\nactive_seconds = 36000\ncontext_tokens = 30000"
        task = station.task(budget=budget)
        (rollout,) = station.rollout(task, station.script([_step(n) for n in range(steps)]))
        every = steps // POINTS
        home: list[tuple[int, int]] = []
        host: list[tuple[int, int]] = []
        logs: list[int] = []
        for goal in range(every, steps + 1, every):
            station.until(lambda goal=goal: station.closed(rollout) >= goal, 600)
            done = station.closed(rollout)
            logs.append(_logs(station.home))
            home.append((done, _held(station.home)))
            host.append((done, taken(station.host_root)))
        record = station.ended(rollout)
    finally:
        station.clear()
    if record["state"] != "finished":
        raise RuntimeError(record["reason"])
    lines = {"home": fit(home), "host": fit(host)}
    return {
        **lines,
        "write_ahead_logs_most_mb": round(max(logs) / 1e6, 2),
        "aim": "linear: no point further from the line than 5 % of the growth",
        "met": all(line["worst_residual"] <= 0.05 for line in lines.values()),
    }


def _held(home: Path) -> int:
    """Bytes of a home: its databases as they read, everything else as it lies on the disk."""
    files = [*home.glob("*.db"), *home.glob("*.db-*")]
    return taken(home) - sum(512 * one.stat().st_blocks for one in files) + _pages(home)


def _pages(home: Path) -> int:
    total = 0
    for file in home.glob("*.db"):
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as reader:
            ((pages,),) = reader.execute("PRAGMA page_count")
            ((size,),) = reader.execute("PRAGMA page_size")
            total += pages * size
    return total


def _logs(home: Path) -> int:
    return sum(512 * file.stat().st_blocks for file in home.glob("*.db-wal"))


def _step(number: int) -> dict[str, Any]:
    command = f"echo 'run {number}' >> notes.txt; seq {number} {number + 20}; tail -n 3 notes.txt"
    call = {"name": "run_command", "arguments": {"command": command, "session_id": "main"}}
    return {"thought": f"Experiment {number}: I note the run and look at it.", "calls": [call]}
