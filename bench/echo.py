"""What a small policy learns with a critic that is trained with it (ECHO, figures 3 and 4).

    python bench/echo.py [--suite word-errands] [--seeds 3] [--updates 40] [--worlds 256]
                         [--arms grpo echo …] [--folder DIR] [--model DIR] [--set KEY=VALUE]
                         [--name NAME]
    python bench/echo.py --picture FILE     learning curves of what was measured before

One daemon, one engine, real rollouts. Each arm has the same episodes an update: an attempt and its
eight refinements, or a group of nine. Measured on held-out worlds without a critic; differences are
paired by world, intervals draw worlds and seeds anew (95 %). Nothing is tuned on the test split.
The same command goes on where it was broken off in `--folder`. Written to bench/results/NAME.json
(echo).
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.learning import (
    BASE,
    RESULTS,
    compared,
    curve,
    interval,
    learning_arguments,
    learning_home,
    measured,
    told,
    trained,
)

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.suites.suite_results import SuiteRun
from houston_shared.plotting import import_pyplot
from houston_shared.stale_critic import WINDOW

ARMS = {
    "grpo": ("critic=none", "group_size=9"),
    "echo": (),
    "frozen critic": ("critic=frozen",),
    "linear gain": ("gain=linear",),
}
"""Settings over the recipe `echo_small`."""
CURVES = ("before", "before_refined", "after", "gain", "improved", "worsened", "full", "critiques")
"""Figures of the critic that are kept for every update."""


def attempt_scores(run: Mapping[str, Any]) -> list[float]:
    """By update the mean score of rollouts that were told nothing: attempts, or all of an arm
    without a critic."""
    return [
        round(
            critic["before"] if (critic := update.get("critic")) else update["sampling"]["reward"],
            4,
        )
        for update in run["updates"]
    ]


def critic_curve(run: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's updates tell of the critic, a list for each figure; empty without a critic."""
    updates = [update["critic"] for update in run["updates"] if update.get("critic")]
    if not updates:
        return {}
    spent: dict[str, float] = {}
    for update in updates:
        for stage, seconds in update["seconds"].items():
            spent[stage] = round(spent.get(stage, 0.0) + seconds, 1)
    return {
        **{name: [round(update[name], 4) for update in updates] for name in CURVES},
        "malformed": sum(update["malformed"] for update in updates),
        "trained_tokens": sum(update["trained_tokens"] for update in updates),
        "largest_gap": max(update["gap_largest"] for update in updates),
        "cached_critiques": round(fmean(update["cached_critiques"] for update in updates), 3),
        "cached_refinements": round(fmean(update["cached_refinements"] for update in updates), 3),
        "seconds_of": spent,
        "thirds": [_third(updates[start:end]) for start, end in _thirds(len(updates))],
    }


def _thirds(count: int) -> list[tuple[int, int]]:
    return [(part * count // 3, (part + 1) * count // 3) for part in range(3)]


def _third(updates: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Usefulness in a part of training."""
    return {
        name: round(fmean(update[name] for update in updates), 4)
        for name in ("gain", "improved", "worsened", "before_refined", "after")
    }


def learn(home: ExperimentHome, asked: argparse.Namespace, seeds: int) -> dict[str, Any]:
    """All arms with the first seeds, and what came out."""
    runs: dict[str, dict[int, SuiteRun]] = {BASE: {0: measured(home, "base", BASE, asked)}}
    curves: dict[str, dict[str, Any]] = {}
    for seed in range(1, seeds + 1):
        for arm in asked.arms:
            command = ("echo", "--recipe", "echo_small")
            run = trained(home, arm, seed, asked, command, ARMS[arm])  # once, then read
            policy = run["policy"]
            runs.setdefault(arm, {})[seed] = measured(home, policy, policy.replace("@", "-"), asked)
            curves.setdefault(arm, {})[str(seed)] = {
                **curve(run),
                "attempt_score": attempt_scores(run),
                "critic": critic_curve(run),
            }
            score = told({seed: runs[arm][seed]})["score"]["value"]
            if seed == seeds:
                print(f"{arm}, seed {seed}: score {score:.3f}, {run['seconds']} s", flush=True)
    arms = [arm for arm in runs if arm != BASE]
    return {
        "held out": {arm: told(seeds) for arm, seeds in runs.items()},
        "minus before": {arm: compared(runs, arm, BASE) for arm in arms},
        **{
            f"minus {other}": {arm: compared(runs, arm, other) for arm in arms if arm != other}
            for other in ("grpo", "frozen critic")
            if other in arms
        },
        "usefulness": {arm: usefulness(curves[arm]) for arm in arms if arm != "grpo"},
        "training": curves,
    }


def usefulness(curves: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of each third of training, the mean gain of a critique with its interval over seeds, and the
    share that raised and lowered the score."""
    parts = []
    for part in range(3):
        seeds = {seed: one["critic"]["thirds"][part] for seed, one in curves.items()}
        parts.append(
            {
                name: interval({"all": {int(seed): one[name] for seed, one in seeds.items()}})
                for name in ("gain", "improved", "worsened")
            }
        )
    return parts


def draw_learning(training: Mapping[str, Any], file: Path) -> None:
    """Learning curves: of each arm the score of rollouts that were told nothing, mean of the last
    `WINDOW` updates and of all seeds, in a band from the lowest seed to the highest."""
    pyplot = import_pyplot()
    figure, axes = pyplot.subplots(figsize=(7.0, 3.6))
    for arm, seeds in training.items():
        curves = [_smoothed(seed["attempt_score"]) for seed in seeds.values()]
        by_update = list(zip(*curves, strict=True))
        updates = range(1, len(by_update) + 1)
        (line,) = axes.plot(updates, [fmean(each) for each in by_update], label=arm, linewidth=2)
        low, high = ([choose(each) for each in by_update] for choose in (min, max))
        axes.fill_between(updates, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
    axes.set(xlabel=f"update (mean of {WINDOW})", ylabel="score, told nothing", ylim=(0, 1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="upper left")
    figure.tight_layout()
    figure.savefig(file, dpi=130)


def _smoothed(values: Sequence[float]) -> list[float]:
    return [fmean(values[max(0, end - WINDOW) : end]) for end in range(1, len(values) + 1)]


def main() -> int:
    """Learn, print, keep."""
    parser = learning_arguments(__doc__ or "", "word-errands", 40, list(ARMS), list(ARMS))
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help="draw what was kept; run nothing"
    )
    asked = parser.parse_args()
    file = RESULTS / f"{asked.name or 'echo'}.json"
    if asked.picture:
        draw_learning(json.loads(file.read_text())["training"], asked.picture)
        return 0
    with learning_home(asked, ("tiny", "--level", "errands")) as (home, about):
        for seeds in range(1, asked.seeds + 1):  # kept after each: it takes hours
            result = learn(home, asked, seeds)
            whole = {**about, "seeds": seeds, **result}
            file.write_text(json.dumps(whole, indent=1) + "\n")
    print(json.dumps({key: result[key] for key in ("held out", "usefulness")}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
