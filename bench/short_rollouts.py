"""Short rollouts a second, durably, against the raw limit of the disk in the same run.

    python bench/short_rollouts.py [--episodes 640] [--group 64] [--runs 3] [--settings LINES]

A real daemon in a new home runs rollouts of three steps (two calls of `noop`, then `finish`) by
the script engine in the environment `null`. `burst`: all are queued at once. `groups`: as
reinforcement learning asks for them, `--group` at a time, and the next ones when all have ended.
An episode counts when its end is on disk. Written to bench/results/short_rollouts.json.

Two raw limits stand beside each figure. `group_commit`: an episode's events as bare rows with
bodies of the same size, as many a commit as the recorder took, and nothing else. `loop`: the
agent's loop alone, in one process, against a recorder that stores nothing.
"""

import argparse
import asyncio
import itertools
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable.machine import machine
from bench.group_commit import group_commit

from houston_daemon.agent.recorder_client import IngestConnection, IngestSocket
from houston_daemon.agent.rollout_worker import run_rollout
from houston_daemon.agent.worker_control import ControlState
from houston_daemon.service import rollout_start_checks
from houston_shared import wire
from houston_shared.config import load_configuration
from houston_shared.control_client import ControlClient
from houston_shared.recorder_endpoint import RecorderEndpoint
from houston_shared.records import RolloutSpec
from houston_shared.task import load_task
from tests.support.station import Station, command_line

RESULTS = ROOT / "bench" / "results" / "short_rollouts.json"
AIM = 40.0
"""Episodes a second on two cores."""
STEPS = 3
TICK = os.sysconf("SC_CLK_TCK")
NAMES = {
    "daemon": "service.daemon_process",
    "fork server": "service.fork_server",
    "own workers": "agent.rollout_worker",
    "shared workers": "agent.shared_worker",
    "search index": "recorder.search_indexer",
}
"""Part of the daemon → a word of its processes' command lines."""


class Daemon:
    """A daemon in a home of its own, with a task of three steps."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        """settings: lines of `[daemon]` in houston.toml."""
        self.station = Station(folder)
        self.station.home.mkdir(mode=0o700)
        (self.station.home / "houston.toml").write_text(f"[daemon]\n{settings}\n")
        self.station.start()
        self.loaded = load_configuration(str(self.station.home), environment=self._variables())
        task = folder / "task"
        task.mkdir()
        (task / "task.toml").write_text(
            'name = "short"\ninstructions = "Go on."\nenvironment = "null"\nsandbox = "none"\n'
        )
        self._task = load_task(task)
        noop = {"name": "noop", "arguments": {"text": "looked at the box and found a code"}}
        lines = [{"thought": f"step {number}", "calls": [noop]} for number in range(1, STEPS)]
        self._engine = self.station.script(lines)

    def _variables(self) -> dict[str, str]:
        return {key: value for key, value in self.station.environment.items() if "HOUSTON" in key}

    def specs(self, count: int) -> tuple[RolloutSpec, ...]:
        """What rollouts are started with."""
        return rollout_start_checks.build_rollout_specs(
            self.loaded, self._task, self._engine, count, 0
        )

    def start(self, count: int) -> None:
        """Queue rollouts, all in one message."""
        specs = self.specs(count)
        with ControlClient(self.loaded.home, 60.0) as client:
            client.ask(wire.StartRollouts(request=os.urandom(8).hex(), specs=specs))

    def status(self) -> Any:
        """What the daemon says of itself."""
        with ControlClient(self.loaded.home, 60.0) as client:
            return client.ask(wire.AskStatus())

    def wait(self, count: int, seconds: float = 600.0) -> None:
        """Until so many rollouts have finished."""
        end = time.monotonic() + seconds
        database = f"file:{self.loaded.home.database}?mode=ro"
        with closing(sqlite3.connect(database, uri=True)) as connection:
            query = "SELECT count(*) FROM rollouts WHERE state = 'finished'"
            while connection.execute(query).fetchone()[0] < count:
                assert time.monotonic() < end, self.station.log()
                time.sleep(0.01)

    def check(self, episodes: int) -> list[int]:
        """Every episode has its three steps and nothing else; sizes of the stored bodies."""
        shapes = self.station.query("SELECT state, steps, count(*) FROM rollouts GROUP BY 1, 2")
        assert shapes == [("finished", STEPS, episodes)], shapes
        rows = self.station.query("SELECT length(body) FROM events WHERE rollout <> ''")
        return [size for (size,) in rows]

    def cpu(self) -> dict[str, float]:
        """Processor seconds so far by part, children that ended included."""
        spent = dict.fromkeys(NAMES, 0.0)
        for entry in Path("/proc").glob("[0-9]*"):
            line = command_line(entry)
            name = next((name for name, word in NAMES.items() if word in line), "")
            if not name or str(self.station.folder) not in line + _environment(entry):
                continue
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            spent[name] += (int(fields[11]) + int(fields[12])) / TICK
            if name == "fork server":  # workers that have ended
                spent["own workers"] += (int(fields[13]) + int(fields[14])) / TICK
        return spent

    def peak_mb(self) -> float:
        """The most memory that one worker that lives now has had, in MB."""
        peaks = [0.0]
        for entry in Path("/proc").glob("[0-9]*"):
            if "agent.shared_worker" in command_line(entry) and str(self.station.folder) in (
                command_line(entry) + _environment(entry)
            ):
                words = (entry / "status").read_text().split()
                peaks.append(int(words[words.index("VmHWM:") + 1]) / 1024)
        return round(max(peaks), 1)


def _environment(entry: Path) -> str:
    try:
        return (entry / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


class NoRecorder(IngestConnection):
    """A recorder that answers at once and stores nothing, in the worker's own process."""

    def __init__(self, spec: RolloutSpec) -> None:
        self.endpoint = RecorderEndpoint("")
        self.controls = {}
        self._numbers = itertools.count(1)
        self._spec = spec

    async def exchange(self, number: bytes, body: bytes) -> wire.IngestReply:
        """The answer to a message."""
        del number
        await asyncio.sleep(0)
        reply: wire.IngestReply
        match wire.ingest_request_decoder.decode(body):
            case wire.Hello():
                reply = self._welcome()
            case wire.ReadSteps():
                reply = wire.Steps(steps=(), more=False)
            case _:
                reply = wire.Ack(seq=next(self._numbers), control=wire.WorkerControl())
        return wire.ingest_reply_decoder.decode(wire.encode_message(reply))

    def _welcome(self) -> wire.Welcome:
        return wire.Welcome(
            spec=self._spec,
            head=None,
            fork=None,
            next_step=1,
            first_step=1,
            active_us=0,
            evaluations=0,
            best_score=None,
            last_score=None,
            epoch=1,
            control=wire.WorkerControl(),
        )


