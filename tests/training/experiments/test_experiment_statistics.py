"""Intervals against published and computed values; figure 6's rule."""

import json
import random

import pytest

from houston_daemon.experiments import experiment_report, experiment_statistics
from houston_daemon.experiments.experiment_recipe import ExperimentRecipe, WorldsRecipe
from houston_daemon.experiments.experiment_statistics import (
    bootstrap_mean,
    score_differences,
    scores_over_time,
)
from houston_shared.wilson_interval import wilson_interval


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [
        # Newcombe 1998, table I, method 3 (score interval).
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (29, 29, 0.8830, 1.0),
    ],
)
def test_wilson_as_published(hits: int, total: int, low: float, high: float) -> None:
    interval = wilson_interval(hits, total)
    assert interval.value == hits / total
    assert interval.low == pytest.approx(low, abs=5e-5)
    assert interval.high == pytest.approx(high, abs=5e-5)


def test_without_a_trial_nothing_is_known() -> None:
    assert wilson_interval(0, 0) == (None, 0.0, 1.0)


def test_a_report_shows_a_figure_that_nothing_gave() -> None:
    nothing = bootstrap_mean({}, seed=1).as_json(None)
    lines = list(experiment_report._difference_lines({"base": {"final": nothing, "best": nothing}}))
    assert "| base | – | – |" in lines


def test_each_task_weighs_the_same_however_many_seeds_it_has() -> None:
    cells = {"a": {1: 0.0, 2: 100.0}, "b": {1: 50.0, 2: 50.0, 3: 50.0}, "c": {1: 100.0}}
    interval = bootstrap_mean(cells, seed=1)
    assert interval.value == pytest.approx(200 / 3)
    assert 0 <= interval.low < interval.value < interval.high <= 100
    assert bootstrap_mean(cells, seed=1) == interval


def test_a_seed_is_one_draw_however_many_tasks_it_plays() -> None:
    """A policy that does everything and one that does nothing: between them nothing is known."""
    cells = {str(task): {1: 100.0, 2: 0.0} for task in range(8)}
    interval = bootstrap_mean(cells, seed=1)
    assert (interval.low, interval.value, interval.high) == (0.0, 50.0, 100.0)


VARYING: dict[str, tuple[int, int, float, float]] = {
    "tasks alone": (20, 1, 10.0, 0.0),
    "seeds alone": (1, 20, 0.0, 10.0),
    "tasks and seeds": (12, 12, 10.0, 10.0),
}


@pytest.mark.parametrize("what", VARYING)
def test_bootstrap_covers_the_true_mean_about_as_often_as_it_says(what: str) -> None:
    tasks, seeds, by_task, by_seed = VARYING[what]
    source = random.Random(1)
    inside = 0
    for trial in range(60):
        seeded = [source.gauss(0, by_seed) for _ in range(seeds)]
        cells = {
            str(task): {n: 50 + own + seeded[n] for n in range(seeds)}
            for task in range(tasks)
            for own in [source.gauss(0, by_task)]
        }
        interval = bootstrap_mean(cells, seed=trial, draws=150)
        inside += interval.low <= 50 <= interval.high
    assert 50 <= inside <= 60


def test_nothing_varies_nothing_is_unsure() -> None:
    interval = bootstrap_mean({"a": {1: 40.0}, "b": {1: 40.0}}, seed=1)
    assert (interval.low, interval.value, interval.high) == (40.0, 40.0, 40.0)


def test_a_difference_is_taken_where_both_were_measured() -> None:
    mine = {"a": {1: 30.0, 2: 50.0}, "b": {1: 10.0}, "c": {1: 5.0}}
    other = {"a": {1: 10.0, 2: 40.0}, "b": {2: 10.0}}
    assert score_differences(mine, other) == {"a": {1: 20.0, 2: 10.0}}


def world(name: str, final: float) -> dict[str, object]:
    return {
        "worlds": "find", "world": name, "final": final, "best": final, "steps": 3,
        "active_seconds": 2.0, "history": [(1.0, final)],
    }  # fmt: skip


def test_full_is_held_against_the_others_world_by_world() -> None:
    """Worlds differ more than arms: apart they overlap, held against each other they do not."""
    recipe = ExperimentRecipe(
        name="two",
        worlds=(
            WorldsRecipe(name="find", domain="finding", environment="textworld", instructions=""),
        ),
    )
    easy, hard = 80.0, 10.0
    measured = {
        arm: [
            {
                "seed": seed,
                "obedience": None,
                "worlds": [world("e", easy + up), world("h", hard + up)],
            }
            for seed in (1, 2)
        ]
        for arm, up in (("base", 0.0), ("full", 5.0))
    }
    figures = experiment_statistics.summarize_arms(recipe, measured)
    scores = {
        arm: of_arm["scores"]["final"][experiment_statistics.TASK_WEIGHTED]
        for arm, of_arm in figures.items()
    }
    assert scores["full"]["seeds"] == {"1": 50.0, "2": 50.0}
    assert scores["full"]["low"] < scores["base"]["high"]
    compared = experiment_statistics.compare_arms(recipe, measured)["base"]["final"]
    assert compared == {"value": 5.0, "low": 5.0, "high": 5.0}


def test_score_over_time_is_the_last_before_and_nothing_before_any() -> None:
    histories = [[(10.0, 50.0), (20.0, 30.0)], [(15.0, 100.0)], []]
    assert scores_over_time(histories, [5.0, 10.0, 15.0, 25.0]) == pytest.approx(
        [0.0, 50 / 3, 50.0, 130 / 3]
    )


def test_what_nothing_was_measured_of_is_null_in_json() -> None:
    """Of orders that are few, there may be none of a kind; NaN is no JSON."""
    shares = {"other kinds": {"followed": 0, "of": 0}}
    measured = {"base": [{"seed": 1, "worlds": [], "obedience": {"shares": shares}}]}
    figures = experiment_statistics.summarize_arms(ExperimentRecipe(name="few"), measured)
    assert figures["base"]["obedience"]["other kinds"]["value"] is None
    json.dumps(figures, allow_nan=False)


def test_an_order_that_was_not_tested_is_in_no_share_and_said() -> None:
    shares = {"all": {"followed": 1, "of": 3, "untested": 2}}
    older = {"all": {"followed": 0, "of": 4}}
    measured = {
        "base": [
            {"seed": 1, "worlds": [], "obedience": {"shares": shares}},
            {"seed": 2, "worlds": [], "obedience": {"shares": older}},
        ]
    }
    figures = experiment_statistics.summarize_arms(ExperimentRecipe(name="few"), measured)["base"][
        "obedience"
    ]["all"]
    assert (figures["followed"], figures["of"], figures["untested"]) == (1, 7, 2)
    assert figures["seeds"] == {"1": "1 of 3", "2": "0 of 4"}
