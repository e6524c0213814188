"""Intervals against published and computed values; figure 6's rule."""

import json
import math

import pytest

from houston_daemon.training.experiment import summing
from houston_daemon.training.experiment.recipe import Recipe
from houston_daemon.training.experiment.statistics import (
    bootstrap,
    over_time,
    weighted,
    wilson,
)


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
    found = wilson(hits, total)
    assert found.value == hits / total
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_without_a_trial_nothing_is_known() -> None:
    found = wilson(0, 0)
    assert math.isnan(found.value)
    assert (found.low, found.high) == (0.0, 1.0)


def test_bootstrap_over_tasks_and_their_rollouts() -> None:
    tasks = {"a": [0.0, 100.0], "b": [50.0, 50.0, 50.0], "c": [100.0]}
    found = bootstrap(tasks, seed=1)
    assert found.value == pytest.approx(200 / 3)  # each task weighs the same
    assert 0 <= found.low < found.value < found.high <= 100
    assert bootstrap(tasks, seed=1) == found


def test_bootstrap_covers_the_true_mean_about_as_often_as_it_says() -> None:
    import random

    source = random.Random(1)
    inside = 0
    for trial in range(40):
        tasks = {str(n): [source.gauss(50, 10)] for n in range(20)}
        found = bootstrap(tasks, seed=trial, draws=150)
        inside += found.low <= 50 <= found.high
    assert 33 <= inside <= 40


def test_nothing_varies_nothing_is_unsure() -> None:
    found = bootstrap({"a": [40.0], "b": [40.0]}, seed=1)
    assert (found.low, found.value, found.high) == (40.0, 40.0, 40.0)


def test_the_mean_weighs_tasks_not_domains() -> None:
    assert weighted({"large": {"a": [10.0], "b": [20.0]}, "small": {"c": [90.0, 30.0]}}) == 30.0


def test_score_over_time_is_the_last_before_and_nothing_before_any() -> None:
    histories = [[(10.0, 50.0), (20.0, 30.0)], [(15.0, 100.0)], []]
    assert over_time(histories, [5.0, 10.0, 15.0, 25.0]) == pytest.approx(
        [0.0, 50 / 3, 50.0, 130 / 3]
    )


def test_what_nothing_was_measured_of_is_null_in_json() -> None:
    """Of orders that are few, there may be none of a kind; NaN is no JSON."""
    shares = {"other kinds": {"followed": 0, "of": 0}}
    measured = {"base": [{"worlds": [], "obedience": {"shares": shares}}]}
    found = summing.summed(Recipe(name="few"), measured)
    assert found["base"]["obedience"]["other kinds"]["value"] is None
    json.dumps(found, allow_nan=False)
