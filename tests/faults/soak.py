"""`make soak`: every point over and over, in random order, with deaths at random between them.

`python -m tests.faults.soak [--minutes 40] [--kills 1200] [--seed 1] [--folder DIR]` goes on where
the state file in the folder ends, until either bound is met, and writes the sum of everything in it
to bench/results/soak.json. What is broken off by Ctrl-C is one segment, which is run again. A
segment with findings leaves its home behind and names it.
"""

import argparse
import json
import os
import platform
import random
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import zmq

from tests.faults.fault_points import FAULT_POINTS
from tests.faults.kill_cycles import OTHER, RANDOM, Result, Segment

ROOT = Path(__file__).parents[2]
OUT = ROOT / "bench" / "results" / "soak.json"
SEGMENT = 60
"""Deaths in one home."""
AT_RANDOM = 6
"""Deaths of each random kind in a round."""


def plan(seed: int, begin: int, count: int) -> list[str]:
    """Deaths number `begin` to `begin + count` of the endless list that a seed means."""
    names = [*FAULT_POINTS, *RANDOM * AT_RANDOM, *OTHER]
    found: list[str] = []
    for number in range(begin // len(names), (begin + count) // len(names) + 1):
        order = list(names)
        random.Random(f"{seed} {number}").shuffle(order)
        found += order
    skip = begin % len(names)
    return found[skip : skip + count]


def run(names: list[str], seed: int, folder: Path, end: float) -> tuple[Result, Path]:
    """One home and its deaths, until `end` at the latest."""
    place = Path(tempfile.mkdtemp(prefix="segment-", dir=folder)) / "g"
    dice = random.Random(seed)
    segment = Segment(place, dice)
    try:
        segment.begin()
        for name in names:
            if time.monotonic() > end:
                break
            if name in RANDOM:
                segment.random(name)
            elif name in OTHER:
                segment.disturb(name)
            else:
                segment.kill_at(name)
        segment.finish()
    except (AssertionError, OSError) as problem:
        segment.result.findings.append(f"broken off: {type(problem).__name__}: {problem}"[:4000])
    finally:
        segment.ground.close()
    if not segment.result.findings:
        segment.ground.remove()
    return segment.result, place


def done(state: Path) -> list[dict[str, Any]]:
    """Segments that are done, as the state file tells them."""
    lines = state.read_text().splitlines() if state.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def number_of(segment: dict[str, Any], *what: str) -> int:
    """How many deaths (points that were missed, other faults) a segment had."""
    return sum(sum(segment[one].values()) for one in what)


def spread(segments: list[dict[str, Any]], what: str) -> dict[str, float]:
    """Percentiles of what every segment measured."""
    values = sorted(value for one in segments for value in one[what]) or [0.0]
    return {
        "p50": round(values[len(values) // 2], 3),
        "p99": round(values[int(len(values) * 0.99)], 3),
        "max": round(values[-1], 3),
        "of": len(values),
    }


def summary(segments: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything of all segments, with the machine and the versions."""
    kills, missed, others, counts = (Counter[str]() for _ in range(4))
    findings: list[str] = []
    for one in segments:
        kills.update(one["kills"])
        missed.update(one["missed"])
        others.update(one["others"])
        counts.update(one["counts"])
        findings += one["findings"]
    kinds = Counter(finding.partition(":")[0] for finding in findings)
    whose: Counter[str] = Counter()
    for name, number in kills.items():
        whose[name.partition(".")[0]] += number
    return {
        "kills": kills.total(),
        "kills_by_process": dict(sorted(whose.items())),
        "other_faults": dict(sorted(others.items())),
        "points": sum(name in FAULT_POINTS for name in kills),
        "points_of": len(FAULT_POINTS),
        "acked_messages": counts["acked"],
        "guidance_acked": counts["guidance"],
        "guidance_said_again": counts["guidance said again"],
        "contexts_compared": counts["prompts"],
        "rollouts": counts["rollouts"],
        "lost": kinds["lost"],
        "doubled": kinds["doubled"],
        "reordered": kinds["reordered"],
        "altered": kinds["altered"] + kinds["invented"],
        "corrupt": kinds["verify"],
        "orphans": kinds["left running"] + kinds["still there"],
        "findings": [one.splitlines()[0] for one in findings[:50]],  # whole in the state file
        "restart_to_ready_seconds": spread(segments, "ready_seconds"),
        "death_to_last_process_gone_seconds": spread(segments, "gone_seconds"),
        "seconds": round(sum(one["seconds"] for one in segments)),
        "kills_by_point": dict(sorted(kills.items())),
        "not_reached": dict(sorted(missed.items())),
        "machine": {
            "cpu": platform.processor() or platform.machine(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
        },
        "versions": {
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "libzmq": zmq.zmq_version(),
            "houston": version("houston-agents"),
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser("soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=40)
    parser.add_argument("--kills", type=int, default=1_200, help="in all, with those done before")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "soak")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    state = asked.folder / f"soak-{asked.seed}.jsonl"
    end = time.monotonic() + asked.minutes * 60
    segments = done(state)
    try:
        while time.monotonic() < end:
            before = sum(
                sum(one["kills"].values()) + sum(one["missed"].values()) for one in segments
            )
            left = asked.kills - sum(sum(one["kills"].values()) for one in segments)
            if left <= 0:
                break
            began = time.monotonic()
            names = plan(asked.seed, before, min(SEGMENT, left))
            result, place = run(names, asked.seed + before, asked.folder, end)
            line = {**result.json(), "seconds": time.monotonic() - began, "place": str(place)}
            with state.open("a") as file:
                file.write(json.dumps(line) + "\n")
            segments.append(line)
            killed = sum(number_of(one, "kills") for one in segments)
            found, took = len(result.findings), line["seconds"]
            print(f"{killed} kills; in the last {took:.0f} s {found} findings", flush=True)
    except KeyboardInterrupt:
        print("broken off; the same command goes on from here", flush=True)
    if not segments:
        return 1
    OUT.write_text(json.dumps(summary(segments), indent=2) + "\n")
    print(f"written: {OUT}")
    return int(any(one["findings"] for one in segments))


if __name__ == "__main__":
    sys.exit(main())
