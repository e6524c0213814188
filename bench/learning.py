"""What a small policy learns by DAPO, and by DAPO with purified rollouts (CLEANER, figures 1, 4).

    python bench/learning.py [--suite word-worlds] [--engine embedded] [--seeds 3] [--updates 30]
                             [--worlds 256] [--arms dapo saar …] [--folder DIR] [--model DIR]
                             [--set KEY=VALUE] [--name NAME]

One daemon, one engine, real rollouts of a suite. A policy is made and warmed up (`houston policy
tiny`, or `warm` for the suites of language models), measured on held-out worlds, trained once for
each arm and seed (`houston train dapo`), and measured on the same worlds, unpurified. Differences
are paired by world; intervals draw worlds and seeds anew (95 %). All arms are compared with the
first of them. Nothing is tuned on the test split. The same command goes on where it was broken off
in `--folder`. Written to bench/results/NAME.json: `learning`, of another suite `learning_SUITE`.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable.machine import machine

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.experiments.experiment_statistics import bootstrap_mean, score_differences
from houston_daemon.suites.suite_catalog import SUITES
from houston_daemon.suites.suite_results import SuiteAttempt, SuiteRun, read_run

RESULTS = ROOT / "bench" / "results"
WORDS, ENGINE = "words", "learner"
PATIENCE = 6 * 3600.0
"""Seconds that a stage may take: a language model on a machine with other work."""
AT_WORK = ("queued", "running")
"""States of a run that the daemon has."""
ARMS = {
    "dapo": (),
    "saar": ("purify=0.7",),
    "saar, one correction": ("purify=0.7", "purify_retries=1"),
    "saar, two corrections": ("purify=0.7", "purify_retries=2"),
    "saar, similarity 0.25": ("purify=0.7", "purify_similarity=0.25"),
    "saar, similarity 0.75": ("purify=0.7", "purify_similarity=0.75"),
    "saar, every rollout": ("purify=1.0",),
    "sampling ahead": ("ahead=1",),
    "no dynamic sampling": ("refill=0",),
}
"""Settings over the recipe `small`."""
BASE = "before"

FIGURES: dict[str, Callable[[SuiteAttempt], float]] = {
    "solved": lambda attempt: float(attempt.solved),
    "score": lambda attempt: attempt.score / 100,
    "failed calls": lambda attempt: float(attempt.failures),
}
"""Of one rollout."""

Cells = dict[str, dict[int, float]]


def cells(runs: Mapping[int, SuiteRun], figure: str) -> Cells:
    """By world, by seed, one of `FIGURES`."""
    values: Cells = {}
    for seed, run in runs.items():
        for world in run.worlds:
            (attempt,) = world.attempts
            values.setdefault(str(world.index), {})[seed] = FIGURES[figure](attempt)
    return values


def told(runs: Mapping[int, SuiteRun]) -> dict[str, dict[str, float | None]]:
    """Every figure with its interval."""
    return {figure: interval(cells(runs, figure)) for figure in FIGURES}


def interval(values: Cells) -> dict[str, float | None]:
    """Mean and 95 % interval over worlds and seeds."""
    return bootstrap_mean(values, 1).as_json()


def compared(runs: Mapping[str, Mapping[int, SuiteRun]], one: str, other: str) -> dict[str, Any]:
    """How much better `one` is than `other`, paired by world and seed."""
    seeds = runs[one].keys()
    base = runs[other]
    paired = {seed: base.get(seed) or next(iter(base.values())) for seed in seeds}
    return {
        figure: interval(score_differences(cells(runs[one], figure), cells(paired, figure)))
        for figure in FIGURES
    }


def measured(home: ExperimentHome, policy: str, name: str, asked: argparse.Namespace) -> SuiteRun:
    """The policy on held-out worlds; what was measured before is read."""
    file = home.home.path / "suites" / asked.suite / f"{name}.json"
    if not file.is_file():
        home.run("policy", "activate", policy, "--engine", ENGINE)
        words = ("suite", "run", asked.suite, "--engine", ENGINE, "--policy", policy)
        words += ("--split", "test", "-n", str(asked.worlds), "--name", name)
        home.run(*words, seconds=PATIENCE)
    return read_run(file)


def trained(
    home: ExperimentHome,
    arm: str,
    seed: int,
    asked: argparse.Namespace,
    command: tuple[str, ...] = ("dapo", "--recipe", "small"),
    settings: Sequence[str] = (),
) -> dict[str, Any]:
    """Train one policy; what the command told, and the seconds of its updates. What was trained
    before is read, and what was broken off goes on."""
    family = f"{arm.replace(' ', '-').replace(',', '')}-{seed}"
    kept = home.folder / f"{family}.json"
    if not kept.is_file():
        settings = (f"seed={seed}", f"updates={asked.updates}", *settings, *asked.set)
        words = [word for setting in settings for word in ("--set", setting)]
        words += ["--suite", asked.suite, "--engine", ENGINE, "--name", family]
        if run := cut_short(home, family):
            command, words = command[:1], ["--resume", run]
        told = home.run("train", *command, "--json", *words, seconds=PATIENCE)
        run = json.loads(told.splitlines()[-1])
        spent = sum(seconds for each in run["updates"] for seconds in each["seconds"].values())
        kept.write_text(json.dumps({**run, "seconds": round(spent, 1)}))
    return dict(json.loads(kept.read_text()))


def cut_short(home: ExperimentHome, family: str) -> str:
    """The run of this family that was broken off; empty where there is none. The daemon may have
    taken it up again: it is ended, so that it can be followed from its last checkpoint on."""
    for name, state in run_states(home).items():
        recipe = json.loads((home.home.path / "training" / name / "recipe.json").read_text())
        if recipe["name"] == family and state != "finished":
            if state in AT_WORK:
                home.run("train", "cancel", name)
            while run_states(home)[name] in AT_WORK:  # until its checkpoint is written
                time.sleep(1)
            return name
    return ""


def run_states(home: ExperimentHome) -> dict[str, str]:
    """Every training run of a home, and its state."""
    lines = home.run("train", "list", "--json").splitlines()
    return {run["run"]: run["state"] for run in map(json.loads, lines)}


def curve(run: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's updates tell, a list for each figure."""
    updates = run["updates"]
    sampling = {
        name: [round(update["sampling"][name], 4) for update in updates]
        for name in (
            *("solved", "tool_failures", "tool_failures_kept", "purified_steps", "corrections"),
            *("rollouts", "zero_variance", "tokens", "stale"),
        )
    }
    spent: dict[str, float] = {}
    for update in updates:
        for name, seconds in update["seconds"].items():
            spent[name] = round(spent.get(name, 0.0) + seconds, 1)
    rollouts = sum(sampling["rollouts"])
    return {
        "seconds": run["seconds"],
        "rollouts": rollouts,
        "rollouts_per_second": round(rollouts / run["seconds"], 2),
        "trained_tokens": sum(update["trained_tokens"] for update in updates),
        "seconds_of": spent,
        "largest_gap": max(update["gap_largest"] for update in updates),
        "entropy": [round(update["loss"]["entropy"], 4) for update in updates],
        **sampling,
    }


