"""The report of an experiment: results.json, plots, and report.md with the tables and how to
repeat it.

It is made from the stages that are there, so that a run that goes on has one, too. Plots are SVG
and PNG: final scores, scores over time, obedience.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from houston_daemon.experiments.experiment_recipe import ARMS
from houston_daemon.experiments.experiment_run import GUIDED_ENGINE, UNGUIDED_ENGINE, ExperimentRun
from houston_daemon.experiments.experiment_statistics import (
    FULL_ARM,
    TASK_WEIGHTED,
    compare_arms,
    summarize_arms,
)
from houston_daemon.training.sft import sft_run_folder
from houston_shared import atomic_file
from houston_shared.errors import HoustonError
from houston_shared.plotting import import_pyplot

_ARM_COLOURS: dict[str, str] = dict(
    zip(ARMS, ("#0072B2", "#E69F00", "#CC79A7", "#D55E00"), strict=True)
)
"""Okabe and Ito's colours, told apart by colour-blind people, too."""
_ARM_DASHES: dict[str, str] = dict(zip(ARMS, ("-", "--", "-.", "-"), strict=True))


def write_report(run: ExperimentRun) -> str:
    """Write the report from what was measured; its path. Raises HoustonError where nothing was."""
    measured = measured_by_arm(run)
    if not measured:
        raise HoustonError(
            f"{run.folder} has nothing measured yet.",
            "No report was written.",
            "houston experiment … --resume",
        )
    folder = run.folder / "report"
    folder.mkdir(exist_ok=True)
    figures = summarize_arms(run.recipe, measured)
    results = {
        "about": _read_about(run),
        "arms": figures,
        "full_less_others": compare_arms(run.recipe, measured),
        "sampled": _sampled_results(run),
        "trained": _trained_results(run),
    }
    atomic_file.write_atomically(
        folder / "results.json", (json.dumps(results, indent=1) + "\n").encode()
    )
    file = folder / "report.md"
    text = "\n".join(_report_lines(run, results, measured))
    atomic_file.write_atomically(file, text.encode())
    plots = _draw_plots(folder, figures)
    atomic_file.write_atomically(
        file, "\n".join(_report_lines(run, results, measured, plots)).encode()
    )
    return str(file)


def measured_by_arm(run: ExperimentRun) -> dict[str, list[dict[str, Any]]]:
    """By arm, in APOLLO's order, what each measured seed gave, also beyond the recipe's."""
    seeds_by_arm: dict[str, list[int]] = {arm: [] for arm in ARMS}
    for stage in run.stages.seconds():
        stage_name, _, rest = stage.partition("-")
        arm, _, seed = rest.rpartition("-")
        if stage_name == "measure" and arm in run.recipe.arms:
            seeds_by_arm[arm].append(int(seed))
    return {
        arm: [run.stages.result(f"measure-{arm}-{seed}") or {} for seed in sorted(seeds)]
        for arm, seeds in seeds_by_arm.items()
        if seeds
    }


def _read_about(run: ExperimentRun) -> dict[str, Any]:
    about: dict[str, Any] = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
    recipe = (run.folder / "recipe.toml").read_text(encoding="utf-8")
    return {**about, "recipe": tomllib.loads(recipe), "stages": run.stages.seconds()}


def _sampled_results(run: ExperimentRun) -> dict[str, Any]:
    names = {kind: (f"sample-{kind}", f"judge-{kind}") for kind in (GUIDED_ENGINE, UNGUIDED_ENGINE)}
    return {
        kind: {
            "rollouts": len(result["rollouts"]),
            **(run.stages.result(judge) or {}).get("steps", {}),
        }
        for kind, (sample, judge) in names.items()
        if (result := run.stages.result(sample)) is not None
    }


