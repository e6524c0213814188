"""What 1,000 steps of a real rollout take on disk: the home, and what lies under the host's root.

A real daemon runs a script; every step runs a command that changes a file and prints some lines.
Write-ahead logs are emptied and filled again: they are no growth, and their most is given apart.
"""

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
            home.append((done, taken(station.home) - logs[-1]))
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


def _logs(home: Path) -> int:
    return sum(512 * file.stat().st_blocks for file in home.glob("*.db-wal"))


def _step(number: int) -> dict[str, Any]:
    command = f"echo 'run {number}' >> notes.txt; seq {number} {number + 20}; tail -n 3 notes.txt"
    call = {"name": "run_command", "arguments": {"command": command, "session_id": "main"}}
    return {"thought": f"Experiment {number}: I note the run and look at it.", "calls": [call]}
