"""The benchmarks of an older commit and of this one, in turn, in one run.

    python bench/old_and_new.py COMMIT [--rounds 3] [--only overhead recorder ...]

Each commit is checked out into a folder of its own and runs with a virtual environment that names
that folder first, so that the processes which a daemon starts are of the same commit. Rounds take
turns (old, new, new, old, ...). Medians of both and their ratio, in which more is better for the
new one, are written to bench/results/old_and_new.json. The exit code is 1 where one is below 0.95.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable.machine import machine

RESULTS = ROOT / "bench" / "results" / "old_and_new.json"
LEAST = 0.95
COMMANDS = {
    "overhead": ["--steps", "150", "--rollouts", "1,8"],
    "recorder": ["--runs", "1"],
    "console": ["--no-peers", "--steps", "10000", "--small", "1000", "--seconds", "4"],
    "rows": ["--runs", "1"],
    "export": ["--rows", "24", "--repeat", "7"],
    "training": ["--side", "houston", "--clock", "cpu", "--kind"],
}
"""The arguments of each benchmark, which are smaller than its own defaults. Of training only
Houston's side is run, since the peers do not change, and processor seconds of one thread are
counted: by the clock, readings of one commit are up to a seventh apart. Exports are repeated so
often that the median has no full pass of the garbage collector, which takes 20 ms of all that the
benchmark holds, and falls on another format in each commit."""
ENVIRONMENT = {"training": {"OMP_NUM_THREADS": "1"}}

Figures = dict[str, float]


def overhead(result: dict[str, Any]) -> Figures:
    """Milliseconds a step adds, least is best."""
    return {
        f"-step median ms, {run['rollouts']} rollouts": run["step_median_ms"]
        for run in result["runs"]
    }


def recorder(result: dict[str, Any]) -> Figures:
    """Messages a second of both shapes, and processor time of one message."""
    return {
        f"{sign}{shape}: {name}": result[shape][name]
        for shape in ("2 KB", "step")
        for sign, name in (("", "messages_per_second"), ("-", "recorder_process_us_per_message"))
    }


def console(result: dict[str, Any]) -> Figures:
    """Milliseconds that a person waits, and memory."""
    houston = result["houston"]
    (long,) = (value for name, value in houston.items() if name.startswith("10000"))
    return {
        "-first paint ms": houston["from home"]["start_to_first_paint_ms"],
        "-open ms": houston["from home"]["open"]["median_ms"],
        "-jump ms": long["still"]["jump"]["median_ms"],
        "-processor ms a key": long["still"]["key"]["processor_ms_a_key"],
        "-processor ms a step followed": long["following"]["processor_ms_a_step"],
        "-memory MB": long["memory_mb"],
    }


def rows(result: dict[str, Any]) -> Figures:
    """Processor seconds of the three ways to rows."""
    return {f"-{way} cpu s": result[way]["cpu_seconds"] for way in ("ledger", "rendered", "chat")}


def export(result: dict[str, Any]) -> Figures:
    """Rows a second of each format."""
    return {run["format"]: run["rows_per_second"] for run in result["runs"]}


def training(result: dict[str, Any]) -> Figures:
    """Tokens a second, and memory."""
    return {
        f"{sign}{kind}: {name}": reading[name]
        for kind, reading in result.items()
        for sign, name in (("", "tokens_per_second"), ("-", "memory_bytes"))
    }


READERS: dict[str, Callable[[dict[str, Any]], Figures]] = {
    reader.__name__: reader for reader in (overhead, recorder, console, rows, export, training)
}
"""From a benchmark's own JSON to its figures; "-" before a name: less is better."""


def check_out(folder: Path, commit: str) -> Path:
    """A tree of `commit` with an environment that imports it; returns the environment's Python."""
    tree = folder / "tree"
    subprocess.run(
        ["git", "clone", "-q", "--shared", "--no-checkout", str(ROOT), str(tree)], check=True
    )
    subprocess.run(["git", "-C", str(tree), "checkout", "-q", commit], check=True)
    shutil.copy(ROOT / "docs" / "decisions.md", tree / "docs")  # the words of bench/rows.py
    shutil.rmtree(tree / "bench" / "results")
    (tree / "bench" / "results").mkdir()
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True
    )
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    rooms = [str(tree / room) for room in ("console", "daemon", "shared")]
    (packages / "a.pth").write_text("\n".join([*rooms, sysconfig.get_path("purelib")]) + "\n")
    return folder / "venv" / "bin" / "python"


def run(python: Path, name: str) -> Figures:
    """One round of one benchmark in one tree; the exit code tells of aims, so it is not asked."""
    tree = python.parents[2] / "tree"
    if name == "training":
        return training(
            {kind: json.loads(printed(tree, python, name, kind)) for kind in ("even", "uneven")}
        )
    result = tree / "bench" / "results" / f"{name}.json"
    result.unlink(missing_ok=True)
    printed(tree, python, name)
    return READERS[name](json.loads(result.read_text()))


def printed(tree: Path, python: Path, name: str, *more: str) -> str:
    """The last line that a benchmark prints; its exit code tells of aims, so it is not asked."""
    done = subprocess.run(
        [str(python), f"bench/{name}.py", *COMMANDS[name], *more],
        cwd=tree,
        env={**os.environ, **ENVIRONMENT.get(name, {})},
        capture_output=True,
        text=True,
    )
    if "Traceback" in done.stderr or not done.stdout:
        raise SystemExit(f"bench/{name}.py failed in {tree}:\n{done.stderr[-2000:]}")
    return done.stdout.splitlines()[-1]


def compare(old: list[Figures], new: list[Figures]) -> dict[str, dict[str, Any]]:
    """Medians, all readings and the ratio of each figure; above 1 the new commit is better."""
    compared = {}
    for name in old[0].keys() & new[0].keys():
        before, after = ([figures[name] for figures in side] for side in (old, new))
        ratio = statistics.median(after) / statistics.median(before)
        compared[name.removeprefix("-")] = {
            "old": before,
            "new": after,
            "ratio": round(1 / ratio if name.startswith("-") else ratio, 3),
        }
    return dict(sorted(compared.items()))


def main() -> int:
    """Measures what was asked for, keeps and prints it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(COMMANDS), default=list(COMMANDS))
    arguments = parser.parse_args()
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory(prefix="houston-old-and-new-") as temporary:
        pythons = {
            side: check_out(Path(temporary) / side, commit)
            for side, commit in (("old", arguments.commit), ("new", "HEAD"))
        }
        for name in arguments.only:
            readings: dict[str, list[Figures]] = {"old": [], "new": []}
            for number in range(arguments.rounds):
                for side in ("old", "new") if number % 2 == 0 else ("new", "old"):
                    readings[side].append(run(pythons[side], name))
            kept[name] = compare(**readings)
            kept["old commit"] = arguments.commit
            kept["machine"] = machine(Path(temporary))
            RESULTS.write_text(json.dumps(kept, indent=2) + "\n")
            for figure, reading in kept[name].items():
                print(f"{name:10} {figure:34} {reading['ratio']:6.2f}", flush=True)
    ratios = [reading["ratio"] for name in arguments.only for reading in kept[name].values()]
    return int(min(ratios) < LEAST)


if __name__ == "__main__":
    sys.exit(main())
