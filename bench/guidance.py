"""What guidance and masks are worth to a tiny policy: APOLLO's ablation (table 2) with power.

    python bench/guidance.py [--seeds 1 2 3] [--rollouts 500] [--worlds 256] [--split test]
                             [--folder DIR] [--model DIR]

One daemon, real rollouts of the suite `word-worlds`. A scripted sampler goes for a wrong box in
60 % and errs in a quarter of its steps; a scripted person speaks over the wire after a wrong box,
is heard as `<real_user>`, obeyed, and masks that step (`houston_daemon.suites.guided_words`). By
seed it is sampled with and without the person, exported, trained (`houston train sft`, all weights)
from one warmed-up policy (`houston policy tiny`), and measured alone on held-out worlds. Settings
were fixed before anything was measured; `--split validation` is there for changing them. The same
command goes on where it was broken off in `--folder`. Written to bench/results/guidance.json where
the split is `test`.
"""

import argparse
import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable.machine import machine

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.experiments.experiment_statistics import bootstrap_mean, score_differences
from houston_daemon.experiments.scripted_endpoint import ScriptedEndpoint, endpoint_engine
from houston_daemon.suites.guided_words import (
    ARMS,
    SPLIT,
    SUITE,
    export_words,
    mask_condemned,
    sampling_agent,
)
from houston_daemon.suites.suite_results import SuiteRun, mcnemar_p, read_run

RESULTS = ROOT / "bench" / "results" / "guidance.json"
MODEL_ENGINE, GUIDED, ALONE, BASE = "tiny", "guided", "alone", "base"
WRONG, ERRORS = 0.6, 0.25
TRAINING = {
    "epochs": 12,
    "batch": 32,
    "learning_rate": 1e-3,
    "final_learning_rate": 1e-4,
    "warmup": 0.05,
    "max_length": 512,
    "precision": "fp32",
}
MEASURES: Mapping[str, Callable[[Any], float]] = {
    "solved": lambda attempt: float(attempt.solved),
    "failed calls": lambda attempt: float(attempt.failures),
    "steps": lambda attempt: float(attempt.steps),
}
Runs = Mapping[str, Mapping[int, SuiteRun]]


def free_ports(folder: Path) -> dict[str, int]:
    """A port for each sampler; the same when a run goes on."""
    file = folder / "ports.json"
    if not file.is_file():
        with socket.socket() as one, socket.socket() as other:
            for free in (one, other):
                free.bind(("127.0.0.1", 0))
            ports = {GUIDED: one.getsockname()[1], ALONE: other.getsockname()[1]}
        file.write_text(json.dumps(ports))
    return dict(json.loads(file.read_text()))


@contextmanager
def samplers(home: ExperimentHome, ports: Mapping[str, int]) -> Iterator[None]:
    """Serve both samplers meanwhile."""
    with ExitStack() as serving:
        for name, port in ports.items():
            agent = sampling_agent(home, name == GUIDED, WRONG, ERRORS)
            serving.enter_context(ScriptedEndpoint(agent, port))
        yield


def suite_run(home: ExperimentHome, name: str, engine: str, *words: str) -> SuiteRun:
    """`houston suite run`; what was run before is read."""
    file = home.home.path / "suites" / SUITE / f"{name}.json"
    if not file.is_file():
        home.run("suite", "run", SUITE, "--engine", engine, "--name", name, *words, seconds=3600)
    return read_run(file)


def sampled(home: ExperimentHome, kind: str, seed: int, count: int) -> SuiteRun:
    """Rollouts to learn from, one in each of the first worlds of `train`; the guided ones masked as
    the person says."""
    words = ("--split", SPLIT, "-n", str(count), "--seed", str(seed))
    run = suite_run(home, f"{kind}-{seed}", kind, *words)
    done = home.folder / f"masked-{seed}"
    if kind == GUIDED and not done.is_file():
        done.write_text(f"{mask_condemned(home, run)}")
    return run


def exported(home: ExperimentHome, arm: str, seed: int, run: SuiteRun, model: Path) -> Path:
    """The rows of an arm, in the order of their worlds."""
    out = home.folder / "rows" / f"{arm}-{seed}"
    if not (out / "manifest.json").is_file():
        rollouts = [world.attempts[0].rollout for world in run.worlds]
        home.run(*export_words(arm, rollouts, model / "tokenizer.json", out))
    return out


def trained(home: ExperimentHome, arm: str, seed: int, rows: Path, model: Path) -> dict[str, Any]:
    """Train one policy; how it went. What was trained before is read."""
    kept = home.folder / f"{arm}-{seed}.json"
    if not kept.is_file():
        settings = [f"{key}={value}" for key, value in {**TRAINING, "seed": seed}.items()]
        began = time.monotonic()
        told = home.run(
            *("train", "sft", "--data", str(rows), "--base", str(model), "--full"),
            *("--name", f"{arm}-{seed}", "--json"),
            *(word for setting in settings for word in ("--set", setting)),
            seconds=3600,
        )
        run = json.loads(told.splitlines()[-1])
        kept.write_text(json.dumps({**run, "seconds": round(time.monotonic() - began, 1)}))
    return dict(json.loads(kept.read_text()))


