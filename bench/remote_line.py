"""What a step costs a worker over TCP with CURVE, against the local socket in the same run.

    python bench/remote_line.py [--steps 200] [--runs 3]

One worker after the other runs a rollout of `--steps` steps (a call of `noop` each) by the script
engine, over the local socket, over loopback with keys, and over a link of 20 ms each way (network
namespaces; left out without root). With thoughts of 2 KB and of 200 KB. Medians, milliseconds a
step. Written to bench/results/remote_line.json.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable.machine import machine

from houston_daemon.recorder.disk import host_keys
from houston_shared.config import Configuration
from houston_shared.config_sections import RecorderSettings
from tests.faults.tap import free_port
from tests.integration.rollout.rig import Rig
from tests.support.lossy_link import HERE, LossyLink, why_not

RESULT = ROOT / "bench/results/remote_line.json"
DELAY = 0.02
THOUGHTS = {"2 KB": 2_000, "200 KB": 200_000}


def step_ms(rig: Rig, prefix: list[str], endpoint: str, steps: int, size: int, name: str) -> float:
    """Run one rollout in a process of its own; milliseconds from its first step to its last."""
    call = {"name": "noop", "arguments": {"text": "x"}}
    script = [{"thought": "t" * size, "calls": [call]} for _ in range(steps)]
    rollout = rig.rollout(script, name=name, task=f"[budget]\nsteps = {steps + 5}\n")
    lease = rig.recorder.assign(rollout).lease
    words = ["--endpoint", endpoint, "--rollout", rollout, "--lease", str(lease)]
    command = [*prefix, sys.executable, "-m", "houston_daemon.agent.rollout_worker", *words]
    subprocess.run(command, check=True, capture_output=True)
    sql = "SELECT min(at), max(at) FROM events WHERE rollout=? AND kind='observation'"
    ((first, last),) = rig.query(sql, rollout)
    return float(last - first) / 1e3 / steps


def measure(folder: Path, steps: int, runs: int) -> dict[str, dict[str, float]]:
    """Thought → line → median milliseconds a step."""
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
        **({"link": (link.inside(), endpoint_file(HERE))} if link else {}),
    }
    try:
        return {
            words: {
                line: statistics.median(
                    step_ms(rig, *how, steps // (10 if line == "link" else 1), size, f"{line}-{n}")
                    for n in range(runs)
                )
                for line, how in lines.items()
            }
            for words, size in THOUGHTS.items()
        }
    finally:
        rig.close()
        if link:
            link.close()


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), asked.steps, asked.runs)
    for words, lines in found.items():
        ratios = {line: round(ms / lines["local"], 2) for line, ms in lines.items()}
        print(words, {line: round(ms, 2) for line, ms in lines.items()}, "ratios", ratios)
    result = {"machine": machine(), "steps": asked.steps, "step_ms": found, "delay": DELAY}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{time.monotonic() - began:.0f} s, {RESULT}")


if __name__ == "__main__":
    main()
