"""What a tiny policy learns from rewards of its decisions, beside those of its rollouts' outcomes.

    python bench/decision_rewards.py [--seeds 3] [--updates 24] [--worlds 256] [--labelled 600]
                                     [--arms outcome decisions …] [--folder DIR] [--model DIR]
                                     [--suite small-workstation] [--set KEY=VALUE]

The whole loop in one command: collect (`suite run`), label (`label`), train a process reward model
(`train prm`), train policies (`train dapo`) and measure them, each by its own command against one
daemon. Rollouts of the untrained policy in training worlds of `word-worlds` are labelled by a judge
with a known rubric (`bench/scripted_judge.py`). Arms from one warmed-up policy: `outcome` (DAPO),
`decisions` (several at recorded states, the model's score alone, AgentFlow-Pro), the same `labelled
twice` (halfway the policy's own rollouts are labelled, too, and the reward model is trained again)
and `both` (whole rollouts, half of the advantage from each). Measured on held-out worlds;
differences are paired by world, intervals draw worlds and seeds anew (95 %). The same command goes
on where it was broken off in `--folder`. Written to bench/results/decision_rewards.json, with
`--suite small-workstation` and a warmed-up SmolLM2 (`--model`) to decision_rewards_SUITE.json.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.learning import (
    BASE,
    ENGINE,
    PATIENCE,
    cells,
    compared,
    interval,
    keep_result,
    learning_arguments,
    learning_home,
    measured,
)
from bench.scripted_judge import RUBRICS, judge_engine, scripted_judge

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.suites.suite_results import SuiteRun

SUITE, COLLECTED, JUDGE = "word-worlds", "collected", "judge"
BASE_POLICY = "base"
FIGURES = ("trained_labels", "by_source", "held_out")


class Arm(NamedTuple):
    """How a policy is trained, over the recipe `small`."""

    rewarded: bool = False
    """By a process reward model, too."""
    at_states: bool = False
    """On several decisions at each recorded state, not on rollouts."""
    stages: int = 1
    """In how many runs; before each but the first the policy's own rollouts are labelled as well,
    and a new reward model is trained on all labels."""
    settings: tuple[str, ...] = ()
    file: str = ""


SPREAD = "least_spread=0.1"
"""Above the noise of the reward model where every decision is worth the same."""
ARMS = {
    "outcome": Arm(file="outcome"),
    "decisions": Arm(True, True, 1, (SPREAD,), "decisions"),
    "decisions, labelled twice": Arm(True, True, 2, (SPREAD,), "relabelled"),
    "both": Arm(True, False, 1, (SPREAD, "process_weight=0.5"), "both"),
}


def make_reward_model(
    home: ExperimentHome, asked: argparse.Namespace, name: str, policies: Sequence[str]
) -> dict[str, Any]:
    """Collect with each policy, label and train; the run's figures. What was done before is read.

    Of several policies the last one's rollouts are new: those of the others were labelled under
    the names of earlier models.
    """
    kept = home.folder / f"{name}.json"
    if kept.is_file():
        return dict(json.loads(kept.read_text()))
    labels_file = home.folder / f"{name}-labels.jsonl"
    runs = [collected_by(policy) for policy in policies]
    for policy, run in zip(policies, runs, strict=True):
        if (home.home.path / "suites" / asked.suite / f"{run}.json").is_file():
            continue
        if policy != BASE_POLICY:
            home.run("policy", "activate", policy, "--engine", ENGINE)
        words = ("suite", "run", asked.suite, "--engine", ENGINE, "--policy", policy)
        words += ("--split", "train", "-n", str(asked.labelled), "--name", run)
        home.run(*words, seconds=PATIENCE)
    labels = ""
    with scripted_judge(asked.port, asked.suite):
        for run in runs:
            file = home.folder / f"{run}.jsonl"
            words = ("label", "--suite-run", run, "--judge", JUDGE, "--out", str(file))
            home.run(*words, seconds=PATIENCE)
            labels += file.read_text()
    labels_file.write_text(labels)
    epochs = "epochs=20" if asked.suite == SUITE else "epochs=3"  # a model that can read needs few
    settings = ("--set", epochs, "--set", "device=cpu")
    told = home.run(
        *("train", "prm", "--labels", str(labels_file), "--base", str(asked.model)),
        *("--name", name, "--json", *settings),
        seconds=PATIENCE,
    )
    run = json.loads(told.splitlines()[-1])
    kept.write_text(json.dumps(run))
    return dict(run)


def collected_by(policy: str) -> str:
    """The run of the suite in which a policy collected what is labelled."""
    return COLLECTED if policy == BASE_POLICY else f"{COLLECTED}-{policy.replace('@', '-')}"


def trained(home: ExperimentHome, arm: Arm, seed: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Train one policy; what its runs tell. What was trained before is read."""
    policies, updates, models = [BASE_POLICY], [], []
    for stage in range(arm.stages):
        name = f"{arm.file}-{seed}" + (f"-{stage + 1}" if stage else "")
        kept = home.folder / f"{name}.json"
        updates_each = asked.updates // arm.stages
        settings = [f"seed={seed}", f"updates={updates_each}", *arm.settings, *asked.set]
        if arm.rewarded:
            model = make_reward_model(
                home, asked, f"prm-{arm.file}-{seed}-{stage + 1}" if stage else "prm", policies
            )
            settings.append(f"process_reward={model['policy']}")
            models.append(model["result"])
        if arm.at_states:
            settings.append(f"states={json.dumps([collected_by(policy) for policy in policies])}")
        if not kept.is_file():
            words = [word for setting in settings for word in ("--set", setting)]
            words += ["--base", policies[-1]] if stage else []
            told = home.run(
                *("train", "dapo", "--suite", asked.suite, "--engine", ENGINE, "--recipe", "small"),
                *("--name", name, "--json", *words),
                seconds=PATIENCE,
            )
            kept.write_text(told.splitlines()[-1])
        run = json.loads(kept.read_text())
        policies.append(run["policy"])
        updates += run["updates"]
    return {"policy": policies[-1], "updates": updates, "models": models}


