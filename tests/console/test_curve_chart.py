"""Charts of curves: what stands where, at any width, and how many points are drawn."""

import pytest

from houston_console.widgets.curve_chart import (
    MIN_CHART_CELLS,
    average_points,
    chart_grid,
    chart_lines,
)
from houston_shared.training_figures import Curve

LOSS = Curve("loss", tuple((step, 4.0 - step / 50) for step in range(1, 101)), falls=True)
REWARD = Curve("reward", ((0, -0.5), (1, 0.5)), "update", False)


def test_a_chart_has_its_values_and_falls_from_left_to_right() -> None:
    title, top, *middle, bottom = chart_lines(LOSS, 40)
    assert title.strip() == "loss 3.98 → 2, step 1–100"
    assert top.startswith("   3.98 ")
    assert bottom.startswith("      2 ")
    assert all(len(row) == 40 for row in (title, top, *middle, bottom))
    assert [_is_drawn(row[cell]) for row in (top, bottom) for cell in (8, -1)] == [
        True, False, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("points", "title"),
    [
        pytest.param(((3, 0.25),), "solved 0.25 at update 3", id="one point"),
        pytest.param(((0, 1.0), (1, 1.0)), "solved 1 → 1, update 0–1", id="a flat curve"),
    ],
)
def test_what_has_no_extent_lies_in_the_middle(
    points: tuple[tuple[float, float], ...], title: str
) -> None:
    rows = chart_lines(Curve("solved", points, "update"), 40)
    assert rows[0].strip() == title
    assert any(_is_drawn(cell) for row in rows[2:4] for cell in row)
    assert not any(_is_drawn(cell) or cell.isdigit() for cell in rows[-1]), "no second label"


def _is_drawn(cell: str) -> bool:
    return ord(cell) > 0x2800


def test_many_points_are_averaged_and_the_last_one_stays() -> None:
    averaged = average_points(LOSS.points, 11)
    assert len(averaged) == 11
    assert averaged[-1] == LOSS.points[-1]
    assert averaged[0] == pytest.approx((5.0, 3.9))
    assert average_points(LOSS.points, 100) == list(LOSS.points)


@pytest.mark.parametrize("width", range(0, 120, 7))
def test_charts_stand_side_by_side_as_there_is_room(width: int) -> None:
    rows = chart_grid([LOSS, REWARD, LOSS, REWARD], width)
    assert all(len(row.text) <= max(0, width) for row in rows)
    if width >= 2 * MIN_CHART_CELLS + 2:
        assert sum(row.is_title for row in rows) == 2, "four charts in two rows"


def test_no_curve_is_no_chart() -> None:
    assert chart_grid([], 80) == []
