"""Plots of an experiment's results, as SVG and PNG, with matplotlib: final scores, scores over
time, obedience.

The only module that imports matplotlib, and only when something is drawn.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from houston_daemon.experiments.experiment_recipe import ARMS
from houston_daemon.experiments.experiment_statistics import TASK_WEIGHTED
from houston_shared.errors import HoustonError

_ARM_COLOURS: dict[str, str] = dict(
    zip(ARMS, ("#0072B2", "#E69F00", "#CC79A7", "#D55E00"), strict=True)
)
"""Okabe and Ito's colours, told apart by colour-blind people, too."""
_ARM_DASHES: dict[str, str] = dict(zip(ARMS, ("-", "--", "-.", "-"), strict=True))


def draw_plots(folder: Path, summed: Mapping[str, Any]) -> list[str]:
    """Write the pictures that there are figures for; their names without ending.

    Raises HoustonError where matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise HoustonError(
            "Pictures need matplotlib, which is not installed.",
            "The tables were written; the pictures were not.",
            "Install the extra with `pip install 'houston-agents[train]'`, then --report.",
        ) from None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "houston"  # the same figures give the same file
    made = []
    if any(one["rollouts"] for one in summed.values()):
        made += [_plot_scores(folder, summed), _plot_over_time(folder, summed)]
    if any(one["obedience"] for one in summed.values()):
        made.append(_plot_obedience(folder, summed))
    return made


def _plot_scores(folder: Path, summed: Mapping[str, Any]) -> str:
    """Final scores by domain, a bar an arm."""
    from matplotlib import pyplot

    domains = [name for name in _first_arm(summed)["scores"]["final"] if name != TASK_WEIGHTED]
    names = [*sorted(domains), TASK_WEIGHTED]
    figure, axes = pyplot.subplots(figsize=(8, 3.6))
    width = 0.8 / len(summed)
    for place, (arm, one) in enumerate(summed.items()):
        found = [one["scores"]["final"][name] for name in names]
        values = [each["value"] for each in found]
        errors = [
            [each["value"] - each["low"] for each in found],
            [each["high"] - each["value"] for each in found],
        ]
        at = [n + (place - (len(summed) - 1) / 2) * width for n in range(len(names))]
        axes.bar(at, values, width, yerr=errors, capsize=2, color=_ARM_COLOURS[arm], label=arm)
    axes.set_xticks(range(len(names)), names, rotation=15, ha="right")
    axes.set(ylabel="final score", ylim=(0, 100))
    return _save_figure(folder, figure, "scores")


def _plot_over_time(folder: Path, summed: Mapping[str, Any]) -> str:
    """The mean of the last score before each moment (APOLLO, figure 6)."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3.6))
    for arm, one in summed.items():
        line = one["over_time"]
        axes.step(
            line["seconds"], line["score"], _ARM_DASHES[arm], where="post",
            color=_ARM_COLOURS[arm], label=arm,
        )  # fmt: skip
    top = max(max(one["over_time"]["score"]) for one in summed.values())
    axes.set(xlabel="active time, seconds", ylabel="mean score", xlim=(0, None))
    axes.set_ylim(0, max(5.0, 1.1 * top))
    return _save_figure(folder, figure, "score-over-time")


def _plot_obedience(folder: Path, summed: Mapping[str, Any]) -> str:
    """The share of held-out messages that the next action follows."""
    from matplotlib import pyplot

    parts = list(_first_arm(summed)["obedience"])
    figure, axes = pyplot.subplots(figsize=(8, 3.2))
    width = 0.8 / len(summed)
    for place, (arm, one) in enumerate(summed.items()):
        found = [one["obedience"][part] for part in parts]
        values = [100 * each["value"] if each["of"] else 0.0 for each in found]
        errors = [
            [max(0.0, v - 100 * each["low"]) for v, each in zip(values, found, strict=True)],
            [max(0.0, 100 * each["high"] - v) for v, each in zip(values, found, strict=True)],
        ]
        at = [n + (place - (len(summed) - 1) / 2) * width for n in range(len(parts))]
        axes.bar(at, values, width, yerr=errors, capsize=2, color=_ARM_COLOURS[arm], label=arm)
    axes.set_xticks(range(len(parts)), parts)
    axes.set(ylabel="messages followed, %", ylim=(0, 100))
    return _save_figure(folder, figure, "obedience")


def _first_arm(summed: Mapping[str, Any]) -> Any:
    return next(iter(summed.values()))


def _save_figure(folder: Path, figure: Any, name: str) -> str:
    from matplotlib import pyplot

    axes = figure.axes[0]
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    figure.set_layout_engine("constrained")
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    figure.savefig(folder / f"{name}.png", dpi=150)
    pyplot.close(figure)
    return name
