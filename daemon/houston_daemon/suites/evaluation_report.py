"""The report of an evaluation: a table of before and after with differences, changed tasks by name,
whether a difference is beyond chance, and a picture.

`suite_results` computes the figures.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from houston_daemon.suites.suite_results import SuiteRun, compare_runs, run_figures
from houston_shared.errors import HoustonError
from houston_shared.plotting import import_pyplot
from houston_shared.times_and_counts import join_first, pluralize

MEANS = {
    "score": "score, 0 to 100",
    "steps": "steps",
    "failures": "failed calls",
    "no_action": "no call",
}
"""By figure, what it is called."""
NAMES_SHOWN = 12
"""Tasks that flipped, of which a table says the names; `--json` has all."""


def report_json(runs: Sequence[SuiteRun]) -> dict[str, Any]:
    """One run, or one before and one after, as one object. Raises HoustonError for runs of other
    tasks."""
    arms = [{**_run_settings(run), **run_figures(run)} for run in runs]
    head = {"suite": runs[-1].suite, "version": runs[-1].version, "split": runs[-1].split}
    if len(runs) == 1:
        return {**head, "after": arms[0]}
    unlike = [name for name in _DECODING if arms[0][name] != arms[1][name]]
    compared = {**compare_runs(*runs), "unlike": unlike}
    return {**head, "before": arms[0], "after": arms[1], "difference": compared}


_DECODING = ("agent", "temperature", "purify")
"""What two arms should have alike, where policies are compared."""


def _run_settings(run: SuiteRun) -> dict[str, Any]:
    """Who played, and how."""
    return {
        "policy": run.policy or "base",
        "engine": run.engine,
        "agent": run.agent or None,
        "temperature": run.temperature,
        "purify": run.purify or None,
    }


def report_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The same for people."""
    arms = [report[name] for name in ("before", "after") if name in report]
    compared = report.get("difference")
    columns = _arm_titles(arms)
    rows = [["", *columns, *(["difference"] if compared else [])]]
    figures = [name for name in arms[-1] if name.startswith("pass@")]
    for name in [*figures, *MEANS]:
        cells = [*arms, *([compared] if compared else [])]
        signs = [False] * len(arms) + [True]
        rows.append(
            [MEANS.get(name, name)]
            + [_cell(cell.get(name), sign) for cell, sign in zip(cells, signs, strict=False)]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield f"{report['suite']}, {report['split']}: {_extent(arms)}; intervals of 95 %"
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for arm, column in zip(arms, columns, strict=True):
        if arm["unfinished"]:
            yield f"{column}: {pluralize(arm['unfinished'], 'rollout')} did not finish."
    if compared:
        for name in compared["unlike"]:
            values = [arm[name] if arm[name] is not None else "as set in the tasks" for arm in arms]
            yield f"{name}: {values[0]} before, {values[1]} after; the difference includes that."
        yield from _difference_lines(compared)


def _arm_titles(arms: Sequence[Mapping[str, Any]]) -> list[str]:
    """Who played each arm; where that was the same, also which is which."""
    titles = [f"{arm['policy']} on {arm['engine']}" for arm in arms]
    if len(set(titles)) == len(titles):
        return titles
    return [f"{name}: {title}" for name, title in zip(("before", "after"), titles, strict=True)]


def _extent(arms: Sequence[Mapping[str, Any]]) -> str:
    """How many tasks were tried how often, of both arms where they differ."""
    extents = [
        f"{pluralize(arm['worlds'], 'task')}, {pluralize(arm['attempts'], 'attempt')} each"
        for arm in arms
    ]
    return extents[0] if len(set(extents)) == 1 else f"{extents[0]} before; {extents[1]} after"


def _difference_lines(compared: Mapping[str, Any]) -> Iterator[str]:
    flips = compared["flips"]
    gained, lost = flips["gained"], flips["lost"]
    yield f"flips: +{len(gained)} −{len(lost)}"
    for sign, names in (("+", gained), ("−", lost)):
        if names:
            yield f"  {sign} {join_first(names, NAMES_SHOWN)}"
    solved = compared["pass@1"]
    verdict = "is beyond chance" if compared["beyond_chance"] else "may be chance"
    tasks = pluralize(compared["worlds"], "task")
    yield (
        f"The difference in pass@1 {verdict}: {_cell(solved, True)} over {tasks},"
        f" p = {compared['p']:.2g} (exact test of flipped signs)."
    )


def _cell(figure: Mapping[str, float | None] | None, signed: bool) -> str:
    if not figure or figure["value"] is None:
        return "–"
    form = "+.3f" if signed else ".3f"
    bounds = [figure["low"], figure["high"]]
    low, high = ("–" if bound is None else format(bound, form) for bound in bounds)
    return f"{figure['value']:{form}} [{low}, {high}]"


def draw_report(report: Mapping[str, Any], file: Path) -> None:
    """Draw pass@k and score of each arm with their intervals. file: its ending says the format,
    such as `.svg` or `.png`. Raises HoustonError where it cannot be drawn or written."""
    try:
        pyplot = import_pyplot()
    except ImportError:
        raise HoustonError(
            "Pictures need matplotlib, which is not installed.",
            "The figures were kept; the picture was not drawn.",
            "pip install 'houston-agents[train]', then houston evaluate --compare A B --picture F",
        ) from None
    arms = [report[name] for name in ("before", "after") if name in report]
    passes = [name for name in arms[-1] if name.startswith("pass@")]
    means = [name for name in MEANS if arms[-1].get(name, {}).get("value") is not None]
    figure, axes = pyplot.subplots(
        1, 1 + len(means), figsize=(3 + 2.2 * len(means), 3.4), width_ratios=[2, *[1] * len(means)]
    )
    _draw_figures(axes[0], arms, passes, passes)
    axes[0].set_ylim(0, 1)
    axes[0].set_title("solved", fontsize=9)
    for place, name in enumerate(means, 1):
        _draw_figures(axes[place], arms, [name], [""])
        axes[place].set_title(MEANS[name], fontsize=9)
        axes[place].set_ylim(bottom=0)
    axes[0].legend(loc="upper left", fontsize=8)
    title = f"{report['suite']}, {report['split']}: {arms[-1]['worlds']} tasks"
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    try:
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)
    except (OSError, ValueError) as problem:
        raise HoustonError(
            f"{file} cannot be drawn: {problem}.", "The figures were kept."
        ) from None
    finally:
        pyplot.close(figure)


_COLOURS = ("#b0b7c3", "#2f6db5")


def _draw_figures(
    axes: Any, arms: Sequence[Mapping[str, Any]], names: Sequence[str], ticks: Sequence[str]
) -> None:
    """A bar with its interval for each arm and figure; an arm without a figure has none."""
    width = 0.8 / len(arms)
    for number, (arm, title) in enumerate(zip(arms, _arm_titles(arms), strict=True)):
        figures = [(place, arm[name]) for place, name in enumerate(names) if arm.get(name)]
        values = [figure["value"] for _, figure in figures]
        below = [figure["value"] - (figure["low"] or 0.0) for _, figure in figures]
        above = [(figure["high"] or figure["value"]) - figure["value"] for _, figure in figures]
        axes.bar(
            [place + (number - (len(arms) - 1) / 2) * width for place, _ in figures],
            values,
            width,
            yerr=[[max(0.0, each) for each in below], [max(0.0, each) for each in above]],
            color=_COLOURS[number + 2 - len(arms)],
            capsize=3,
            label=title,
        )
    axes.set_xticks(range(len(names)), ticks)
    axes.spines[["top", "right"]].set_visible(False)
