"""Lines of unfolded and folded rows: the tree of heights agrees with plain sums, always."""

from hypothesis import given
from hypothesis import strategies as st

from houston_console.transcript.transcript_layout import FenwickTree, FoldState

changes = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 50)), max_size=60)


@given(st.integers(0, 40), changes, st.integers(0, 30))
def test_a_line_belongs_to_the_row_that_plain_sums_say(
    count: int, sets: list[tuple[int, int]], appended: int
) -> None:
    tree, plain = FenwickTree([1] * count), [1] * count
    for row, height in sets[: len(sets) // 2]:
        if row < len(plain):
            assert tree.set(row, height) == height - plain[row]
            plain[row] = height
    for height in range(1, appended + 1):
        tree.append(height)
        plain.append(height)
    for row, height in sets[len(sets) // 2 :]:
        if row < len(plain):
            tree.set(row, height)
            plain[row] = height
    assert tree.total == sum(plain)
    expected = [(row, offset) for row, height in enumerate(plain) for offset in range(height)]
    assert [tree.find(line) for line in range(tree.total)] == expected
    assert [tree.before(row) for row in range(len(plain))] == [
        sum(plain[:row]) for row in range(len(plain))
    ]


def test_a_line_past_the_end_is_the_last_line() -> None:
    tree = FenwickTree([1] * 3)
    tree.set(2, 5)
    assert tree.find(99) == (2, 4)
    assert FenwickTree().find(0) == (0, 0)


def test_unfolding_folding_and_growing_keep_the_count_of_lines() -> None:
    folds = FoldState(10)
    folds.set_open(4, True)
    assert folds.total == 10  # not laid out yet
    assert folds.set_height(4, 7) == 6
    assert (folds.total, folds.top(5), folds.at(4)) == (16, 11, (4, 0))
    folds.set_all(True)
    assert folds.is_open(0)
    folds.grow(12)
    assert folds.is_open(11)
    folds.set_open(4, False)
    folds.set_all(False)
    assert (folds.total, folds.set_height(3, 9)) == (12, 0)  # folded rows stay one line
