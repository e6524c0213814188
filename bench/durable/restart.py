"""kill -9 of the daemon under 20 rollouts of 2,000 steps each: how soon it is back, and they are.

Ready is when `houston daemon start` returns. A rollout is back with its first observation after
the kill. The raw limit beside it: an interpreter that starts and opens the same database.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.durable.machine import spread
from bench.overhead import task

from tests.support.station import Station

ROLLOUTS = 20
STEPS = 2_000
AFTER = 4_000
"""Further steps, slow ones: what the rollouts are at when the daemon is killed."""
KILLS = 5
RAW = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT max(seq) FROM events')"


def measure(folder: Path) -> dict[str, Any]:
    """Aim: ready within 3 s, the first step of each resumed rollout within 10 s."""
    station = Station(folder)
    station.start()
    try:
        step: dict[str, Any] = {"thought": "go on"}
        step["calls"] = [{"name": "noop", "arguments": {"text": "x" * 200}}]
        engine = station.script([step] * STEPS + [{**step, "delay": 0.5}] * AFTER)
        ids = station.rollout(task(station, STEPS + AFTER), engine, ROLLOUTS)
        station.until(lambda: _steps(station) >= STEPS, 1_800, "all have come so far")
        kills = [_kill(station, len(ids)) for _ in range(KILLS)]
        raw = [_raw(station) for _ in range(KILLS)]
    finally:
        station.clear()
    ready, back = [one[0] for one in kills], [one[1] for one in kills]
    return {
        "rollouts": ROLLOUTS,
        "steps_each": STEPS,
        "kills": KILLS,
        "ready_ms": spread(ready),
        "every_rollout_has_a_new_step_ms": spread(back),
        "raw_interpreter_opens_the_database_ms": spread(raw),
        "aim": "ready in 3 s, first step of a resumed rollout in 10 s",
        "met": max(ready) <= 3_000 and max(back) <= 10_000,
    }


def _steps(station: Station) -> int:
    """Steps of the rollout that has the fewest."""
    return int(station.query("SELECT coalesce(min(steps), 0) FROM rollouts")[0][0])


def _kill(station: Station, rollouts: int) -> tuple[float, float]:
    """Milliseconds from the start command until it is ready, and until every rollout is back."""
    station.kill_daemon()
    (newest,) = station.query("SELECT max(seq) FROM events")[0]
    began = time.perf_counter()
    station.start()
    ready = time.perf_counter() - began

    def back() -> bool:
        found = station.query(
            "SELECT count(DISTINCT rollout) FROM events WHERE seq > ? AND kind = 'observation'",
            newest,
        )
        return bool(found[0][0] == rollouts)

    station.until(back, 120, "every rollout goes on")
    return 1e3 * ready, 1e3 * (time.perf_counter() - began)


def _raw(station: Station) -> float:
    began = time.perf_counter()
    database = str(station.home / "houston.db")
    subprocess.run([sys.executable, "-c", RAW, database], check=True)
    return 1e3 * (time.perf_counter() - began)
