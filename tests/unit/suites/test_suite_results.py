"""Figures of a suite's runs, against values that were computed by hand."""

from fractions import Fraction
from itertools import combinations, product
from pathlib import Path

import msgspec
import pytest

from houston_daemon.suites import suite_results
from houston_daemon.suites.suite_results import (
    SuiteAttempt,
    SuiteRun,
    SuiteWorld,
    compare_runs,
    pass_at,
    run_figures,
    sign_flip_p,
)
from houston_shared.errors import HoustonError


def attempt(solved: bool, failures: int = 0, steps: int = 3) -> SuiteAttempt:
    return SuiteAttempt(
        rollout="r",
        state="finished",
        score=100.0 * solved,
        steps=steps,
        failures=failures,
        no_action=0,
    )


def run(*worlds: str, suite: str = "word-worlds", failures: int = 0) -> SuiteRun:
    """worlds: by index, an `1` for each attempt that solved it, a `0` for each that did not."""
    return SuiteRun(
        suite=suite,
        version=1,
        split="test",
        engine="e",
        policy="",
        started_at="2026-01-01T00:00:00Z",
        seconds=2.0,
        worlds=tuple(
            SuiteWorld(index=index, attempts=tuple(attempt(x == "1", failures) for x in tried))
            for index, tried in enumerate(worlds)
        ),
    )


@pytest.mark.parametrize("tried", range(1, 7))
def test_pass_at_k_is_the_share_of_draws_that_hold_a_solved_one(tried: int) -> None:
    for solved in range(tried + 1):
        outcomes = [1] * solved + [0] * (tried - solved)
        for k in range(1, tried + 1):
            draws = [max(draw) for draw in combinations(outcomes, k)]
            assert pass_at(k, tried, solved) == pytest.approx(sum(draws) / len(draws))


def test_a_run_tried_once_has_wilsons_bounds() -> None:
    figures = run_figures(run(*"1100000000"))
    assert figures["pass@1"] == {"value": 0.2, "low": 0.0567, "high": 0.5098}
    assert figures["episodes_per_second"] == 5.0 and figures["unfinished"] == 0
    assert [name for name in figures if name.startswith("pass")] == ["pass@1"]


@pytest.mark.parametrize(
    ("world", "k", "low", "high"),
    [("11", 1, 0.7225, 1.0), ("00", 2, 0.0, 0.2775), ("10", 1, 0.2366, 0.7634)],
)
def test_worlds_that_are_all_alike_have_wilsons_bounds_too(
    world: str, k: int, low: float, high: float
) -> None:
    figure = run_figures(run(*[world] * 10))[f"pass@{k}"]
    assert (figure["low"], figure["high"]) == (low, high)


def test_several_attempts_give_pass_at_each_power_of_two() -> None:
    figures = run_figures(run("100", "000", "111"))
    assert figures["pass@1"]["value"] == pytest.approx(4 / 9, abs=1e-4)
    assert figures["pass@2"]["value"] == pytest.approx((2 / 3 + 0 + 1) / 3, abs=1e-4)
    assert figures["pass@3"]["value"] == pytest.approx(2 / 3, abs=1e-4)
    assert figures["pass@1"]["low"] < 4 / 9 < figures["pass@1"]["high"]


def test_two_runs_are_held_against_each_other_world_by_world() -> None:
    before, after = run(*"0000100000", failures=2), run(*"1111011100", failures=1)
    compared = compare_runs(before, after)
    assert compared["flips"]["gained"] == [str(index) for index in (0, 1, 2, 3, 5, 6, 7)]
    assert compared["flips"]["lost"] == ["4"]
    assert compared["p"] == pytest.approx(2 * (1 + 8) / 2**8)
    assert compared["pass@1"]["value"] == pytest.approx(0.6)
    assert compared["pass@1"]["low"] > 0 and not compared["beyond_chance"], "p is above 0.05"
    assert compared["failures"] == {"value": -1.0, "low": -1.0, "high": -1.0}


def test_runs_are_compared_in_the_worlds_that_both_have() -> None:
    assert compare_runs(run(*"01"), run(*"1111"))["worlds"] == 2


@pytest.mark.parametrize("other", [run(*"11", suite="word-worlds-hard"), run()])
def test_runs_of_other_tasks_are_not_compared(other: SuiteRun) -> None:
    with pytest.raises(HoustonError, match="no world in common"):
        compare_runs(run(*"11"), other)


@pytest.mark.parametrize(
    ("gained", "lost", "p"), [(0, 0, 1.0), (1, 1, 1.0), (5, 0, 2 / 32), (0, 6, 2 / 64)]
)
def test_flips_have_mcnemars_exact_p(gained: int, lost: int, p: float) -> None:
    flips = [Fraction(1)] * gained + [Fraction(-1)] * lost + [Fraction(0)] * 3
    assert sign_flip_p(flips) == pytest.approx(p)


def test_of_several_attempts_p_is_the_share_of_signs_that_give_as_much() -> None:
    differences = [Fraction(each, 12) for each in (3, -4, 6, 8, 8, -1, 9)]
    sums = [sum(map(Fraction.__mul__, differences, signs)) for signs in product((1, -1), repeat=7)]
    as_much = [each for each in sums if abs(each) >= abs(sum(differences))]
    assert sign_flip_p(differences) == pytest.approx(len(as_much) / len(sums))


def test_a_kept_run_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b.json"
    suite_results.write_run(file, run("10", "01"))
    assert suite_results.read_run(file) == run("10", "01")
    file.write_text("{}")
    with pytest.raises(HoustonError, match="not a result"):
        suite_results.read_run(file)


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        pytest.param("only", "words", id="one suite has it"),
        pytest.param("first", "", id="two suites have it"),
        pytest.param("errands/first", "errands", id="with its suite"),
    ],
)
def test_a_run_that_two_suites_have_is_asked_for_by_its_suite(
    tmp_path: Path, name: str, taken: str
) -> None:
    for suite, kept in (("words", "only"), ("words", "first"), ("errands", "first")):
        file = tmp_path / suite / f"{kept}.json"
        world = SuiteWorld(
            index=0, attempts=(msgspec.structs.replace(attempt(True), rollout=suite),)
        )
        suite_results.write_run(file, msgspec.structs.replace(run(suite=suite), worlds=(world,)))
    if taken:
        assert suite_results.rollouts_of_run(tmp_path, name) == [taken]
        return
    with pytest.raises(HoustonError) as refused:
        suite_results.rollouts_of_run(tmp_path, name)
    assert "errands/first, words/first" in str(refused.value)