def measured(
    home: ExperimentHome, arm: str, policy: str, seed: int, asked: argparse.Namespace
) -> SuiteRun:
    """The policy alone in held-out worlds."""
    name = f"{asked.split}-{arm}-{seed}"
    if not (home.home.path / "suites" / SUITE / f"{name}.json").is_file():
        home.run("policy", "activate", policy, "--engine", MODEL_ENGINE)
    words = ("--split", asked.split, "-n", str(asked.worlds), "--seed", str(seed))
    return suite_run(home, name, MODEL_ENGINE, "--policy", policy, *words)


Cells = dict[str, dict[int, float]]


def cells(runs: Mapping[int, SuiteRun], measure: str) -> Cells:
    """By world, by seed, what was measured."""
    values: Cells = {}
    for seed, run in runs.items():
        for world in run.worlds:
            value = MEASURES[measure](world.attempts[0])
            values.setdefault(str(world.index), {})[seed] = value
    return values


def interval(values: Cells) -> dict[str, float]:
    """Mean and 95 % interval over worlds and seeds."""
    found = bootstrap_mean(values, 1)
    return {name: round(float(value), 4) for name, value in found._asdict().items()}


def compared(runs: Runs, one: str, other: str) -> dict[str, Any]:
    """How much better `one` is than `other`, paired by world and seed; flips over all seeds."""
    told: dict[str, Any] = {
        name: interval(score_differences(cells(runs[one], name), cells(runs[other], name)))
        for name in MEASURES
    }
    solved = score_differences(cells(runs[one], "solved"), cells(runs[other], "solved"))
    flips = [value for by_seed in solved.values() for value in by_seed.values()]
    gained, lost = flips.count(1.0), flips.count(-1.0)
    return {**told, "flips": {"gained": gained, "lost": lost, "p": mcnemar_p(gained, lost)}}


def figures(runs: Runs) -> dict[str, Any]:
    """What came out: each arm, and `full` against the others."""
    return {
        "held out": {
            arm: {
                **{name: interval(cells(seeds, name)) for name in MEASURES},
                "solved by seed": {
                    seed: interval(cells({seed: run}, "solved"))["value"]
                    for seed, run in seeds.items()
                },
            }
            for arm, seeds in runs.items()
        },
        "full minus": {arm: compared(runs, "full", arm) for arm in runs if arm != "full"},
    }


def ablate(home: ExperimentHome, asked: argparse.Namespace, model: Path) -> dict[str, Any]:
    """All arms and seeds, and what came out."""
    runs: dict[str, dict[int, SuiteRun]] = {BASE: {}}
    training: dict[str, dict[str, Any]] = {}
    sampling: dict[str, Any] = {}
    for seed in asked.seeds:
        runs[BASE][seed] = measured(home, BASE, BASE, seed, asked)
        data = {kind: sampled(home, kind, seed, asked.rollouts) for kind in (GUIDED, ALONE)}
        for kind, run in data.items():
            solved = interval(cells({seed: run}, "solved"))["value"]
            sampling[f"{kind}, seed {seed}"] = {"solved": solved, "seconds": run.seconds}
        for arm, what in ARMS.items():
            rows = exported(home, arm, seed, data[GUIDED if what.guided else ALONE], model)
            went = trained(home, arm, seed, rows, model)
            runs.setdefault(arm, {})[seed] = measured(home, arm, went["policy"], seed, asked)
            counts = json.loads((rows / "manifest.json").read_text())["counts"]
            training.setdefault(arm, {})[str(seed)] = {"seconds": went["seconds"], "rows": counts}
            solved = interval(cells({seed: runs[arm][seed]}, "solved"))["value"]
            print(f"{arm}, seed {seed}: {solved:.3f} solved", flush=True)
    return {**figures(runs), "sampling": sampling, "training": training}


def main() -> int:
    """Ablate, print, keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rollouts", type=int, default=500, help="with and without, by seed")
    parser.add_argument("--worlds", type=int, default=256, help="held out")
    parser.add_argument("--split", choices=("validation", "test"), default="test")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--model", type=Path, help="a policy of `houston policy tiny`")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="houston-guidance-") as temporary:
        folder = (asked.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        model = (asked.model or folder / "model").absolute()
        tiny = {"kind": "embedded", "model": str(model), "dialect": "words"}
        ports = free_ports(folder)
        engines = {name: endpoint_engine(port) for name, port in ports.items()}
        home = ExperimentHome(folder, {MODEL_ENGINE: tiny, **engines}, at_once=64)
        with samplers(home, ports):
            home.start()
            try:
                if not (model / "config.json").is_file():
                    home.run("policy", "tiny", "--out", str(model))
                result = ablate(home, asked, model)
            finally:
                home.stop()
        about = machine(folder)
        about["versions"] |= {name: version(name) for name in ("torch", "transformers", "trl")}
        made = json.loads((model / "tiny_policy.json").read_text())
    settings = {"wrong": WRONG, "errors": ERRORS, "rollouts": asked.rollouts, "training": TRAINING}
    result = {**about, "settings": settings, "split": asked.split, "policy": made, **result}
    if asked.split == "test":
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: result[key] for key in ("held out", "full minus")}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