def _trained_results(run: ExperimentRun) -> list[dict[str, Any]]:
    trainings = []
    for arm in run.recipe.arms:
        data = run.stages.result(f"rows-{arm}")
        for seed in run.recipe.seeds:
            if data and (training := run.stages.result(f"train-{arm}-{seed}")) is not None:
                result = sft_run_folder.folder_of_run(
                    run.experiment_home.home, training["run"]
                ).result
                loss = result.loss_mean_last_10 if result else None
                trainings.append(
                    {"arm": arm, **training, "rows": data["rows"], "counts": data["counts"]}
                    | {"loss_mean_last_10": loss}
                )
    return trainings


def _report_lines(
    run: ExperimentRun,
    results: Mapping[str, Any],
    measured: Mapping[str, Any],
    plots: Sequence[str] = (),
) -> Iterator[str]:
    figures, about = results["arms"], results["about"]
    seeds = {arm: len(arm_results) for arm, arm_results in measured.items()}
    yield f"# {run.recipe.name}\n"
    yield from _how_lines(run, about, seeds)
    if any(of_arm["rollouts"] for of_arm in figures.values()):
        yield "\n## Scores of held-out worlds\n"
        yield from _score_lines(run, results)
        yield from (f"\n![{name}]({name}.svg)" for name in plots if name != "obedience")
    if any(of_arm["obedience"] for of_arm in figures.values()):
        yield "\n## Obedience\n"
        yield from _obedience_lines(figures)
        yield from (f"\n![{name}]({name}.svg)" for name in plots if name == "obedience")
    yield "\n## What was learned from\n"
    yield from _learning_lines(results)
    yield "\n## Time\n"
    stages = about["stages"]
    yield (
        f"{sum(stages.values()) / 60:.1f} minutes in all, by stage in seconds: "
        + ", ".join(f"{name} {seconds:.0f}" for name, seconds in stages.items())
        + ".\n"
    )


def _how_lines(
    run: ExperimentRun, about: Mapping[str, Any], seeds: Mapping[str, int]
) -> Iterator[str]:
    recipe, machine = run.recipe, about["machine"]
    yield f"- Again: `{about['command']}`; the recipe is kept in the run's folder."
    if recipe.worlds:
        expert = recipe.sampler == "expert"
        player = "a scripted expert with bad habits" if expert else "the model itself"
        yield f"- Training worlds were played by {player}; a simulated annotator spoke, or nobody."
    if recipe.orders.train:
        yield "- Training orders were followed by a script that does at once what a person says."
    yield f"- Seeds measured: {', '.join(f'{arm} {count}' for arm, count in seeds.items())}."
    missing = [arm for arm in recipe.arms if seeds.get(arm, 0) < len(recipe.seeds)]
    if missing:
        yield f"- **Not complete**: not every seed was measured of {', '.join(missing)}."
    yield (
        f"- Machine: {machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB,"
        f" {machine['system']}."
    )
    yield "- Versions: " + ", ".join(f"{k} {v}" for k, v in about["versions"].items()) + "."
    sure = recipe.statistics
    yield (
        f"- In brackets: {sure.confidence:.0%} intervals. Scores: percentile bootstrap over worlds"
        f" and seeds ({sure.draws} draws, seed {sure.seed}); obedience: Wilson, for these policies."
        " Few seeds and two worlds a domain make them too narrow: look at each seed, too."
    )


def _score_lines(run: ExperimentRun, results: Mapping[str, Any]) -> Iterator[str]:
    figures = results["arms"]
    names = sorted({worlds.domain for worlds in run.recipe.worlds if worlds.held_out})
    yield from _table_head(["arm", "", *names, TASK_WEIGHTED, "by seed"])
    for arm, of_arm in figures.items():
        for kind in ("final", "best"):
            scores = of_arm["scores"][kind]
            cells = [_interval_words(scores[name]) for name in (*names, TASK_WEIGHTED)]
            seeds = " · ".join(f"{score:.1f}" for score in scores[TASK_WEIGHTED]["seeds"].values())
            yield _table_row([arm if kind == "final" else "", kind, *cells, seeds])
    yield (
        "\nThe weight of a domain is its number of held-out worlds: "
        + ", ".join(
            f"{name} {sum(world.held_out for world in run.recipe.worlds if world.domain == name)}"
            for name in names
        )
        + ".\n"
    )
    yield from _difference_lines(results["full_less_others"])
    yield from _table_head(["arm", "rollouts", "steps worked", "active seconds worked"])
    for arm, of_arm in figures.items():
        worked = [_number_words(of_arm[name], ".1f") for name in ("steps", "active_seconds")]
        yield _table_row([arm, of_arm["rollouts"], *worked])


