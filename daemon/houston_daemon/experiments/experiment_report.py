"""The report of an experiment: results.json, plots, and report.md with the tables and how to
repeat it.

It is made from the stages that are there, so that a run that goes on has one, too.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from houston_daemon.experiments import experiment_plots
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
    text = "\n".join(_report_lines(run, results, measured, []))
    atomic_file.write_atomically(file, text.encode())
    made = experiment_plots.draw_plots(folder, figures)
    atomic_file.write_atomically(
        file, "\n".join(_report_lines(run, results, measured, made)).encode()
    )
    return str(file)


def measured_by_arm(run: ExperimentRun) -> dict[str, list[dict[str, Any]]]:
    """By arm, in APOLLO's order, what each measured seed gave, also beyond the recipe's."""
    there: dict[str, list[int]] = {arm: [] for arm in ARMS}
    for stage in run.stages.seconds():
        what, _, rest = stage.partition("-")
        arm, _, seed = rest.rpartition("-")
        if what == "measure" and arm in run.recipe.arms:
            there[arm].append(int(seed))
    return {
        arm: [run.stages.result(f"measure-{arm}-{seed}") or {} for seed in sorted(seeds)]
        for arm, seeds in there.items()
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
            "rollouts": len(done["rollouts"]),
            **(run.stages.result(judge) or {}).get("steps", {}),
        }
        for kind, (sample, judge) in names.items()
        if (done := run.stages.result(sample)) is not None
    }


def _trained_results(run: ExperimentRun) -> list[dict[str, Any]]:
    made = []
    for arm in run.recipe.arms:
        data = run.stages.result(f"rows-{arm}")
        for seed in run.recipe.seeds:
            if data and (done := run.stages.result(f"train-{arm}-{seed}")) is not None:
                result = sft_run_folder.folder_of_run(run.ground.home, done["run"]).result
                loss = result.loss_mean_last_10 if result else None
                made.append(
                    {"arm": arm, **done, "rows": data["rows"], "counts": data["counts"]}
                    | {"loss_mean_last_10": loss}
                )
    return made


def _report_lines(
    run: ExperimentRun, results: Mapping[str, Any], measured: Mapping[str, Any], made: Sequence[str]
) -> Iterator[str]:
    figures, about = results["arms"], results["about"]
    seeds = {arm: len(each) for arm, each in measured.items()}
    yield f"# {run.recipe.name}\n"
    yield from _how_lines(run, about, seeds)
    if any(one["rollouts"] for one in figures.values()):
        yield "\n## Scores of held-out worlds\n"
        yield from _score_lines(run, results)
        yield from (f"\n![{name}]({name}.svg)" for name in made if name != "obedience")
    if any(one["obedience"] for one in figures.values()):
        yield "\n## Obedience\n"
        yield from _obedience_lines(run, figures)
        yield from (f"\n![{name}]({name}.svg)" for name in made if name == "obedience")
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
        who = "a scripted expert with bad habits" if expert else "the model itself"
        yield f"- Training worlds were played by {who}; a simulated annotator spoke, or nobody."
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
    names = sorted({one.domain for one in run.recipe.worlds if one.held_out})
    yield from _table_head(["arm", "", *names, TASK_WEIGHTED, "by seed"])
    for arm, one in figures.items():
        for kind in ("final", "best"):
            found = one["scores"][kind]
            cells = [_interval_words(found[name]) for name in (*names, TASK_WEIGHTED)]
            seeds = " · ".join(f"{score:.1f}" for score in found[TASK_WEIGHTED]["seeds"].values())
            yield _table_row([arm if kind == "final" else "", kind, *cells, seeds])
    yield (
        "\nThe weight of a domain is its number of held-out worlds: "
        + ", ".join(
            f"{name} {sum(each.held_out for each in run.recipe.worlds if each.domain == name)}"
            for name in names
        )
        + ".\n"
    )
    yield from _difference_lines(results["full_less_others"])
    yield from _table_head(["arm", "rollouts", "steps worked", "active seconds worked"])
    for arm, one in figures.items():
        yield _table_row(
            [arm, one["rollouts"], f"{one['steps']:.1f}", f"{one['active_seconds']:.1f}"]
        )


def _difference_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """How much higher `full` scores, world by world and seed by seed."""
    if not any(found.values()):
        return
    yield f"How much higher `{FULL_ARM}` scores over all worlds, world by world and seed by seed:\n"
    yield from _table_head(["than", "final", "best"])
    for arm, one in found.items():
        yield _table_row([arm, *(_interval_words(one[kind], "+") for kind in ("final", "best"))])
    yield ""


def _obedience_lines(run: ExperimentRun, figures: Mapping[str, Any]) -> Iterator[str]:
    yield "Messages with words, files and folders that training never used. Followed means that"
    yield "the next action's first call is the one asked for, on the thing that was named.\n"
    parts = list(next(iter(figures.values()))["obedience"])
    yield from _table_head(["arm", *parts])
    for arm, one in figures.items():
        cells = [
            f"{each['followed']} of {each['of']}, {_percent_words(each)}{_seed_words(each)}"
            if each["of"]
            else "–"
            for each in (one["obedience"][part] for part in parts)
        ]
        yield _table_row([arm, *cells])
    yield from (
        f"\n{each['untested']} orders were not tested with {arm}: no step came after them."
        for arm, one in figures.items()
        if (each := one["obedience"][parts[0]])["untested"]
    )


def _learning_lines(results: Mapping[str, Any]) -> Iterator[str]:
    for kind, one in results["sampled"].items():
        masks = {key: value for key, value in one.items() if key.startswith("masked")}
        said = ", ".join(f"{value} {key}" for key, value in sorted(masks.items())) or "none masked"
        yield f"- {kind}: {one['rollouts']} rollouts, {one.get('all', 0)} steps, {said}."
    if not results["trained"]:
        return
    yield ""
    yield from _table_head(
        [
            "arm",
            "seed",
            "policy",
            "rows",
            "tokens",
            "trained tokens",
            "steps",
            "loss, last ten",
            "tokens/s",
        ]
    )
    for one in results["trained"]:
        counts, loss = one["counts"], _number_words(one["loss_mean_last_10"], ".3f")
        yield _table_row(
            [
                one["arm"], one["seed"], one["policy"], one["rows"], f"{counts['all']:,}",
                f"{counts['trained']:,}", one.get("steps"), loss,
                _number_words(one.get("tokens_per_second"), ".0f"),
            ]
        )  # fmt: skip


def _table_head(names: Sequence[str]) -> Iterator[str]:
    yield _table_row(names)
    yield "|" + "---|" * len(names)


def _table_row(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _interval_words(one: Mapping[str, float], sign: str = "-") -> str:
    form = f"{sign}.1f"
    return f"{one['value']:{form}} [{one['low']:{form}}, {one['high']:{form}}]"


def _seed_words(one: Mapping[str, Any]) -> str:
    seeds = one["seeds"].values()
    return f"; by seed {', '.join(seeds)}" if len(seeds) > 1 else ""


def _percent_words(one: Mapping[str, float]) -> str:
    return f"{one['value']:.0%} [{one['low']:.0%}, {one['high']:.0%}]"


def _number_words(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
