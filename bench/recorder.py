"""How many messages a second the recorder acks, durably, against raw group commit on this disk.

`python bench/recorder.py [--seconds 8] [--clients 64]` writes bench/results/recorder.json. The
recorder runs in a process of its own; the clients, each with one message under way, share another.
The baseline writes rows of the same size with the same number of rows a commit, WAL and
synchronous=FULL, without sockets, hashes or derived rows: what this disk gives at most.
"""

import argparse
import itertools
import json
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zmq

from houston_shared import records, wire
from houston_shared.home import Home

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from tests.support.recorder_client import Person, call, result, sample  # noqa: E402

TEXT = 2_000
"""Bytes of text in each sample and result."""
REQUEST = b"\0" * 7 + b"\1"


def words() -> Iterator[wire.Wire]:
    """What one worker says, without end: four messages a step."""
    said = "x" * TEXT
    for step in itertools.count(1):
        at: dict[str, Any] = {"rollout": "", "lease": 1, "step": step, "attempt": 1}
        yield wire.StoreSample(**at, sample=sample(step, thought=said))
        yield wire.StoreIntent(**at, index=0, intent=records.Intent(call=call(step)))
        yield wire.StoreResult(**at, index=0, result=result(step, text=said))
        yield wire.StoreObservation(**at, observation=records.ObservationBody(tail="[step]"))


def recorder(home: Home, clients: int, seconds: float) -> dict[str, float]:
    """Acked messages a second and the time from sending to the ack."""
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
    waits = _work(home, rollouts, seconds)
    status = person.ask(wire.AskStatus())
    person.close()
    process.stdin.close()
    process.wait(30)
    waits.sort()
    wal = home.database.with_name("houston.db-wal")
    return {
        "messages_per_second": round(len(waits) / seconds),
        "ack_p50_ms": round(1e3 * waits[len(waits) // 2], 2),
        "ack_p99_ms": round(1e3 * waits[int(len(waits) * 0.99)], 2),
        "commit_p99_ms": round(status.commit_p99_ms, 2),
        "wal_mb": round(status.wal_mb, 1),
        "search_lag_events": status.search_lag,
        "bytes_per_step": round(4 * home.database.stat().st_size / len(waits)),
        "wal_left": wal.stat().st_size if wal.exists() else 0,
    }


def _work(home: Home, rollouts: list[str], seconds: float) -> list[float]:
    context = zmq.Context()
    poller = zmq.Poller()
    lines: dict[Any, tuple[str, Iterator[wire.Wire]]] = {}
    sent: dict[Any, float] = {}
    for rollout in rollouts:
        socket = context.socket(zmq.DEALER)
        socket.connect(home.socket("ingest"))
        poller.register(socket, zmq.POLLIN)
        lines[socket] = (rollout, words())
    waits: list[float] = []
    end = time.perf_counter() + seconds

    def say(socket: Any) -> None:
        rollout, said = lines[socket]
        body = _addressed(next(said), rollout)
        sent[socket] = time.perf_counter()
        socket.send_multipart((REQUEST, body))

    for socket in lines:
        say(socket)
    while time.perf_counter() < end:
        for socket, _ in poller.poll(1000):
            reply = socket.recv_multipart()
            if reply[0] == wire.PUSH:
                continue
            if b"\xa3Ack" not in reply[1][:12]:
                raise SystemExit(f"refused: {wire.ingest_reply.decode(reply[1])}")
            waits.append(time.perf_counter() - sent[socket])
            say(socket)
    context.destroy(linger=0)
    return waits


def _addressed(message: Any, rollout: str) -> bytes:
    import msgspec

    return wire.encode(msgspec.structs.replace(message, rollout=rollout))


def raw(folder: Path, group: int, seconds: float) -> float:
    """Rows of the same size a second, `group` a commit."""
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE rows (seq INTEGER PRIMARY KEY, body BLOB)")
    bodies = [wire.encode(message) for message in itertools.islice(words(), 4)]
    done = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        connection.execute("BEGIN")
        for number in range(group):
            connection.execute("INSERT INTO rows (body) VALUES (?)", (bodies[number % 4],))
        connection.execute("COMMIT")
        done += group
    connection.close()
    return done / seconds


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--clients", type=int, default=64)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=ROOT / "bench" / "results") as name:
        folder = Path(name)
        results: dict[str, Any] = {"clients": arguments.clients, "body_bytes": TEXT}
        results["raw_rows_per_second"] = round(
            raw(folder, arguments.clients, arguments.seconds / 4)
        )
        results |= recorder(Home(folder / "home"), arguments.clients, arguments.seconds)
    results["ratio_to_raw"] = round(
        results["messages_per_second"] / results["raw_rows_per_second"], 2
    )
    results |= {
        "sqlite": sqlite3.sqlite_version,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }
    path = ROOT / "bench" / "results" / "recorder.json"
    path.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
