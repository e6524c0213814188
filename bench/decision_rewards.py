"""What a tiny policy learns from rewards of its decisions, beside those of its rollouts' outcomes.

    python bench/decision_rewards.py [--seeds 3] [--updates 20] [--worlds 256] [--labelled 300]
                                     [--folder DIR] [--model DIR]

The whole loop in one command: collect (`suite run`), label (`label`), train a process reward model
(`train prm`), train policies (`train dapo`) and measure them, each by its own command against one
daemon. Rollouts of the untrained policy in training worlds of `word-worlds` are labelled by a judge
with a known rubric (`bench/scripted_judge.py`). Three arms from one warmed-up policy: `outcome`
(DAPO), `decisions` (several at recorded states, the model's score alone, AgentFlow-Pro) and `both`
(whole rollouts, half of the advantage from each). Measured on held-out worlds; differences are
paired by world, intervals draw worlds and seeds anew (95 %).
Written to bench/results/decision_rewards.json.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable.machine import machine
from bench.learning import BASE, ENGINE, cells, compared, interval, measured
from bench.scripted_judge import judge_engine, scripted_judge

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.suites.suite_results import SuiteRun

RESULTS = ROOT / "bench" / "results" / "decision_rewards.json"
SUITE, COLLECTED, JUDGE = "word-worlds", "collected", "judge"
ARMS = {
    "outcome": (),
    "decisions": ("process_reward=prm", f'states=["{COLLECTED}"]'),
    "both": ("process_reward=prm", "process_weight=0.5"),
}
"""Settings over the recipe `small`."""


def make_reward_model(home: ExperimentHome, asked: argparse.Namespace) -> dict[str, Any]:
    """Collect, label and train; the run's figures. What was done before is read."""
    kept = home.folder / "prm.json"
    if kept.is_file():
        return dict(json.loads(kept.read_text()))
    file = home.home.path / "suites" / SUITE / f"{COLLECTED}.json"
    if not file.is_file():
        words = ("suite", "run", SUITE, "--engine", ENGINE, "--policy", "base")
        words += ("--split", "train", "-n", str(asked.labelled), "--name", COLLECTED)
        home.run(*words, seconds=3600)
    labels_file = home.folder / "labels.jsonl"
    with scripted_judge(asked.port):
        words = ("label", "--suite-run", COLLECTED, "--judge", JUDGE, "--out", str(labels_file))
        home.run(*words, seconds=3600)
    settings = ("--set", "epochs=20", "--set", "device=cpu")
    told = home.run(
        *("train", "prm", "--labels", str(labels_file), "--base", str(asked.model)),
        *("--name", "prm", "--json", *settings),
        seconds=3600,
    )
    run = json.loads(told.splitlines()[-1])
    kept.write_text(json.dumps(run))
    return dict(run)


def trained(home: ExperimentHome, arm: str, seed: int, updates: int) -> dict[str, Any]:
    """Train one policy; what the run tells. What was trained before is read."""
    kept = home.folder / f"{arm}-{seed}.json"
    if not kept.is_file():
        settings = (f"seed={seed}", f"updates={updates}", *ARMS[arm])
        words = [word for setting in settings for word in ("--set", setting)]
        told = home.run(
            *("train", "dapo", "--suite", SUITE, "--engine", ENGINE, "--recipe", "small"),
            *("--name", f"{arm}-{seed}", "--json", *words),
            seconds=2 * 3600,
        )
        kept.write_text(told.splitlines()[-1])
    return dict(json.loads(kept.read_text()))


def curve(run: dict[str, Any]) -> dict[str, Any]:
    """What an arm's updates tell."""
    updates = run["updates"]
    names = ("solved", "reward", "process_reward", "tool_failures", "rollouts")
    told = {name: [round(update["sampling"][name], 4) for update in updates] for name in names}
    seconds = sum(sum(update["seconds"].values()) for update in updates)
    return {**told, "seconds": round(seconds, 1)}


def compare_arms(home: ExperimentHome, asked: argparse.Namespace) -> dict[str, Any]:
    """All arms and seeds, and what came out."""
    runs: dict[str, dict[int, SuiteRun]] = {BASE: {0: measured(home, "base", BASE, asked)}}
    model = make_reward_model(home, asked)
    curves: dict[str, dict[str, Any]] = {}
    for seed in range(1, asked.seeds + 1):
        for arm in ARMS:
            run = trained(home, arm, seed, asked.updates)
            name = run["policy"].replace("@", "-")
            runs.setdefault(arm, {})[seed] = measured(home, run["policy"], name, asked)
            curves.setdefault(arm, {})[str(seed)] = curve(run)
            solved = interval(cells({seed: runs[arm][seed]}, False))["value"]
            print(f"{arm}, seed {seed}: {solved:.3f} solved", flush=True)
    arms = list(ARMS)
    return {
        "process reward model": model["result"],
        "held out": {
            arm: {
                "solved": interval(cells(seeds, False)),
                "failed calls": interval(cells(seeds, True)),
            }
            for arm, seeds in runs.items()
        },
        "minus before": {arm: compared(runs, arm, BASE) for arm in arms},
        "minus outcome": {arm: compared(runs, arm, "outcome") for arm in arms[1:]},
        "training": curves,
    }


@contextmanager
def tiny_home(asked: argparse.Namespace, folder: Path) -> Iterator[ExperimentHome]:
    """A home below `folder` whose daemon runs while the context lasts, with the engine of
    `asked.model`, which is made where it is not there, and the scripted judge's at `asked.port`."""
    asked.model = (asked.model or folder / "model").absolute()
    engine = {"kind": "embedded", "model": str(asked.model), "dialect": "words"}
    home = ExperimentHome(folder, {ENGINE: engine, JUDGE: judge_engine(asked.port)}, at_once=64)
    home.write_configuration()
    if not (asked.model / "config.json").is_file():
        home.run("policy", "tiny", "--out", str(asked.model), seconds=3600)
    home.start()
    try:
        yield home
    finally:
        home.stop()


def main() -> int:
    """Learn, print, keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--worlds", type=int, default=256)
    parser.add_argument("--labelled", type=int, default=300, help="rollouts that are labelled")
    parser.add_argument("--port", type=int, default=18_765, help="of the scripted judge")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--model", type=Path, help="of `houston policy tiny`")
    asked = parser.parse_args()
    asked.suite = SUITE
    with tempfile.TemporaryDirectory(prefix="houston-decisions-") as temporary:
        folder = (asked.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        with tiny_home(asked, folder) as home:
            result = compare_arms(home, asked)
        about = machine(folder)
        about["versions"] |= {name: version(name) for name in ("torch", "transformers", "trl")}
        how = {name: getattr(asked, name) for name in ("updates", "seeds", "labelled")}
        policy = json.loads((asked.model / "tiny_policy.json").read_text())
        result = {**about, **how, "policy": policy, **result}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: result[name] for name in ("held out", "minus outcome")}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
