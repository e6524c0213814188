"""`houston tail -f` through kills and restarts of the daemon: no gap, no line twice."""

import json
import subprocess
import sys
from pathlib import Path

from houston_console.commands.journal_commands import TAIL_KINDS
from tests.support.station import Station

STEPS = 120
LOOK = {"thought": "Look.", "calls": [{"name": "get_date", "arguments": {}}], "delay": 0.1}


def test_nothing_is_missed_and_nothing_comes_twice(tmp_path: Path) -> None:
    station = Station(tmp_path)
    station.start()
    lines = tmp_path / "tailed.jsonl"
    command = [
        sys.executable,
        "-m",
        "houston_shared.command",
        "tail",
        "-f",
        "-n",
        "99999",
        "--json",
    ]
    with lines.open("wb") as file:
        tail = subprocess.Popen(
            command, env=station.environment, cwd=tmp_path, stdout=file, stderr=subprocess.PIPE
        )
    try:
        task = station.task(sandbox="none", budget=f"steps = {STEPS}")
        (rollout,) = station.rollout(task, station.script([LOOK] * STEPS))
        station.until(lambda: station.closed(rollout) >= 5, why="it works")
        station.kill_daemon()
        station.start()
        station.until(lambda: station.closed(rollout) >= 10, why="it goes on")
        station.run("daemon", "restart")
        station.until(lambda: station.closed(rollout) >= 15, why="it goes on again")
        station.run("rollout", "cancel", rollout)
        station.ended(rollout)
        station.stop()
        marks = ", ".join("?" * len(TAIL_KINDS))
        query = f"SELECT seq FROM events WHERE kind IN ({marks}) ORDER BY seq"
        should = [seq for (seq,) in station.query(query, *TAIL_KINDS)]
        station.until(lambda: tailed(lines)[-1:] == should[-1:], 60, "the tail is there")
        assert tailed(lines) == should
        assert tail.poll() is None, "it goes on while no daemon runs"
    finally:
        tail.kill()
        said = tail.communicate()[1]
        station.clear()
    assert said == b""


def tailed(file: Path) -> list[int]:
    """Sequences of the whole lines so far."""
    return [json.loads(line)["seq"] for line in file.read_text().split("\n")[:-1]]
