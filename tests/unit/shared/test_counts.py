"""Counts have their noun, and names that are too many are counted."""

import pytest

from houston_shared.times_and_counts import join_first, pluralize

NAMES = {
    (): "",
    ("a",): "a",
    ("a", "b"): "a, b",
    ("a", "b", "c"): "a, b and 1 more",
    tuple("a" * 1_202): "a, a and 1,200 more",
}


@pytest.mark.parametrize("names", NAMES)
def test_the_first_names_are_told_and_the_others_counted(names: tuple[str, ...]) -> None:
    assert join_first(names, 2) == NAMES[names]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (1_000, "1,000 steps")]
)
def test_a_noun_follows_its_count(count: int, text: str) -> None:
    assert pluralize(count, "step") == text