def learn(home: ExperimentHome, asked: argparse.Namespace) -> dict[str, Any]:
    """All arms and seeds, and what came out."""
    runs: dict[str, dict[int, SuiteRun]] = {BASE: {0: measured(home, "base", BASE, asked)}}
    curves: dict[str, dict[str, Any]] = {}
    for seed in range(1, asked.seeds + 1):
        for arm in asked.arms:
            run = trained(home, arm, seed, asked, settings=ARMS[arm])
            policy = run["policy"]
            runs.setdefault(arm, {})[seed] = measured(home, policy, policy.replace("@", "-"), asked)
            curves.setdefault(arm, {})[str(seed)] = curve(run)
            solved = interval(cells({seed: runs[arm][seed]}, "solved"))
            print(
                f"{arm}, seed {seed}: {solved['value']:.3f} solved, {run['seconds']} s", flush=True
            )
    arms = [arm for arm in runs if arm != BASE]
    first = asked.arms[0]
    return {
        "held out": {arm: told(seeds) for arm, seeds in runs.items()},
        "minus before": {arm: compared(runs, arm, BASE) for arm in arms},
        f"minus {first}": {arm: compared(runs, arm, first) for arm in arms if arm != first},
        "training": curves,
    }


def suite_arguments(about: str, suite: str, suites: Sequence[str]) -> argparse.ArgumentParser:
    """What to learn on, and where. about: the module's docstring. suite: the default one."""
    parser = argparse.ArgumentParser(description=about.split("\n", 1)[0])
    parser.add_argument("--suite", choices=suites, default=suite)
    parser.add_argument("--engine", choices=["embedded", "vllm"], default="embedded")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--worlds", type=int, default=256)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--model", type=Path, help="of `houston policy tiny` or `warm`")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--name", help="of the file of results")
    return parser


