"""How often and in which order rows stand, and which tasks are held out."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houston_daemon.training.export.export_recipe import RECIPES, ExportRecipe, choose_export_recipe
from houston_daemon.training.export.held_out_split import (
    HeldOutSplit,
    SplitMember,
    choose_held_out,
    parse_held_out,
)
from houston_daemon.training.rows.training_row import RowKind
from houston_shared.errors import HoustonError

ROWS: list[tuple[str, RowKind]] = [(f"r-{n}/0.0#0", "react") for n in range(20)]
ROWS += [(f"r-{n}/summary.1#0", "summary") for n in range(10)]


def test_once_leaves_rows_as_they_come() -> None:
    assert ExportRecipe().as_made
    assert ExportRecipe().order(ROWS) == list(range(30))


def test_apollo_repeats_actions_seven_times_and_summaries_ten_times() -> None:
    order = RECIPES["apollo"].order(ROWS)
    assert [order.count(index) for index in range(30)] == [7] * 20 + [10] * 10
    assert order == RECIPES["apollo"].order(ROWS) != sorted(order)


def test_another_seed_is_another_order() -> None:
    order, other = (choose_export_recipe("shuffled", seed).order(ROWS) for seed in (1, 2))
    assert sorted(order) == sorted(other) == list(range(30))
    assert order != other


@given(missing=st.integers(0, 29), seed=st.integers(0, 99))
def test_a_row_that_goes_moves_no_other(missing: int, seed: int) -> None:
    recipe = choose_export_recipe("apollo", seed)
    remaining = [row for index, row in enumerate(ROWS) if index != missing]
    before = [ROWS[index][0] for index in recipe.order(ROWS) if index != missing]
    assert [remaining[index][0] for index in recipe.order(remaining)] == before


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("react = 2\nsummary = 0\nshuffle = false\n")
    recipe = choose_export_recipe(str(file), 3)
    assert recipe == ExportRecipe("mine", 2, 0, False, 3)
    assert recipe.order(ROWS[18:22]) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("react = -1", "whole numbers"),
        ("react = true", "whole numbers"),
        ("summary = 1001", "whole numbers"),
        ("shuffle = 1", "true or false"),
        ("epochs = 3", "'epochs'"),
        ("react =", "Invalid"),
    ],
)
def test_what_is_no_recipe(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(HoustonError, match=why):
        choose_export_recipe(str(tmp_path / "bad.toml"))


def test_an_unknown_recipe_names_those_there_are() -> None:
    with pytest.raises(HoustonError, match="once, shuffled, apollo"):
        choose_export_recipe("apolo")


TASKS = [SplitMember(f"{task}-{n}", task, "") for task in "abcdefgh" for n in range(3)]


@given(
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 9),
    branches=st.lists(st.tuples(st.integers(0, 23), st.sampled_from("abcdefgh")), max_size=3),
)
def test_no_rollout_nor_a_branch_of_it_is_on_both_sides(
    fraction: float, seed: int, branches: list[tuple[int, str]]
) -> None:
    members = [
        *TASKS,
        *(
            SplitMember(f"branch-{n}", task, TASKS[p].rollout)
            for n, (p, task) in enumerate(branches)
        ),
    ]
    try:
        held_out = choose_held_out(members, HeldOutSplit(fraction, seed=seed))
    except HoustonError as problem:
        assert "left to train on" in str(problem)
        return
    side = {member.rollout: member.task in held_out for member in members}
    assert True in side.values() and False in side.values()
    assert all(side[member.rollout] == side[member.parent] for member in members if member.parent)


def test_a_share_is_a_share_of_tasks_and_another_task_swaps_none() -> None:
    held_out = choose_held_out(TASKS, HeldOutSplit(0.25))
    assert len(held_out) == 2
    more = choose_held_out([*TASKS, SplitMember("i-0", "i", "")], HeldOutSplit(0.25))
    assert len(more) == 3
    assert held_out < more


@pytest.mark.parametrize(("fraction", "count"), [(0.07, 7), (0.14, 14), (0.071, 8)])
def test_a_share_of_a_hundred_tasks_is_that_many(fraction: float, count: int) -> None:
    many = [SplitMember(str(n), str(n), "") for n in range(100)]
    assert len(choose_held_out(many, HeldOutSplit(fraction))) == count


def test_tasks_by_name() -> None:
    assert choose_held_out(TASKS, parse_held_out(["c", "a", "c"])) == {"a", "c"}
    assert choose_held_out(TASKS, parse_held_out(["a"])) == {"a"}
    assert choose_held_out(TASKS, parse_held_out([])) == frozenset()


def test_tasks_of_equal_content_stay_together() -> None:
    """b is a copy of a; a rollout of d was brought in once more as one of e."""
    members = [
        SplitMember("1", "a", "", frozenset({"task a", "said 1"})),
        SplitMember("2", "b", "", frozenset({"task a", "said 2"})),
        SplitMember("3", "c", "", frozenset({"task c", "said 3"})),
        SplitMember("4", "d", "", frozenset({"task d", "said 4"})),
        SplitMember("5", "e", "", frozenset({"task e", "said 4"})),
    ]
    assert choose_held_out(members, parse_held_out(["a"])) == {"a", "b"}
    assert choose_held_out(members, parse_held_out(["e"])) == {"d", "e"}
    assert choose_held_out(members, parse_held_out(["c"])) == {"c"}
    with pytest.raises(HoustonError, match="tasks of equal content count as one"):
        choose_held_out(members[:2], parse_held_out(["a"]))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["z"], "of the task 'z'; they are of: a, b"),
        (["0"], "no share"),
        (["1.5"], "no share"),
        (["nan"], "no share"),
        (list("abcdefgh"), "left to train on"),
    ],
)
def test_what_cannot_be_held_out(words: list[str], why: str) -> None:
    with pytest.raises(HoustonError, match=why):
        choose_held_out(TASKS, parse_held_out(words))
