"""How well a process reward model knows what decisions are worth: from a judge, and from people.

    python bench/process_reward.py [--seeds 3] [--worlds 500] [--folder DIR] [--model DIR]

Rollouts of an untrained tiny policy in worlds of words, labelled by `houston label` and a judge
with a known rubric (`bench/scripted_judge.py`). Its upper half stands for the verdicts of people
(keep from 0.5 on, else mask): nobody was asked. Two things are measured with `houston train prm`:

`judge`: mean absolute error and rank correlation on held-out worlds, beside a predictor that always
says the mean of the trained labels. `people`: from k verdicts, how many pairs of a kept and a
masked decision of other worlds the model has in the right order (area under the ROC curve; chance
is 0.5). Written to bench/results/process_reward.json.
"""

import argparse
import json
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.decision_rewards import COLLECTED, JUDGE, SUITE
from bench.learning import ENGINE, PATIENCE, learning_home
from bench.scripted_judge import judge_engine, scripted_judge

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.training.prm.decision_labels import DecisionLabel, read_labels, write_labels
from houston_daemon.training.prm.prm_figures import roc_auc
from houston_daemon.training.prm.prm_scorer import load_scorer
from houston_shared.policy_and_run_files import policies_folder

RESULTS = ROOT / "bench" / "results" / "process_reward.json"
VERDICTS = (25, 100, 400)
"""How many verdicts people gave."""
HELD_OUT = 0.4
"""Share of the worlds on which the order is measured."""
KEPT = 0.5
"""What a decision is worth that a person would keep."""


def collect(home: ExperimentHome, asked: argparse.Namespace) -> list[list[DecisionLabel]]:
    """Labels of every decision, by world."""
    file = home.home.path / "suites" / SUITE / f"{COLLECTED}.json"
    if not file.is_file():
        words = ("suite", "run", SUITE, "--engine", ENGINE, "--policy", "base")
        words += ("--split", "train", "-n", str(asked.worlds), "--name", COLLECTED)
        home.run(*words, seconds=PATIENCE)
    labels = home.folder / "labels.jsonl"
    with scripted_judge(asked.port):
        words = ("label", "--suite-run", COLLECTED, "--judge", JUDGE, "--out", str(labels))
        home.run(*words, seconds=PATIENCE)
    by_world: dict[str, list[DecisionLabel]] = {}
    for label in read_labels(labels):
        by_world.setdefault(label.task, []).append(label)
    return list(by_world.values())


def trained(
    home: ExperimentHome, name: str, labels: Sequence[DecisionLabel], asked: argparse.Namespace,
    *settings: str,
) -> dict[str, Any]:  # fmt: skip
    """Train a process reward model; what the run tells. What was trained before is read."""
    kept = home.folder / f"{name}.json"
    if not kept.is_file():
        file = home.folder / f"{name}.jsonl"
        write_labels(file, labels)
        words = [word for setting in ("device=cpu", *settings) for word in ("--set", setting)]
        told = home.run(
            *("train", "prm", "--labels", str(file), "--base", str(asked.model)),
            *("--name", name, "--json", *words),
            seconds=PATIENCE,
        )
        kept.write_text(told.splitlines()[-1])
    return dict(json.loads(kept.read_text()))


def from_a_judge(
    home: ExperimentHome, labels: Sequence[DecisionLabel], asked: argparse.Namespace
) -> list[dict[str, Any]]:
    """Figures on held-out worlds, a seed each: split, head and order are the seed's."""
    figures = []
    for seed in range(asked.seeds):
        run = trained(home, f"judge-{seed}", labels, asked, "epochs=12", f"seed={seed}")
        held_out = run["result"]["held_out"]
        figures.append({name: held_out[name] for name in held_out if name != "calibration"})
        print(f"judge, seed {seed}: {figures[-1]}", flush=True)
    return figures


def as_people(label: DecisionLabel) -> DecisionLabel:
    """The verdict that stands for a person's."""
    kept = float(label.score >= KEPT)
    return msgspec.structs.replace(label, score=kept, source="human")


def from_people(
    home: ExperimentHome, worlds: Sequence[Sequence[DecisionLabel]], asked: argparse.Namespace
) -> dict[str, list[float]]:
    """By number of verdicts, the order of held-out decisions, a seed each."""
    orders: dict[str, list[float]] = {str(count): [] for count in VERDICTS}
    for seed in range(asked.seeds):
        drawn = random.Random(f"{seed} worlds").sample(list(worlds), len(worlds))
        cut = round(HELD_OUT * len(drawn))
        held_out = [label for world in drawn[:cut] for label in world if label.sound]
        pool = [label for world in drawn[cut:] for label in world if label.sound]
        random.Random(f"{seed} verdicts").shuffle(pool)
        for count in VERDICTS:
            verdicts = [as_people(label) for label in pool[:count]]
            settings = ("epochs=12", "held_out=0", f"seed={seed}", "batch=16")
            run = trained(home, f"people-{count}-{seed}", verdicts, asked, *settings)
            order = held_out_order(home, run["policy"], held_out)
            orders[str(count)].append(order)
            print(f"{count} verdicts, seed {seed}: {order:.3f}", flush=True)
    return orders


def held_out_order(home: ExperimentHome, policy: str, held_out: Sequence[DecisionLabel]) -> float:
    """Share of pairs of a kept and a masked decision that a model has in the right order."""
    scorer = load_scorer(policies_folder(home.home) / policy, "cpu")
    scores = scorer.score([label.text for label in held_out])
    sides: dict[bool, list[float]] = {True: [], False: []}
    for label, score in zip(held_out, scores, strict=True):
        sides[label.score >= KEPT].append(score)
    order = roc_auc(sides[True], sides[False])
    assert order is not None, "held-out decisions are of both kinds"
    return order


def measured(home: ExperimentHome, asked: argparse.Namespace) -> dict[str, Any]:
    """Everything that is written."""
    worlds = collect(home, asked)
    labels = [label for world in worlds for label in world]
    sound = [label for label in labels if label.sound]
    judged = from_a_judge(home, labels, asked)
    orders = from_people(home, worlds, asked)
    means = {
        name: statistics.fmean(figure[name] for figure in judged)
        for name in ("mae", "mean_predictor_mae", "rank_correlation")
    }
    return {
        "decisions": len(labels),
        "actions": len(sound),
        "kept": sum(label.score >= KEPT for label in sound),
        "judge": {"mean": means, "seeds": judged},
        "people": {
            count: {"mean": statistics.fmean(values), "seeds": values}
            for count, values in orders.items()
        },
    }


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--worlds", type=int, default=500)
    parser.add_argument("--port", type=int, default=18_765, help="of the scripted judge")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--model", type=Path, help="of `houston policy tiny`")
    parser.set_defaults(engine="embedded", suite=SUITE)
    asked = parser.parse_args()
    judge = {JUDGE: judge_engine(asked.port)}
    with learning_home(asked, engines=judge, settings=("seeds",)) as (home, about):
        result = {**about, **measured(home, asked)}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: result[name] for name in ("judge", "people")}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
