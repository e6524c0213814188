"""What it takes to say something: durable round trip, whole command, and when it is heard.

Four rollouts run meanwhile. A message is heard in the next observation when no observation of its
rollout was stored between it and the one that carries it.
"""

import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.durable.machine import spread
from bench.overhead import task

from houston_shared.home import Home
from tests.support.recorder_client import Person
from tests.support.station import Station

ROLLOUTS = 4
MESSAGES = 400
COMMANDS = 100
STEPS = 20_000
LATE = """
SELECT count(*) FROM guidance g JOIN events d ON d.rollout = g.rollout AND d.kind = 'observation'
 AND d.step = g.delivered_step
 WHERE EXISTS (SELECT 1 FROM events o WHERE o.rollout = g.rollout AND o.kind = 'observation'
 AND o.seq > g.text_seq AND o.seq < d.seq)
"""


def measure(folder: Path) -> dict[str, Any]:
    """Aim: p99 of 30 ms for the round trip, of 150 ms for the command, always the next."""
    station = Station(folder)
    station.start()
    try:
        step: dict[str, Any] = {"thought": "go on", "delay": 0.05}
        step["calls"] = [{"name": "noop", "arguments": {"text": "x" * 200}}]
        ids = station.rollout(task(station, STEPS), station.script([step] * STEPS), ROLLOUTS)
        station.until(lambda: all(station.show(one)["state"] == "running" for one in ids))
        trips = _trips(station, ids)
        before = _cpu()
        commands = [_command(station, ids[number % ROLLOUTS]) for number in range(COMMANDS)]
        cpu = _cpu() - before
        raw = [_timed([sys.executable, "-c", "pass"], station) for _ in range(COMMANDS)]
        station.until(lambda: not _queued(station), 60, "all is heard")
        said = station.query("SELECT count(*) FROM guidance")[0][0]
        late = station.query(LATE)[0][0]
    finally:
        station.clear()
    trip, command = spread(trips), spread(commands)
    return {
        "rollouts": ROLLOUTS,
        "round_trip_ms": trip,
        "command_ms": command,
        "command_mean_processor_ms": round(1e3 * cpu / COMMANDS, 1),
        "raw_interpreter_ms": spread(raw),
        "messages": said,
        "heard_later_than_the_next_observation": late,
        "aim": "round trip p99 30 ms, command p99 150 ms, always the next observation",
        "met": trip["p99"] <= 30 and command["p99"] <= 150 and not late,
    }


def _trips(station: Station, ids: list[str]) -> list[float]:
    person, times = Person(Home(station.home)), []
    for number in range(MESSAGES):
        began = time.perf_counter()
        person.guide(ids[number % ROLLOUTS], f"message {number}")
        times.append(1e3 * (time.perf_counter() - began))
        time.sleep(0.01)
    person.close()
    return times


def _command(station: Station, rollout: str) -> float:
    program = str(Path(sys.executable).with_name("houston"))
    return _timed([program, "guide", rollout, "a word"], station)


def _cpu() -> float:
    """Processor seconds of all commands so far: what a busy machine does not change."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _timed(command: list[str], station: Station) -> float:
    began = time.perf_counter()
    subprocess.run(command, env=station.environment, check=True, stdout=subprocess.DEVNULL)
    return 1e3 * (time.perf_counter() - began)


def _queued(station: Station) -> int:
    return int(station.query("SELECT count(*) FROM guidance WHERE state = 'queued'")[0][0])
