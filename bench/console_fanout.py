"""What a hundred consoles cost, and what one of them that stalls costs the others.

    python bench/console_fanout.py [--readers 100] [--seconds 20] [--rollouts 32]

A real daemon with real workers (script engine, null tool) makes about 200 steps a second, durably.
A hundred readers, each with a live socket and a read-only connection, share four processes; one
real console runs in a pseudo-terminal. Delays begin with an event's own time, which is taken before
its commit, so that they hold the commit too. Phases, each over the same load:

    alone       no reader: what a commit takes by itself
    attached    all of them, attached within one second
    stalled     a further process of readers and a second console are stopped (SIGSTOP)

The raw limit in the same run: ZeroMQ PUB to as many SUB sockets in as many processes, at the rate
of notices that was seen, without a database. Written to bench/results/console_fanout.json.
"""

import argparse
import json
import os
import platform
import pty
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.support.station import Station

PROCESSES = 4
READERS = Path(__file__).with_name("fanout_readers.py")
PHASES = ("attached", "stalled")
"""Phases with readers."""
DELAY = 0.155
"""Seconds a script step waits: 32 rollouts then make about 200 steps a second."""


class Readers:
    """Processes that hold readers."""

    def __init__(self, place: str, count: int, processes: int, *flags: str) -> None:
        began = time.perf_counter()
        self.processes = [
            subprocess.Popen(
                [sys.executable, str(READERS), place, str(count // processes), *flags],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(processes)
        ]
        for one in self.processes:
            assert one.stdout
            assert one.stdout.readline() == "ready\n"
        self.attach_seconds = time.perf_counter() - began

    def end(self) -> dict[str, Any]:
        """Let them finish; what they saw together."""
        said = [json.loads(one.communicate("\n", timeout=60)[0]) for one in self.processes]
        return {
            key: (
                sum(one[key] for one in said)
                if key == "missing"
                else [value for one in said for value in one[key]]
            )
            for key in said[0]
        }


class Console:
    """The real console in a pseudo-terminal whose output is read away, unless it is stalled."""

    def __init__(self, station: Station, rollout: str) -> None:
        self.bytes = 0
        self.pid, self._terminal = pty.fork()
        if self.pid == 0:
            os.environ.update(station.environment, TERM="xterm-256color")
            command = [sys.executable, "-m", "houston_shared.command", "console", rollout]
            os.execv(sys.executable, command)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while data := os.read(self._terminal, 65_536):
                self.bytes += len(data)
        except OSError:
            return  # it has ended

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def end(self) -> None:
        """End it, stopped or not."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        os.waitpid(self.pid, 0)


def spread(values: list[float]) -> dict[str, float]:
    """Median, 99th percentile and worst, milliseconds."""
    cuts = statistics.quantiles(values, n=100)
    return {
        "p50_ms": round(cuts[49], 2),
        "p99_ms": round(cuts[98], 2),
        "worst_ms": round(max(values), 2),
    }


def rss_mb(pid: int) -> float:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


class Phase:
    """One stretch of the load: steps and events a second, commit p99 and memory of the daemon."""

    def __init__(self, station: Station) -> None:
        self._station = station
        self._began = time.time_ns() // 1000

    def end(self) -> dict[str, Any]:
        """What happened meanwhile."""
        ended = time.time_ns() // 1000
        ((steps, events),) = self._station.query(
            "SELECT count(*) FILTER (WHERE kind = 'observation'), count(*) FROM events"
            " WHERE at BETWEEN ? AND ?",
            self._began,
            ended,
        )
        (status,) = self._station.json("daemon", "status")
        seconds = (ended - self._began) / 1e6
        return {
            "steps_per_second": round(steps / seconds, 1),
            "events_per_second": round(events / seconds, 1),
            "commit_p99_ms": round(status["commit_p99_ms"], 2),
            "consoles": status["consoles"],
            "daemon_rss_mb": rss_mb(status["pid"]),
        }


def load(station: Station, rollouts: int, seconds: float) -> list[str]:
    """Start rollouts that together go on for at least `seconds`."""
    steps = int(seconds / DELAY)
    file = station.task(budget=f"steps = {steps + 1}\nactive_seconds = 36000")
    file.write_text('environment = "null"\n' + file.read_text())
    call = {"name": "noop", "arguments": {"text": "x" * 200}}
    line = {"thought": "go on", "calls": [call], "delay": DELAY}
    return station.rollout(file, station.script([line] * steps), rollouts)


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """All phases over one load."""
    with tempfile.TemporaryDirectory(prefix="houston-fanout-") as folder:
        station = Station(Path(folder))
        station.start()
        try:
            rollouts = load(station, given.rollouts, 6 * given.seconds + 30)
            station.until(lambda: all(station.steps(one) for one in rollouts[-1:]), 60)
            return phases(station, rollouts, given)
        finally:
            station.run("daemon", "stop", code=None)


def phases(station: Station, rollouts: list[str], given: argparse.Namespace) -> dict[str, Any]:
    """Measure alone, attached, stalled."""
    found: dict[str, Any] = {}
    phase = Phase(station)
    time.sleep(given.seconds)
    found["alone"] = phase.end()
    console = Console(station, rollouts[0])
    home = str(station.home)
    for name in PHASES:
        let_go = stall(station, rollouts[1]) if name == "stalled" else None
        readers = Readers(home, given.readers, PROCESSES)
        phase, before = Phase(station), console.bytes
        time.sleep(given.seconds)
        found[name] = phase.end()
        seen = readers.end()
        found[name] |= {
            "commit_to_notice": spread(seen["notices"]),
            "commit_to_read": spread(seen["shown"]),
            "missing": seen["missing"],
            "snapshot_worst_ms": max(seen["snapshot_ms"]),
            "attach_seconds": round(readers.attach_seconds, 2),
            "console_bytes_per_second": round((console.bytes - before) / given.seconds),
        }
        if let_go:
            let_go()
    console.end()
    return found


def stall(station: Station, rollout: str) -> Callable[[], None]:
    """A console and five readers that stop reading; what ends them."""
    console, readers = Console(station, rollout), Readers(str(station.home), 5, 1)
    time.sleep(3)
    console.signal(signal.SIGSTOP)
    readers.processes[0].send_signal(signal.SIGSTOP)

    def end() -> None:
        readers.processes[0].kill()
        readers.processes[0].wait()
        console.end()

    return end


def raw(readers: int, rate: float, seconds: float) -> dict[str, Any]:
    """ZeroMQ alone: one publisher, as many readers, `rate` messages a second."""
    with tempfile.TemporaryDirectory(prefix="houston-fanout-") as folder:
        endpoint = f"ipc://{folder}/raw"
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        publisher = context.socket(zmq.PUB)
        publisher.bind(endpoint)
        waiting = Readers(endpoint, readers, PROCESSES, "--raw")
        time.sleep(1)
        end, due = time.perf_counter() + seconds, time.perf_counter()
        while due < end:
            publisher.send(str(time.time_ns()).encode())
            due += 1 / rate
            time.sleep(max(0.0, due - time.perf_counter()))
        time.sleep(0.5)
        seen = waiting.end()["notices"]
        context.destroy(linger=0)
    return {"messages_per_second": round(rate), **spread(seen), "received": len(seen)}


def main() -> None:
    """Measure, print, keep as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rollouts", type=int, default=32)
    given = parser.parse_args()
    found = measure(given)
    found["raw_pub_sub"] = raw(given.readers, found["attached"]["events_per_second"], 5)
    attached, stalled = (found[name]["commit_to_notice"]["p99_ms"] for name in PHASES)
    report = {
        "bench": "console_fanout",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "versions": {
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "libzmq": zmq.zmq_version(),
        },
        "readers": given.readers,
        "processes": PROCESSES,
        **found,
        "notice_p99_aim_ms": 100,
        "p99_stalled_to_attached": round(stalled / attached, 2),
        "daemon_rss_growth_mb": round(
            found["stalled"]["daemon_rss_mb"] - found["attached"]["daemon_rss_mb"], 1
        ),
    }
    path = Path(__file__).parent / "results" / "console_fanout.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
