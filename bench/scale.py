"""What gives first as rollouts grow from 10 to 10,000: a simulation from constants measured here.

    python bench/scale.py [--sizes 10 100 1000 10000] [--sampling 6] [--tool 3] [--minutes 3]
                          [--disk-gb 4000] [--hours 30] [--measured]

Measured in this run: what a commit of the recorder takes for how many messages (`bench/recorder`
with 1, 8 and 64 clients), the bytes of a step, and what a console reads to rank 100 and 1,000
rollouts that run; with `--measured` these are those of the last run. Read from
`bench/results/waiting_rollouts.json` and `ray_growth.json`, with the machine they were measured on:
what a rollout costs the daemon's process while it waits and for a step, and processor time and
memory of workers.

Simulated, event by event: each rollout samples and uses a tool for times drawn from exponential
distributions with the means given, sends the four messages of a step one after the other, and waits
for the ack of each. The recorder takes all that waits, up to its batch, and acks it after a commit.
Engines are not part of it: an answer takes as long as it takes, since engines are added with
rollouts. `gives at` is the number of rollouts at which each part reaches its limit, found between
the sizes by doubling and halving. Written to bench/results/scale.json.
"""

import argparse
import functools
import heapq
import json
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench import recorder
from bench.durable.machine import machine
from bench.recorder_clients import shapes

from houston_daemon.recorder.message_receiver import WORKER_BATCH_SIZE
from houston_shared.home import Home
from houston_shared.store import attention_ranking
from houston_shared.store.store_reader import Reader
from tests.console.home_builder import HomeBuilder

RESULTS = ROOT / "bench" / "results"
MESSAGES_A_STEP = 4
TOOL_AFTER = 2
"""Messages of a step before its tool runs: the sample and the intent."""
CLIENTS = (1, 8, 64)
RANKED = (100, 1_000)
LONG_PAUSE = 600.0
"""A rollout whose step takes longer than this many seconds does nothing but wait."""
MOST = 1_000_000
"""Rollouts that are looked at at most."""
LIMITS = {
    "ack": (100.0, "ms until a message is acked, 99th percentile"),
    "daemon": (0.7, "processors that the daemon's process uses; Python's lock allows one"),
    "console": (2_000.0, "ms that a console reads to rank all rollouts"),
    "disk": (1.0, "share of the disk that the database fills"),
}


class Constants(NamedTuple):
    """What was measured."""

    commit_ms: float
    message_ms: float
    """A commit of n messages takes commit_ms + n * message_ms."""
    bytes_a_step: float
    ranked_ms: float
    """What a console reads for one rollout that runs."""
    daemon_idle_ms: float
    """Of the daemon's process, each second, without any rollout."""
    daemon_waiting_ms: float
    """The same for each rollout more, whatever it does."""
    daemon_ms_a_step: float
    """On top of that."""
    worker_ms_a_step: float
    mb_a_rollout: float


class Load(NamedTuple):
    """What rollouts do, and for how long."""

    sampling: float
    """Seconds, as the tool's."""
    tool: float
    seconds: float
    """Simulated, after a tenth of it that is not counted."""


def line_through(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least squares: value at 0, and slope."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum(
        (x - mean_x) ** 2 for x, _ in points
    )
    return mean_y - slope * mean_x, slope


def measured_recorder(folder: Path, seconds: float) -> dict[int, dict[str, Any]]:
    """By number of clients, what the recorder did."""
    script = shapes()["2 KB"]
    return {
        count: recorder.run(folder / f"recorder-{count}", count, seconds, script)
        for count in CLIENTS
    }


def measured_ranking(folder: Path) -> dict[int, float]:
    """By number of rollouts that run, ms to rank them all; the best of three."""
    found = {}
    for count in RANKED:
        path = folder / f"ranked-{count}"
        with HomeBuilder(path) as builder, builder.bulk():
            for number in range(count):
                builder.start(f"r{number:05}", task=f"task-{number % 7}")
                for step in (1, 2, 3):
                    builder.whole(f"r{number:05}", step, "what comes next", texts=("printed\n",))
        times = []
        with Reader(Home(path)) as reader:
            for _ in range(3):
                began = time.perf_counter()
                reader.run(attention_ranking.read_rollout_overviews())
                times.append(1e3 * (time.perf_counter() - began))
        found[count] = round(min(times), 1)
    return found


