"""What a critique was worth: ECHO's equations 3 to 6, by hand and by their properties."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from houston_shared.critic_gain import critique_gain, unit_score

SHARES = st.floats(min_value=0.0, max_value=1.0)


def test_by_hand() -> None:
    """From 0.2 to 0.9 with η = 0.1: ln((0.8 + 0.1) / (0.1 + 0.1)) = ln 4.5."""
    assert critique_gain(0.2, 0.9) == pytest.approx(math.log(4.5))
    assert critique_gain(0.2, 0.9, "linear") == pytest.approx(0.7)
    assert critique_gain(0.0, 1.0) == pytest.approx(math.log(11.0)), "the most there is"


@given(SHARES, SHARES, SHARES)
def test_two_steps_gain_what_one_does_and_back_is_minus_forth(a: float, b: float, c: float) -> None:
    assert critique_gain(a, b) + critique_gain(b, c) == pytest.approx(critique_gain(a, c))
    assert critique_gain(a, b) == pytest.approx(-critique_gain(b, a))
    assert (critique_gain(a, b) > 0) == (b > a) or math.isclose(a, b)


def test_it_is_the_integral_of_the_difficulty() -> None:
    """Eq. 4: of 1 / (1 - s + η) from 0.1 to 0.95, by the trapezium rule."""
    points = [0.1 + 0.85 * at / 10_000 for at in range(10_001)]
    heights = [1 / (1 - point + 0.1) for point in points]
    area = sum((a + b) / 2 * 0.85 / 10_000 for a, b in itertools.pairwise(heights))
    assert critique_gain(0.1, 0.95) == pytest.approx(area, rel=1e-6)


def test_the_same_difference_is_worth_more_near_the_full_score() -> None:
    gains = [critique_gain(low / 20, (low + 1) / 20) for low in range(20)]
    assert gains == sorted(gains) and gains[-1] > 5 * gains[0]
    linear = {round(critique_gain(low / 20, (low + 1) / 20, "linear"), 9) for low in range(20)}
    assert linear == {0.05}, "the linear gain knows no such order"


@pytest.mark.parametrize(
    ("score", "share"), [(None, 0.0), (-20.0, 0.0), (0.0, 0.0), (40.0, 0.4), (130.0, 1.0)]
)
def test_scores_become_shares(score: float | None, share: float) -> None:
    assert unit_score(score) == share


@pytest.mark.parametrize("scores", [(-0.1, 0.5), (0.5, 1.1), (float("nan"), 0.5)])
def test_what_is_no_share_is_refused(scores: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="0 to 1"):
        critique_gain(*scores)
    with pytest.raises(ValueError, match="above 0"):
        critique_gain(0.5, 1.0, smoothing=0.0)
