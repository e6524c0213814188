"""An engine of several servers: what keeping to one saves, and what losing one costs.

    python bench/engine_pool.py [--replicas 3] [--rollouts 24] [--steps 8] [--runs 3] [--model M]

Real embedded servers are asked by the client that workers use. Each rollout's prompts grow as an
agent's do: a head that all share, then what was sampled and an observation with each step.

`prefix_hits`: tokens of prompts that a server took from its cache, of all. `sticky` is what workers
do; `random` sends each request anywhere; `one_server` has one cache for all. `new` is the most that
any cache could find: all but the head, once a server, and the observations.

`none_lost`, `killed`, `stalled`: a long sample of each rollout is under way when one server is
killed, or stopped; seconds until a sample has come, median of those that the lost server had and of
the others, medians over the runs. A stalled one is found by silence alone here (`--silence`), as by
a judge; a worker is told by the daemon, whose three looks take 6 to 21 s. `moves` counts requests
that left a server.

Written to bench/results/engine_pool.json. Without --model a tiny model with random weights is made:
ratios do not depend on the model, seconds do.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable.machine import machine

from houston_daemon.engines import replicated_engine
from houston_daemon.engines.engine_process import EngineProcess
from houston_daemon.engines.engine_protocol import EngineSample, SampleRequest
from houston_daemon.engines.engine_registry import choose_engine
from houston_daemon.engines.replicated_engine import ReplicatedEngine
from houston_shared.engine_settings import server_name
from tests.engines.conftest import free_port
from tests.training.sft import tiny

RESULTS = ROOT / "bench" / "results" / "engine_pool.json"
HEAD, OBSERVATION, ANSWER = 300, 60, 16
"""Tokens of the shared head, of each observation, and of each sample."""
LONG = 200
"""Tokens of the samples during which a server is lost."""
WORDS = range(2, tiny.WORDS)


@contextmanager
def served(count: int, model: Path, folder: Path) -> Iterator[list[EngineProcess]]:
    """So many embedded servers of one model, ready."""
    with ExitStack() as ending:
        processes = []
        for number in range(count):
            port = free_port()
            words = ["-m", "houston_daemon.engines.embedded", "--die-with-parent"]
            words += ["--model", str(model), "--port", str(port), "--dtype", "float32"]
            process = EngineProcess(
                f"replica {number}",
                [sys.executable, *words],
                f"http://127.0.0.1:{port}/v1",
                folder / f"{number}.json",
                folder / f"{number}.log",
            )
            process.start()
            ending.callback(process.stop)
            processes.append(process)
        for process in processes:
            wait_for(process)
        yield processes


def wait_for(process: EngineProcess) -> None:
    """Until it answers."""
    while not process.healthy():
        if not process.alive():
            raise SystemExit(process.failing_line())
        time.sleep(0.1)


def pool(processes: list[EngineProcess], **settings: Any) -> ReplicatedEngine:
    """The client of these servers, as a worker has it."""
    urls = [process.url for process in processes]
    engine = choose_engine({"kind": "token", "urls": urls, **settings}, None, "pool")
    assert isinstance(engine, ReplicatedEngine)
    return engine


def request(ids: list[int], rollout: str, salt: str, tokens: int = ANSWER) -> SampleRequest:
    """What a worker asks. salt: keeps the caches of two measurements apart."""
    return SampleRequest(
        prompt_ids=tuple(ids),
        messages=(),
        tools=(),
        max_tokens=tokens,
        temperature=0,
        cache_salt=salt,
        rollout=rollout,
    )


async def sample(engine: ReplicatedEngine, asked: SampleRequest) -> EngineSample:
    """Asked once, until it is answered."""
    return await engine.sample(asked, asyncio.Event())


async def run_rollout(
    engine: ReplicatedEngine, number: int, steps: int, route: Callable[[int, int], str], salt: str
) -> tuple[int, int]:
    """Prompt tokens of one rollout, and how many of them came from a cache."""
    words = random.Random(number)
    head = random.Random(0)
    ids = [head.choice(WORDS) for _ in range(HEAD)]
    asked = cached = 0
    for step in range(steps):
        ids += [words.choice(WORDS) for _ in range(OBSERVATION)]
        got = await sample(engine, request(ids, route(number, step), salt))
        asked += len(ids)
        cached += got.usage.cached_tokens or 0
        ids += got.token_ids or ()
    return asked, cached


async def prefix_hits(
    processes: list[EngineProcess], rollouts: int, steps: int
) -> dict[str, dict[str, float]]:
    """Share of the prompts' tokens that a cache had, by routing; seconds of the whole beside it."""

    def sticky(number: int, step: int) -> str:
        return f"task-{number}"

    def anywhere(number: int, step: int) -> str:
        return f"task-{number}-{step}"

    found: dict[str, dict[str, float]] = {}
    for name, route, used in (
        ("sticky", sticky, processes),
        ("random", anywhere, processes),
        ("one_server", sticky, processes[:1]),
    ):
        engine, began = pool(used), time.monotonic()
        runs = [run_rollout(engine, each, steps, route, name) for each in range(rollouts)]
        counts = await asyncio.gather(*runs)
        seconds = time.monotonic() - began
        await engine.close()
        asked, cached = (sum(column) for column in zip(*counts, strict=True))
        homes = [server_name(each.url) for each in used]
        kept = [use.replica for n in range(rollouts) if (use := engine.use_of(f"task-{n}"))]
        found[name] = {
            "ratio": round(cached / asked, 4),
            "prompt_tokens": asked,
            "computed_tokens": asked - cached,
            "seconds": round(seconds, 2),
            "most_rollouts_on_one": max(kept.count(home) for home in homes),
        }
    asked = found["sticky"]["prompt_tokens"]
    new = rollouts * (steps * OBSERVATION) + len(processes) * HEAD
    found["new"] = {"ratio": round(1 - new / asked, 4), "computed_tokens": new}
    return found


