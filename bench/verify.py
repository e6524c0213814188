"""How fast `houston verify` reads a home, beside the raw limit of the same run, and what it finds.

`python bench/verify.py [--mb 150] [--flips 1200]` writes bench/results/verify.json. Raw is the
least that any check must do: SQLite reads every body of the same file, SHA-256 goes over it. Also
measured: a backup while the recorder stores what one worker says without a pause, how long it
holds a read mark, and how long messages take beside it.
"""

import argparse
import hashlib
import json
import os
import platform
import random
import resource
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from houston_daemon.maintenance import home_backup
from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.recorder.disk import home_files
from houston_daemon.recorder.journal_writer import prepare_inline_body
from houston_shared import wire
from houston_shared.home import Home
from houston_shared.records import ToolCall
from tests.support import bit_flips
from tests.support.recorder_client import Station
from tests.support.written_home import WrittenHome, sample

TEXT = 2_000
"""Bytes of text in each thought and each result."""
ROLLOUTS = 20
RUNS = 5


def written(path: Path, megabytes: int) -> Home:
    """A home of 20 rollouts with this many megabytes of bodies: a call a step, 150 token ids."""
    home = WrittenHome(path)
    dice = random.Random(1)
    words = [f"{dice.getrandbits(32):08x}" for _ in range(5_000)]
    names = [home.rollout(f"bench-{number:04d}") for number in range(ROLLOUTS)]
    home.connection.execute("UPDATE rollouts SET state = 'queued'")  # as the events say
    home.connection.execute("BEGIN")
    home.event = lambda key, kind, record, blob=False: home.journal.append(  # type: ignore[method-assign]
        key, kind, prepare_inline_body(record)
    )
    step = 0
    while home.journal.inline_bytes < megabytes * 1e6:
        step += 1
        for name in names:
            said = (" ".join(dice.choices(words, k=TEXT // 9)) for _ in range(2))
            call = ToolCall(id=f"{step}.0", name="run_command", arguments={"command": "make test"})
            thought = sample(
                next(said),
                calls=(call,),
                new_prompt_ids=tuple(range(110)),
                token_ids=tuple(range(40)),
                logprobs=(-0.5,) * 40,
                logprob_kind="policy",
            )
            home.step(name, step, thought, (next(said),))
    home.connection.execute("COMMIT")
    home.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    home_files.write_chain_head(home.home, home.journal.seq, home.journal.chain)
    home.close()
    return home.home


def raw(home: Home) -> float:
    """MB/s of reading every body and hashing it, and nothing else."""
    connection = sqlite3.connect(f"file:{home.database}?mode=ro", uri=True)
    began, size = time.perf_counter(), 0
    for (one,) in connection.execute("SELECT body FROM events ORDER BY seq"):
        hashlib.sha256(one).digest()
        size += len(one)
    connection.close()
    return size / 1e6 / (time.perf_counter() - began)


def processor() -> float:
    """Seconds of processor that this process and its children have used."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def rates(home: Home) -> dict[str, Any]:
    """Verify and raw in turns; the medians and the best."""
    checked, least, work = [], [], []
    for _ in range(RUNS):
        least.append(raw(home))
        began, before = time.perf_counter(), processor()
        report = verify_home(home)
        assert report.sound, report.findings
        checked.append(report.bytes / 1e6 / (time.perf_counter() - began))
        work.append(processor() - before)
    return {
        "events": report.events,
        "megabytes": round(report.bytes / 1e6),
        "verify_mb_per_second": round(statistics.median(checked)),
        "verify_mb_per_second_best": round(max(checked)),
        "verify_cpu_seconds": round(min(work), 2),
        "raw_read_and_hash_mb_per_second": round(statistics.median(least)),
        "ratio_to_raw": round(statistics.median(checked) / statistics.median(least), 2),
    }


def found(folder: Path, times: int) -> dict[str, Any]:
    """Flips and cuts over everything that a home has; how many were found."""
    dice = random.Random(20261120)
    share = {
        "event column": 0.22, "derived column": 0.28, "body in the file": 0.12, "blob": 0.08,
        "head file": 0.06, "database page": 0.12, "cut database": 0.02, "cut events": 0.02,
    }  # fmt: skip
    counts: Counter[str] = bit_flips.run(
        bit_flips.stopped(folder / "stopped"),
        {name: round(times * part) for name, part in share.items()},
        dice,
        folder,
    )
    wal = {"wal": round(times * 0.06), "cut wal": round(times * 0.02)}
    counts += bit_flips.run(bit_flips.killed(folder / "killed"), wal, dice, folder)
    missed = sum(count for name, count in counts.items() if name.endswith("missed"))
    harmless = sum(count for name, count in counts.items() if name.endswith("harmless"))
    return {
        "harms": sum(counts.values()),
        "found": sum(counts.values()) - missed - harmless,
        "harmless": harmless,
        "missed": missed,
        "by_kind": dict(sorted(counts.items())),
    }


def backed_up(home: Home) -> dict[str, Any]:
    """A backup of the large home while its recorder stores events without a pause."""
    station = Station(home.path).start()
    waits: list[float] = []
    over = threading.Event()

    def work() -> None:
        worker = station.working()
        step = 0
        while not over.is_set():
            step += 1
            for say in (worker.sample, worker.intent, worker.result, worker.observation):
                began = time.perf_counter()
                while isinstance(say(step), wire.Refused):  # the WAL is full: as a worker does
                    time.sleep(0.01)
                waits.append(time.perf_counter() - began)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(3)
    before = sorted(waits)
    waits.clear()
    began = time.perf_counter()
    made = home_backup.make_backup(home)
    seconds = time.perf_counter() - began
    beside = sorted(waits)
    over.set()
    thread.join()
    station.stop()
    return {
        "seconds": round(seconds, 2),
        "megabytes": round(made.bytes / 1e6),
        "read_mark_held_seconds": made.held_seconds,
        "messages_beside_it": len(beside),
        "message_p99_ms_before": round(1e3 * before[int(0.99 * len(before))], 2),
        "message_p99_ms_beside_it": round(1e3 * beside[int(0.99 * len(beside))], 2),
    }


def main() -> None:
    """Measure, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=150)
    parser.add_argument("--flips", type=int, default=1_200)
    arguments = parser.parse_args()
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory(dir=ROOT / "bench" / "results") as name:
        folder = Path(name)
        home = written(folder / "large", arguments.mb)
        results: dict[str, Any] = {
            "rate": rates(home),
            "flips": found(folder, arguments.flips),
            "backup_under_load": backed_up(home),
            "load_before": load,
            "sqlite": sqlite3.sqlite_version,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
        }
    path = ROOT / "bench" / "results" / "verify.json"
    path.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
