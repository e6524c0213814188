"""How many messages a second the recorder acks, durably, against raw group commit on this disk.

`python bench/recorder.py [--seconds 5] [--clients 64] [--runs 3]` writes
bench/results/recorder.json. The recorder runs in a process of its own (the indexer it starts is
another); the clients, each with one message under way, share a third. What clients send is encoded
beforehand, as real workers encode in processes of their own. Two shapes: `2 KB`, where each of the
four messages of a step carries 2,000 bytes of text, and `step`, where the sample and the result do
and the intent and the observation are short, as with a real tool.

The baseline (`group_commit`) writes rows with the bytes of the very same messages, with the same
page size, WAL and synchronous=FULL: no sockets, hashes, keys, indexes or derived rows. It runs with
1, 16 and 64 rows a commit and with the recorder's own mean number of messages a commit in the same
run; `ratio` is held against the last, which leaves only the recorder's own work between the two.
Beside it stands `same_rows_per_second`: the recorder's own statements on its own tables and indexes
with that number of messages a commit, and nothing else (`same_rows`).
"""

import argparse
import json
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import zmq

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.group_commit import group_commit
from bench.recorder_clients import Clients, Script, shapes
from bench.same_rows import Played

from houston_shared import wire
from houston_shared.home import Home
from tests.support.recorder_client import Person

TICK = os.sysconf("SC_CLK_TCK")
GROUPS = (1, 16, 64)
PLAYED = 240
"""Messages of each rollout that the statements are kept of: more than a second's."""
RESULTS = ROOT / "bench" / "results"


def run(folder: Path, clients: int, seconds: float, script: Script) -> dict[str, Any]:
    """One run of a recorder in a new home: what was acked, how fast, at what cost."""
    home = Home(folder)
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/support/recorder_process.py"), str(home.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdin
    assert process.stdout
    process.stdout.readline()
    person = Person(home)
    rollouts = person.start(clients)
    for rollout in rollouts:
        process.stdin.write(rollout + "\n")
        process.stdin.flush()
        process.stdout.readline()
    crowd = Clients(zmq.Context(), home, rollouts, script)
    crowd.work(0.5)  # the first pages and statements are not what is measured
    before, used = person.ask(wire.AskStatus()), _cpu(process.pid)
    own = time.process_time()
    crowd.work(seconds)
    own = time.process_time() - own
    used = {name: spent - used.get(name, 0.0) for name, spent in _cpu(process.pid).items()}
    after = person.ask(wire.AskStatus())
    waits = sorted(crowd.waits)
    crowd.close()
    person.close()
    process.stdin.close()
    process.wait(30)
    done = len(waits)
    return {
        "messages_per_second": round(done / seconds),
        "ack_p50_ms": round(1e3 * waits[done // 2], 2),
        "ack_p99_ms": round(1e3 * waits[int(done * 0.99)], 2),
        "commit_p99_ms": round(after.commit_p99_ms, 2),
        "messages_per_commit": round(done / (after.commits - before.commits), 1),
        "recorder_threads_us_per_message": round(1e6 * used.get("threads", 0) / done, 1),
        "recorder_process_us_per_message": round(1e6 * sum(used.values()) / done, 1),
        "clients_us_per_message": round(1e6 * own / done, 1),
        "wal_mb": round(after.wal_mb, 1),
        "search_lag_events": after.search_lag,
        "bytes_per_step": round(4 * home.database.stat().st_size / crowd.total),
    }


def _cpu(pid: int) -> dict[str, float]:
    """Processor seconds of a process: its own threads (receive, store, commit), and ZeroMQ's."""
    spent: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
        fields = rest.split()
        name = "zmq" if name.startswith("ZMQ") else "threads"
        spent[name] = spent.get(name, 0.0) + (int(fields[11]) + int(fields[12])) / TICK
    return spent


def _us(began: float, rows: float) -> float:
    """Processor time a row since `began`, microseconds: what a busy machine changes least."""
    return round(1e6 * (time.process_time() - began) / rows, 1)


def _page_size(home: Path) -> int:
    connection = sqlite3.connect(Home(home).database)
    try:
        return int(connection.execute("PRAGMA page_size").fetchone()[0])
    finally:
        connection.close()


def measure(shape: str, script: Script, arguments: argparse.Namespace) -> dict[str, Any]:
    """The middle one of some runs, with the baselines of the same minutes beside it.

    The fastest would go with whatever the neighbours of a machine did to its baseline.

    arguments: clients, seconds, runs, and a folder on the disk to measure where it is another.
    """
    bodies = script.bodies(64)
    played = Played(script, arguments.clients, PLAYED)
    with tempfile.TemporaryDirectory(dir=getattr(arguments, "disk", RESULTS)) as name:
        folder = Path(name)
        runs = []
        for number in range(arguments.runs):
            one = run(folder / str(number), arguments.clients, arguments.seconds, script)
            own = max(1, round(one["messages_per_commit"]))
            pages = _page_size(folder / str(number))
            one["raw_rows_per_second"] = {
                str(group): round(group_commit(folder, bodies, group, arguments.seconds / 5, pages))
                for group in sorted({*GROUPS, own})
            }
            one["ratios"] = {
                group: round(one["messages_per_second"] / rows, 2)
                for group, rows in one["raw_rows_per_second"].items()
            }
            one["ratio"] = one["ratios"][str(own)]
            began = time.process_time()
            raw = group_commit(folder, bodies, own, arguments.seconds / 5, pages)
            one["raw_us_per_row"] = _us(began, raw * arguments.seconds / 5)
            began = time.process_time()
            same = played.rate(folder, own, arguments.seconds / 5, pages)
            one["same_rows_us_per_row"] = _us(began, same * arguments.seconds / 5)
            one["same_rows_per_second"] = round(same)
            one["ratio_to_same_rows"] = round(one["messages_per_second"] / same, 2)
            one["load"] = round(os.getloadavg()[0], 1)
            runs.append(one)
            print(json.dumps({"shape": shape, **one}), flush=True)
    middle = sorted(runs, key=lambda one: one["messages_per_second"])[len(runs) // 2]
    return {
        "body_bytes_mean": round(sum(map(len, bodies)) / len(bodies)),
        **middle,
        "all_runs": [
            [one["messages_per_second"], one["ack_p99_ms"], one["ratio"], one["load"]]
            for one in runs
        ],
    }


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--disk", default=RESULTS, help="a folder on it")
    parser.add_argument("--shape", default="", help="only this one; writes nothing")
    arguments = parser.parse_args()
    results: dict[str, Any] = {
        "bench": "recorder",
        "clients": arguments.clients,
        "seconds_a_run": arguments.seconds,
        "ratio_is_to": "raw group commit with the run's own mean number of messages a commit",
        "all_runs_are": ["messages_per_second", "ack_p99_ms", "ratio", "load"],
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "versions": {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version},
    }
    for shape, script in shapes().items():
        if arguments.shape in ("", shape):
            results[shape] = measure(shape, script, arguments)
    if not arguments.shape:
        path = RESULTS / "recorder.json"
        path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