def curve(run: dict[str, Any]) -> dict[str, Any]:
    """What an arm's updates tell."""
    updates = run["updates"]
    names = ("solved", "reward", "process_reward", "tool_failures", "rollouts")
    told = {name: [round(update["sampling"][name], 4) for update in updates] for name in names}
    seconds = sum(sum(update["seconds"].values()) for update in updates)
    return {**told, "seconds": round(seconds, 1)}


def compare_arms(home: ExperimentHome, asked: argparse.Namespace) -> dict[str, Any]:
    """All arms and seeds, and what came out."""
    runs: dict[str, dict[int, SuiteRun]] = {BASE: {0: measured(home, BASE_POLICY, BASE, asked)}}
    curves: dict[str, dict[str, Any]] = {}
    models: dict[str, list[dict[str, Any]]] = {}
    for seed in range(1, asked.seeds + 1):
        for name in asked.arms:
            run = trained(home, ARMS[name], seed, asked)
            file = run["policy"].replace("@", "-")
            runs.setdefault(name, {})[seed] = measured(home, run["policy"], file, asked)
            curves.setdefault(name, {})[str(seed)] = curve(run)
            models.setdefault(name, []).extend(run["models"][-1:])
            solved = interval(cells({seed: runs[name][seed]}, "solved"))["value"]
            print(f"{name}, seed {seed}: {solved:.3f} solved", flush=True)
    return {
        "process reward models": {
            name: [{key: model[key] for key in FIGURES if key in model} for model in each]
            for name, each in models.items()
        },
        "held out": {
            name: {
                "solved": interval(cells(seeds, "solved")),
                "by seed": [
                    interval(cells({seed: run}, "solved"))["value"] for seed, run in seeds.items()
                ],
                "failed calls": interval(cells(seeds, "failed calls")),
            }
            for name, seeds in runs.items()
        },
        "minus before": {name: compared(runs, name, BASE) for name in asked.arms},
        "minus outcome": {
            name: compared(runs, name, "outcome")
            for name in asked.arms
            if "outcome" in runs and name != "outcome"
        },
        "training": curves,
    }


def main() -> int:
    """Learn, print, keep."""
    parser = learning_arguments(__doc__ or "", SUITE, 24, list(ARMS), list(ARMS), list(RUBRICS))
    parser.add_argument("--labelled", type=int, default=600, help="rollouts that are labelled")
    parser.add_argument("--port", type=int, default=18_765, help="of the scripted judge")
    asked = parser.parse_args()
    judge = {JUDGE: judge_engine(asked.port)}
    settings = ("suite", "updates", "seeds", "labelled", "set")
    with learning_home(asked, engines=judge, settings=settings) as (home, about):
        result = {**about, **compare_arms(home, asked)}
    keep_result("decision_rewards", asked, SUITE, result)
    print(json.dumps({name: result[name] for name in ("held out", "minus outcome")}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