async def loop_alone(spec: RolloutSpec, seconds: float, at_once: int = 16) -> float:
    """Episodes a second of the agent's loop in one process, if storing cost nothing."""
    connection, done = NoRecorder(spec), 0
    began = time.perf_counter()

    async def episodes() -> None:
        nonlocal done
        while time.perf_counter() < began + seconds:
            rollout = f"short-{done}"
            control = ControlState()
            client = IngestSocket(connection, control, rollout)
            await run_rollout(client, control, rollout, 1)
            await client.close()
            done += 1

    await asyncio.gather(*(episodes() for _ in range(at_once)))
    return done / (time.perf_counter() - began)


def measure(shape: str, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One run of one shape in a new home, with the raw limit of the same minute."""
    daemon = Daemon(folder, arguments.settings)
    try:
        daemon.start(16)  # the first worker and pages are not what is measured
        daemon.wait(16)
        before, used = daemon.status(), daemon.cpu()
        size = arguments.group if shape == "groups" else min(1_000, arguments.episodes)
        began, queued = time.perf_counter(), 0
        while queued < arguments.episodes:
            count = min(size, arguments.episodes - queued)
            daemon.start(count)
            queued += count
            if shape == "groups":
                daemon.wait(16 + queued)
        daemon.wait(16 + queued)
        took = time.perf_counter() - began
        after, now = daemon.status(), daemon.cpu()
        sizes = daemon.check(16 + queued)
        peak = daemon.peak_mb()
    finally:
        daemon.station.stop()
    episodes = arguments.episodes
    events = len(sizes) / (16 + episodes)
    per_commit = max(1, round(events * episodes / (after.commits - before.commits)))
    bodies = [bytes(size) for size in sizes[-1_000:]]
    rows = group_commit(folder, bodies, per_commit, 1.0, 4096)
    rate = episodes / took
    return {
        "episodes_per_second": round(rate, 1),
        "ms_per_episode": round(1e3 / rate, 2),
        "events_per_episode": round(events, 1),
        "events_per_commit": per_commit,
        "commits_per_second": round((after.commits - before.commits) / took),
        "cpu_ms_per_episode": {
            name: round(1e3 * (now[name] - used[name]) / episodes, 2) for name in NAMES
        },
        "worker_peak_mb": peak,
        "raw_group_commit_episodes_per_second": round(rows / events),
        "raw_loop_episodes_per_second": round(asyncio.run(loop_alone(daemon.specs(1)[0], 1.0))),
        "ratio": round(rate * events / rows, 3),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> int:
    """Measure, print, keep; exit code 1 where the aim is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=640)
    parser.add_argument("--group", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--shape", choices=("burst", "groups"), help="only this one; keeps nothing")
    parser.add_argument("--settings", default="", help="lines of [daemon], as rollouts_per_worker")
    arguments = parser.parse_args()
    results: dict[str, Any] = {"bench": "short_rollouts", **vars(arguments)}
    with tempfile.TemporaryDirectory(dir=RESULTS.parent) as name:
        results |= machine(Path(name))
        for shape in (arguments.shape,) if arguments.shape else ("burst", "groups"):
            runs = []
            for number in range(arguments.runs):
                folder = Path(name) / f"{shape}-{number}"
                folder.mkdir()
                runs.append(measure(shape, arguments, folder))
                print(json.dumps({"shape": shape, **runs[-1]}), flush=True)
            middle = sorted(runs, key=lambda run: run["episodes_per_second"])[len(runs) // 2]
            rates = [run["episodes_per_second"] for run in runs]
            results[shape] = {**middle, "all_runs": rates, "median": statistics.median(rates)}
    results["aim_episodes_per_second"] = AIM
    if arguments.shape:
        return 0
    results["met"] = all(results[shape]["median"] >= AIM for shape in ("burst", "groups"))
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if results["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