def _difference_lines(differences: Mapping[str, Any]) -> Iterator[str]:
    """How much higher `full` scores, world by world and seed by seed."""
    if not any(differences.values()):
        return
    yield f"How much higher `{FULL_ARM}` scores over all worlds, world by world and seed by seed:\n"
    yield from _table_head(["than", "final", "best"])
    for arm, difference in differences.items():
        words = [_interval_words(difference[kind], "+") for kind in ("final", "best")]
        yield _table_row([arm, *words])
    yield ""


def _obedience_lines(figures: Mapping[str, Any]) -> Iterator[str]:
    yield "Messages with words, files and folders that training never used. Followed means that"
    yield "the next action's first call is the one asked for, on the thing that was named.\n"
    parts = list(next(iter(figures.values()))["obedience"])
    yield from _table_head(["arm", *parts])
    for arm, of_arm in figures.items():
        cells = [
            f"{share['followed']} of {share['of']}, {_percent_words(share)}{_seed_words(share)}"
            if share["of"]
            else "–"
            for share in (of_arm["obedience"][part] for part in parts)
        ]
        yield _table_row([arm, *cells])
    yield from (
        f"\n{share['untested']} orders were not tested with {arm}: no step came after them."
        for arm, of_arm in figures.items()
        if (share := of_arm["obedience"][parts[0]])["untested"]
    )


def _learning_lines(results: Mapping[str, Any]) -> Iterator[str]:
    for kind, sampled in results["sampled"].items():
        masks = {key: value for key, value in sampled.items() if key.startswith("masked")}
        words = ", ".join(f"{value} {key}" for key, value in sorted(masks.items())) or "none masked"
        yield f"- {kind}: {sampled['rollouts']} rollouts, {sampled.get('all', 0)} steps, {words}."
    if not results["trained"]:
        return
    yield ""
    columns = ("arm", "seed", "policy", "rows")
    names = ("tokens", "trained tokens", "steps", "loss, last ten", "tokens/s")
    yield from _table_head([*columns, *names])
    for training in results["trained"]:
        counts, loss = training["counts"], _number_words(training["loss_mean_last_10"], ".3f")
        tokens = (f"{counts['all']:,}", f"{counts['trained']:,}")
        speed = _number_words(training.get("tokens_per_second"), ".0f")
        cells = [training[key] for key in columns]
        yield _table_row([*cells, *tokens, training.get("steps"), loss, speed])


def _table_head(names: Sequence[str]) -> Iterator[str]:
    yield _table_row(names)
    yield "|" + "---|" * len(names)