async def lose_one(
    processes: list[EngineProcess], rollouts: int, number: signal.Signals | None, silence: float
) -> dict[str, Any]:
    """Seconds of one long sample of each rollout, while one server is lost (None: none is)."""
    engine = pool(processes, silence_seconds=silence)
    await engine.ready()
    seconds: dict[str, float] = {}
    homes = {f"task-{each}": engine.use_of(f"task-{each}") for each in range(rollouts)}
    salt = f"{number!r}{time.monotonic()}"
    moves = Moves()
    began = time.monotonic()

    async def one(rollout: str) -> None:
        words = random.Random(rollout)
        ids = [words.choice(WORDS) for _ in range(HEAD)]
        got = await sample(engine, request(ids, rollout, salt, LONG))
        assert len(got.token_ids or ()) == LONG, got.finish_reason
        seconds[rollout] = time.monotonic() - began

    asking = [asyncio.create_task(one(rollout)) for rollout in homes]
    victim = processes[0]
    if number is not None:
        await asyncio.sleep(LOST_AFTER)
        assert victim.pid and not all(task.done() for task in asking), "samples are under way"
        os.kill(victim.pid, number)
    try:
        await asyncio.gather(*asking)
    finally:
        if number == signal.SIGSTOP and victim.pid:
            os.kill(victim.pid, signal.SIGCONT)
        await engine.close()
    name = server_name(victim.url)
    theirs = {rollout for rollout, use in homes.items() if use and use.replica == name}
    moved = [taken for rollout, taken in seconds.items() if rollout in theirs]
    others = [taken for rollout, taken in seconds.items() if rollout not in theirs]
    return {
        "rollouts": rollouts,
        "of_the_lost_one": len(moved),
        "all_answered": len(seconds) == rollouts,
        "moves": moves.end(),
        "seconds_of_those": round(statistics.median(moved), 2) if moved else None,
        "seconds_of_others": round(statistics.median(others), 2) if others else None,
        "seconds_of_last": round(max(seconds.values()), 2),
    }


LOST_AFTER = 0.5
"""Seconds after the samples began."""


class Moves(logging.Handler):
    """Counts the requests that left a server, which the client's log tells."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0
        self._log = logging.getLogger(replicated_engine.__name__)
        self._log.addHandler(self)
        self._log.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """One left."""
        self._count += 1

    def end(self) -> int:
        """How many did."""
        self._log.removeHandler(self)
        return self._count


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Of each figure, over the runs; what is no figure must be the same in all."""
    found: dict[str, Any] = {}
    for name in runs[0]:
        values = [run[name] for run in runs if run[name] is not None]
        if all(isinstance(value, bool) for value in values):
            found[name] = all(values)
        else:
            found[name] = round(statistics.median(values), 2) if values else None
    return found


async def measured(options: argparse.Namespace, processes: list[EngineProcess]) -> dict[str, Any]:
    """All figures, printed as they come."""
    found: dict[str, Any] = {
        "prefix_hits": await prefix_hits(processes, options.rollouts, options.steps)
    }
    print(json.dumps(found, indent=1), flush=True)
    fates = {"none_lost": None, "stalled": signal.SIGSTOP, "killed": signal.SIGKILL}
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in fates}
    for _ in range(options.runs):
        for name, number in fates.items():
            runs[name].append(await lose_one(processes, options.rollouts, number, options.silence))
            print(name, runs[name][-1], flush=True)
            if number == signal.SIGKILL:
                processes[0].start()
                wait_for(processes[0])
    found |= {name: medians(each) for name, each in runs.items()}
    return found


def main() -> int:
    """Measure, print, keep as JSON; 1 where keeping to a server finds no more."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--rollouts", type=int, default=24)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--runs", type=int, default=3, help="of each loss")
    parser.add_argument("--silence", type=float, default=10.0, help="seconds of a stalled server")
    parser.add_argument("--model", type=Path, help="folder of a model; a tiny one is made without")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = options.model or tiny.save_model(folder / "model", max_position_embeddings=4096)
        with served(options.replicas, model, folder) as processes:
            told = {
                "bench": "engine_pool",
                "replicas": options.replicas,
                "rollouts": options.rollouts,
                "steps": options.steps,
                "runs": options.runs,
                "silence_seconds": options.silence,
                "model": model.name if options.model else "tiny, random weights",
                **machine(folder),
                **asyncio.run(measured(options, processes)),
            }
    RESULTS.write_text(json.dumps(told, indent=1) + "\n")
    hits = told["prefix_hits"]
    return int(hits["sticky"]["ratio"] <= hits["random"]["ratio"])


if __name__ == "__main__":
    sys.exit(main())
