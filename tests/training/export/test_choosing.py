"""How often and in which order rows stand, and which tasks are held out."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houston_daemon.training.export.recipe import RECIPES, Recipe, choose_recipe
from houston_daemon.training.export.split import HeldOut, Member, divide, read_held_out
from houston_daemon.training.rows.row import Kind
from houston_shared.errors import HoustonError

ROWS: list[tuple[str, Kind]] = [(f"r-{n}/0.0#0", "react") for n in range(20)]
ROWS += [(f"r-{n}/summary.1#0", "summary") for n in range(10)]


def test_once_leaves_rows_as_they_come() -> None:
    assert Recipe().as_made
    assert Recipe().order(ROWS) == list(range(30))


def test_apollo_repeats_actions_seven_times_and_summaries_ten_times() -> None:
    order = RECIPES["apollo"].order(ROWS)
    assert [order.count(index) for index in range(30)] == [7] * 20 + [10] * 10
    assert order == RECIPES["apollo"].order(ROWS) != sorted(order)


def test_another_seed_is_another_order() -> None:
    one, other = (choose_recipe("shuffled", seed).order(ROWS) for seed in (1, 2))
    assert sorted(one) == sorted(other) == list(range(30))
    assert one != other


@given(gone=st.integers(0, 29), seed=st.integers(0, 99))
def test_a_row_that_goes_moves_no_other(gone: int, seed: int) -> None:
    recipe = choose_recipe("apollo", seed)
    left = [row for index, row in enumerate(ROWS) if index != gone]
    before = [ROWS[index][0] for index in recipe.order(ROWS) if index != gone]
    assert [left[index][0] for index in recipe.order(left)] == before


def test_a_recipe_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("react = 2\nsummary = 0\nshuffle = false\n")
    recipe = choose_recipe(str(file), 3)
    assert recipe == Recipe("mine", 2, 0, False, 3)
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
        choose_recipe(str(tmp_path / "bad.toml"))


def test_an_unknown_recipe_names_those_there_are() -> None:
    with pytest.raises(HoustonError, match="once, shuffled, apollo"):
        choose_recipe("apolo")


TASKS = [Member(f"{task}-{n}", task, "") for task in "abcdefgh" for n in range(3)]


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
        *(Member(f"branch-{n}", task, TASKS[p].rollout) for n, (p, task) in enumerate(branches)),
    ]
    try:
        held_out = divide(members, HeldOut(fraction, seed=seed))
    except HoustonError as problem:
        assert "left to train on" in str(problem)
        return
    side = {one.rollout: one.task in held_out for one in members}
    assert True in side.values() and False in side.values()
    assert all(side[one.rollout] == side[one.parent] for one in members if one.parent)


def test_a_share_is_a_share_of_tasks_and_another_task_swaps_none() -> None:
    held_out = divide(TASKS, HeldOut(0.25))
    assert len(held_out) == 2
    more = divide([*TASKS, Member("i-0", "i", "")], HeldOut(0.25))
    assert len(more) == 3
    assert held_out < more


def test_tasks_by_name() -> None:
    assert divide(TASKS, read_held_out(["c", "a", "c"])) == {"a", "c"}
    assert divide(TASKS, read_held_out(["a"])) == {"a"}
    assert divide(TASKS, read_held_out([])) == frozenset()


def test_tasks_of_equal_content_stay_together() -> None:
    """b is a copy of a; a rollout of d was brought in once more as one of e."""
    members = [
        Member("1", "a", "", frozenset({"task a", "said 1"})),
        Member("2", "b", "", frozenset({"task a", "said 2"})),
        Member("3", "c", "", frozenset({"task c", "said 3"})),
        Member("4", "d", "", frozenset({"task d", "said 4"})),
        Member("5", "e", "", frozenset({"task e", "said 4"})),
    ]
    assert divide(members, read_held_out(["a"])) == {"a", "b"}
    assert divide(members, read_held_out(["e"])) == {"d", "e"}
    assert divide(members, read_held_out(["c"])) == {"c"}
    with pytest.raises(HoustonError, match="tasks of equal content count as one"):
        divide(members[:2], read_held_out(["a"]))


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
        divide(TASKS, read_held_out(words))