def learning_arguments(
    about: str,
    suite: str,
    updates: int,
    arms: Sequence[str],
    default_arms: Sequence[str],
    suites: Sequence[str] = tuple(SUITES),
) -> argparse.ArgumentParser:
    """What to train and measure. about: the module's docstring; the rest are defaults."""
    parser = suite_arguments(about, suite, suites)
    parser.add_argument("--updates", type=int, default=updates)
    parser.add_argument("--arms", nargs="+", choices=list(arms), default=list(default_arms))
    return parser


def keep_result(
    name: str, asked: argparse.Namespace, suite: str, result: Mapping[str, Any]
) -> None:
    """Write what came out, under `--name`, or `name` and the suite where that is another than
    `suite`."""
    name = asked.name or (name if asked.suite == suite else f"{name}_{asked.suite}")
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")


@contextlib.contextmanager
def learning_home(
    asked: argparse.Namespace,
    make: Sequence[str] = (),
    engines: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    settings: Sequence[str] = ("suite", "engine", "updates", "set"),
) -> Iterator[tuple[ExperimentHome, dict[str, Any]]]:
    """A home whose daemon runs, and what its results begin with: machine, settings, policy.

    make: words after `houston policy` for a policy that is not there yet; by default as the suite
    needs it. engines: besides that of the policy. settings: of `asked` that are kept.
    """
    with tempfile.TemporaryDirectory(prefix="houston-learning-") as temporary:
        folder = (asked.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        model: Path = (asked.model or folder / "model").absolute()
        asked.model = model
        dialect = SUITES[asked.suite].dialect
        engine = {"kind": asked.engine, "model": str(model), "dialect": dialect}
        at_once = 64 if dialect == WORDS else 16
        home = ExperimentHome(folder, {ENGINE: engine, **engines}, at_once)
        home.write_configuration()
        if not (model / "config.json").is_file():
            make = make or (("tiny",) if dialect == WORDS else ("warm", "--suite", asked.suite))
            home.run("policy", *make, "--out", str(model), seconds=PATIENCE)
        about = machine(folder)
        about["versions"] |= {name: version(name) for name in ("torch", "transformers", "trl")}
        (made,) = (*model.glob("tiny_policy.json"), *model.glob("warm_up.json"))
        how = {name: getattr(asked, name) for name in settings}
        policy = json.loads(made.read_text()) | {"model": model.name}
        home.start()
        try:
            yield home, {**about, **how, "policy": policy}
        finally:
            home.stop()


def main() -> int:
    """Learn, print, keep; exit code 1 where an arm is not better than before."""
    parser = learning_arguments(__doc__ or "", "word-worlds", 30, list(ARMS), ["dapo", "saar"])
    asked = parser.parse_args()
    with learning_home(asked) as (home, about):
        result = {**about, **learn(home, asked)}
    keep_result("learning", asked, "word-worlds", result)
    figures = {name: cells for name, cells in result.items() if name.startswith(("held", "minus"))}
    print(json.dumps(figures, indent=1))
    return int(any(arm["solved"]["low"] <= 0 for arm in result["minus before"].values()))


if __name__ == "__main__":
    sys.exit(main())
