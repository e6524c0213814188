"""What a step costs a worker over TCP with CURVE, against the local socket in the same run.

    python bench/remote_line.py [--steps 200] [--runs 3]

One worker after the other runs a rollout of `--steps` steps (a call of `noop` each) by the script
engine, over the local socket, over loopback with keys, and over a link of 20 ms each way (network
namespaces; left out without root). With thoughts of 2 KB and of 200 KB. Medians, milliseconds a
step: `wall`, and processor time of the worker (with its start) and of the recorder's process, which
a crowded machine changes less. Written to bench/results/remote_line.json.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable.machine import machine

from houston_daemon.recorder.disk import host_keys
from houston_shared.config import Configuration
from houston_shared.config_sections import RecorderSettings
from tests.faults.engine_proxy import free_port
from tests.integration.agent.rig import Rig
from tests.support.lossy_link import LossyLink, why_not

RESULT = ROOT / "bench/results/remote_line.json"
DELAY = 0.02
THOUGHTS = {"2 KB": 2_000, "200 KB": 200_000}


class Cost(NamedTuple):
    """Milliseconds a step."""

    wall: float
    worker: float
    recorder: float


def step_cost(rig: Rig, prefix: list[str], endpoint: str, steps: int, size: int, name: str) -> Cost:
    """Run one rollout in a process of its own; wall is from its first step to its last."""
    call = {"name": "noop", "arguments": {"text": "x"}}
    script = [{"thought": "t" * size, "calls": [call]} for _ in range(steps)]
    rollout = rig.rollout(script, name=name, task=f"[budget]\nsteps = {steps + 5}\n")
    lease = rig.recorder.assign(rollout).lease
    words = ["--endpoint", endpoint, "--rollout", rollout, "--lease", str(lease)]
    command = [*prefix, sys.executable, "-m", "houston_daemon.agent.rollout_worker", *words]
    worker, recorder = _children_seconds(), time.process_time()
    subprocess.run(command, check=True, capture_output=True)
    worker, recorder = _children_seconds() - worker, time.process_time() - recorder
    sql = "SELECT min(at), max(at) FROM events WHERE rollout=? AND kind='observation'"
    ((first, last),) = rig.query(sql, rollout)
    return Cost(*(seconds * 1e3 / steps for seconds in ((last - first) / 1e6, worker, recorder)))


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(folder: Path, steps: int, runs: int) -> dict[str, dict[str, Cost]]:
    """Thought → line → medians."""
    link = None if why_not() else LossyLink(DELAY, 0.0)
    settings = RecorderSettings(listen=f"tcp://*:{free_port()}")
    rig = Rig(folder, Configuration(recorder=settings))
    port = settings.listen.rpartition(":")[2]

    def endpoint_file(host: str) -> str:
        reached = msgspec.structs.replace(settings, address=f"tcp://{host}:{port}")
        endpoint = host_keys.add_host(rig.home, reached, f"at-{host}")
        file = folder / f"{host}.json"
        file.write_bytes(msgspec.json.encode(endpoint))
        return str(file)

    lines = {
        "local": ([], rig.home.socket("ingest")),
        "curve": ([], endpoint_file("127.0.0.1")),
        **({"link": (link.inside(), endpoint_file(link.here))} if link else {}),
    }
    try:
        return {
            words: {line: _median(rig, how, steps, runs, size, line) for line, how in lines.items()}
            for words, size in THOUGHTS.items()
        }
    finally:
        rig.close()
        if link:
            link.close()


def _median(
    rig: Rig, how: tuple[list[str], str], steps: int, runs: int, size: int, line: str
) -> Cost:
    steps = steps // 5 if line == "link" else steps
    costs = [step_cost(rig, *how, steps, size, f"{line}-{size}-{run}") for run in range(runs)]
    return Cost(*map(statistics.median, zip(*costs, strict=True)))


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), asked.steps, asked.runs)
        where = machine(Path(folder))
    for words, lines in found.items():
        for line, cost in lines.items():
            print(words, line, {key: round(ms, 2) for key, ms in cost._asdict().items()})
    step_ms = {
        words: {line: cost._asdict() for line, cost in lines.items()}
        for words, lines in found.items()
    }
    result = {"machine": where, "steps": asked.steps, "step_ms": step_ms, "delay": DELAY}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{time.monotonic() - began:.0f} s, {RESULT}")


if __name__ == "__main__":
    main()