def _table_row(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _interval_words(estimate: Mapping[str, float | None], sign: str = "-") -> str:
    if estimate["value"] is None:
        return "–"
    low, high = (_number_words(estimate[name], f"{sign}.1f") for name in ("low", "high"))
    return f"{estimate['value']:{sign}.1f} [{low}, {high}]"


def _seed_words(share: Mapping[str, Any]) -> str:
    seeds = share["seeds"].values()
    return f"; by seed {', '.join(seeds)}" if len(seeds) > 1 else ""


def _percent_words(estimate: Mapping[str, float]) -> str:
    return f"{estimate['value']:.0%} [{estimate['low']:.0%}, {estimate['high']:.0%}]"


def _number_words(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _draw_plots(folder: Path, summed: Mapping[str, Any]) -> list[str]:
    """Write the pictures that there are figures for; their names without ending.

    Raises HoustonError where matplotlib is not installed.
    """
    try:
        pyplot = import_pyplot()
    except ImportError:
        raise HoustonError(
            "Pictures need matplotlib, which is not installed.",
            "The tables were written; the pictures were not.",
            "Install the extra with `pip install 'houston-agents[train]'`, then --report.",
        ) from None
    names = []
    if any(figures["rollouts"] for figures in summed.values()):
        names += [_plot_scores(pyplot, folder, summed), _plot_over_time(pyplot, folder, summed)]
    if any(figures["obedience"] for figures in summed.values()):
        names.append(_plot_obedience(pyplot, folder, summed))
    return names


def _plot_scores(pyplot: Any, folder: Path, summed: Mapping[str, Any]) -> str:
    """Final scores by domain, a bar an arm."""
    domains = [name for name in _first_arm(summed)["scores"]["final"] if name != TASK_WEIGHTED]
    names = [*sorted(domains), TASK_WEIGHTED]
    figure, axes = pyplot.subplots(figsize=(8, 3.6))
    bars = {}
    for arm, figures in summed.items():
        scores = [figures["scores"]["final"][name] for name in names]
        bars[arm] = [(score["value"], score["low"], score["high"]) for score in scores]
    _draw_bars(axes, bars)
    axes.set_xticks(range(len(names)), names, rotation=15, ha="right")
    axes.set(ylabel="final score", ylim=(0, 100))
    return _save_figure(pyplot, folder, figure, "scores")


def _plot_over_time(pyplot: Any, folder: Path, summed: Mapping[str, Any]) -> str:
    """The mean of the last score before each moment (APOLLO, figure 6)."""
    figure, axes = pyplot.subplots(figsize=(8, 3.6))
    for arm, figures in summed.items():
        line = figures["over_time"]
        axes.step(
            line["seconds"], line["score"], _ARM_DASHES[arm], where="post",
            color=_ARM_COLOURS[arm], label=arm,
        )  # fmt: skip
    top = max(max(figures["over_time"]["score"]) for figures in summed.values())
    axes.set(xlabel="active time, seconds", ylabel="mean score", xlim=(0, None))
    axes.set_ylim(0, max(5.0, 1.1 * top))
    return _save_figure(pyplot, folder, figure, "score-over-time")


def _plot_obedience(pyplot: Any, folder: Path, summed: Mapping[str, Any]) -> str:
    """The share of held-out messages that the next action follows."""
    parts = list(_first_arm(summed)["obedience"])
    figure, axes = pyplot.subplots(figsize=(8, 3.2))
    bars = {}
    for arm, figures in summed.items():
        shares = [figures["obedience"][part] for part in parts]
        bars[arm] = [
            (100 * share["value"] if share["of"] else 0.0, 100 * share["low"], 100 * share["high"])
            for share in shares
        ]
    _draw_bars(axes, bars)
    axes.set_xticks(range(len(parts)), parts)
    axes.set(ylabel="messages followed, %", ylim=(0, 100))
    return _save_figure(pyplot, folder, figure, "obedience")


def _draw_bars(axes: Any, bars: Mapping[str, Sequence[tuple[float, float, float]]]) -> None:
    """Groups of bars, one an arm in each. bars: by arm value, low and high of each group."""
    width = 0.8 / len(bars)
    for place, (arm, estimates) in enumerate(bars.items()):
        values = [value for value, _, _ in estimates]
        below = [max(0.0, value - low) for value, low, _ in estimates]
        above = [max(0.0, high - value) for value, _, high in estimates]
        at = [n + (place - (len(bars) - 1) / 2) * width for n in range(len(estimates))]
        axes.bar(
            at, values, width, yerr=[below, above], capsize=2, color=_ARM_COLOURS[arm], label=arm
        )


def _first_arm(summed: Mapping[str, Any]) -> Any:
    return next(iter(summed.values()))


def _save_figure(pyplot: Any, folder: Path, figure: Any, name: str) -> str:
    axes = figure.axes[0]
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    figure.set_layout_engine("constrained")
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
    figure.savefig(folder / f"{name}.png", dpi=150)
    pyplot.close(figure)
    return name