def measured_now(
    seconds: float,
) -> tuple[dict[str, Any], dict[int, dict[str, Any]], dict[int, float]]:
    """About this machine, and what recorder and ranking take here."""
    with tempfile.TemporaryDirectory(dir=RESULTS) as name:
        folder = Path(name)
        commits, ranked = measured_recorder(folder, seconds), measured_ranking(folder)
        return machine(folder), commits, ranked


def measured_before() -> tuple[dict[str, Any], dict[int, dict[str, Any]], dict[int, float]]:
    """The same, as it stands in the results."""
    kept = json.loads((RESULTS / "scale.json").read_text())
    about = {name: kept[name] for name in ("machine", "versions", "load")}
    about["raw_append_and_fdatasync_ms"] = kept["raw_append_and_fdatasync_ms"]
    commits = {int(count): run for count, run in kept["measured"]["recorder"].items()}
    ranked = {int(count): value for count, value in kept["measured"]["ranking_ms"].items()}
    return about, commits, ranked


@functools.cache  # every part's limit is looked for among the same numbers
def simulate(count: int, constants: Constants, load: Load, seed: int = 1) -> Mapping[str, float]:
    """Some rollouts beside each other; the recorder's share, and how long acks took (ms)."""
    drawn = random.Random(seed)
    waits, work = load.sampling, load.tool
    counted_from = load.seconds / 10
    ends = load.seconds + counted_from
    # As in the middle of their work: some sample, some have a tool that runs.
    sent = [0 if drawn.random() * (waits + work) < waits else TOOL_AFTER for _ in range(count)]
    """Messages of its step that a rollout has had acked."""
    events = [
        (drawn.expovariate(1 / (work if sent[number] else waits)), number)
        for number in range(count)
    ]
    heapq.heapify(events)
    queue: deque[tuple[float, int]] = deque()
    batch: list[tuple[float, int]] = []
    acks: list[float] = []
    busy, free_at, steps = 0.0, 0.0, 0
    while events:
        now, number = heapq.heappop(events)
        if now > ends:
            break
        if number < count:
            queue.append((now, number))
        else:  # a commit is done
            for since, rollout in batch:
                if now > counted_from:
                    acks.append(now - since)
                sent[rollout] = (sent[rollout] + 1) % MESSAGES_A_STEP
                steps += not sent[rollout] and now > counted_from
                pause = {0: waits, TOOL_AFTER: work}.get(sent[rollout], 0)
                next_at = now + (drawn.expovariate(1 / pause) if pause else 0)
                heapq.heappush(events, (next_at, rollout))
            batch = []
        if queue and not batch and free_at <= now:
            batch = [queue.popleft() for _ in range(min(len(queue), WORKER_BATCH_SIZE))]
            took = (constants.commit_ms + len(batch) * constants.message_ms) / 1e3
            free_at = now + took
            busy += took if now > counted_from else 0
            heapq.heappush(events, (free_at, count))
    acks.sort()
    return {
        "steps_a_second": round(steps / load.seconds, 2),
        "recorder": round(busy / load.seconds, 4),
        "ack_p50_ms": round(1e3 * acks[len(acks) // 2], 2),
        "ack": round(1e3 * acks[int(0.99 * (len(acks) - 1))], 2),
    }


def judged(
    count: int, constants: Constants, load: Load, disk_bytes: float, hours: float
) -> dict[str, float]:
    """Every part's figure for some rollouts, by the names of `LIMITS`, and what else is asked."""
    figures = simulate(count, constants, load)
    steps = figures["steps_a_second"]
    written = steps * constants.bytes_a_step * hours * 3600
    return {
        **figures,
        "daemon": round(daemon_share(count, steps, constants), 4),
        "console": round(count * constants.ranked_ms, 1),
        "disk": round(written / disk_bytes, 4),
        "database_gb": round(written / 1e9, 1),
        "worker_processors": round(steps * constants.worker_ms_a_step / 1e3, 2),
        "worker_memory_gb": round(count * constants.mb_a_rollout / 1e3, 1),
    }


def daemon_share(count: int, steps: float, constants: Constants) -> float:
    """Processors that the daemon's process uses. steps: a second."""
    lived = constants.daemon_idle_ms + count * constants.daemon_waiting_ms
    return (lived + steps * constants.daemon_ms_a_step) / 1e3


def measured_daemon() -> tuple[dict[str, float], dict[str, Any]]:
    """Of the daemon's process, ms a second `idle` and for each `waiting` rollout, ms for a `step`;
    and what they are from (`bench/waiting_rollouts.py`)."""
    found = json.loads((RESULTS / "waiting_rollouts.json").read_text())["now"]
    plain = [run for run in found["runs"] if not run["artifacts"]]
    waiting = {
        run["rollouts"]: run["ms_a_second"]["daemon"]
        for run in plain
        if run["pause_seconds"] > LONG_PAUSE
    }
    idle, each = line_through(sorted(waiting.items()))
    stepping = max(
        (run for run in plain if run["pause_seconds"] <= LONG_PAUSE),
        key=lambda run: run["rollouts"],
    )
    steps = stepping["rollouts"] / stepping["pause_seconds"]
    above = stepping["ms_a_second"]["daemon"] - waiting[stepping["rollouts"]]
    constants = {"idle": max(0.0, idle), "waiting": each, "step": above / steps}
    return constants, {"rollouts": sorted(waiting), "machine": found["machine"]}


def gives_at(figure: Callable[[int], float], limit: float) -> int | None:
    """The fewest rollouts, to a tenth, whose figure is above its limit; None below `MOST`."""
    high = 10
    while figure(high) <= limit:
        high *= 2
        if high > MOST:
            return None
    low = high // 2
    while high > 1.1 * low:
        middle = (low + high) // 2
        low, high = (low, middle) if figure(middle) > limit else (middle, high)
    return high


def main() -> int:
    """Measure, simulate, print, keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 100, 1_000, 10_000])
    parser.add_argument("--sampling", type=float, default=6.0, help="seconds an answer takes")
    parser.add_argument("--tool", type=float, default=3.0, help="seconds a tool runs")
    parser.add_argument("--minutes", type=float, default=3.0, help="that are simulated")
    parser.add_argument("--disk-gb", type=float, default=4_000.0)
    parser.add_argument("--hours", type=float, default=30.0, help="that a rollout takes")
    parser.add_argument("--seconds", type=float, default=3.0, help="that the recorder is measured")
    parser.add_argument("--measured", action="store_true", help="measure nothing again")
    asked = parser.parse_args()
    about, commits, ranked = measured_before() if asked.measured else measured_now(asked.seconds)
    daemon, daemon_from = measured_daemon()
    grown = json.loads((RESULTS / "ray_growth.json").read_text())
    shared = max(
        (run for run in grown["runs"] if run["rollouts_per_worker"] > 1),
        key=lambda run: run["rollouts"],
    )
    parts = shared["ms_a_step_by_part"]
    points = [
        (run["messages_per_commit"], 1e3 * run["messages_per_commit"] / run["messages_per_second"])
        for run in commits.values()
    ]
    constants = Constants(
        *(max(0.0, value) for value in line_through(points)),
        bytes_a_step=commits[64]["bytes_per_step"],
        ranked_ms=max(ranked[count] / count for count in RANKED),
        daemon_idle_ms=daemon["idle"],
        daemon_waiting_ms=daemon["waiting"],
        daemon_ms_a_step=daemon["step"],
        worker_ms_a_step=parts["workers"] + parts["actors"],
        mb_a_rollout=shared["mb_a_rollout"],
    )
    load = Load(asked.sampling, asked.tool, 60 * asked.minutes)

    def figures(count: int) -> dict[str, float]:
        return judged(count, constants, load, asked.disk_gb * 1e9, asked.hours)

    short = load._replace(seconds=20.0)  # enough for means and the 99th percentile of thousands
    gives = {}
    for part, (limit, what) in LIMITS.items():
        gives[part] = {
            "limit": limit,
            "what": what,
            "gives_at": gives_at(
                lambda count, part=part: judged(
                    count, constants, short, asked.disk_gb * 1e9, asked.hours
                )[part],
                limit,
            ),
        }
    found = {
        **about,
        "load_of_a_rollout": {"sampling_seconds": asked.sampling, "tool_seconds": asked.tool},
        "disk_gb": asked.disk_gb,
        "hours": asked.hours,
        "constants": {name: round(value, 4) for name, value in constants._asdict().items()},
        "measured": {
            "recorder": commits,
            "ranking_ms": ranked,
            "waiting_rollouts": daemon_from,
            "ray_growth": {"rollouts": shared["rollouts"], "machine": grown["machine"]},
        },
        "sizes": {count: figures(count) for count in asked.sizes},
        "gives": gives,
    }
    (RESULTS / "scale.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({name: found[name] for name in ("constants", "sizes", "gives")}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
