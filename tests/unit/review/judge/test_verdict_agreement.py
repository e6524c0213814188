"""Figures of agreement against values worked out by hand or taken from the literature."""

import pytest

from houston_daemon.review.judge.judge_calibration import VerdictAgreement, compare_verdicts
from houston_shared.wilson_interval import wilson_interval


def test_pairs_are_counted_by_what_both_say() -> None:
    pairs = [(True, True), (True, False), (True, False), (False, True), (False, False)]
    assert compare_verdicts(pairs) == VerdictAgreement(
        both=1, only_source=2, only_people=1, neither=1
    )
    assert compare_verdicts([]).steps == 0


def test_a_table_from_the_literature() -> None:
    """20, 5, 10, 15: the usual example of Cohen's kappa, 0.4 with an agreement of 0.7."""
    agreement = VerdictAgreement(20, 5, 10, 15)
    assert agreement.kappa == pytest.approx(0.4)
    assert agreement.agreed.value == pytest.approx(0.7)
    assert agreement.precision.value == pytest.approx(0.8)
    assert agreement.recall.value == pytest.approx(2 / 3)
    assert agreement.f1 == pytest.approx(40 / 55)
    assert agreement.few == ""


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
        (81, 263, 0.2553, 0.3662),
    ],
)
def test_wilsons_bounds(hits: int, of: int, low: float, high: float) -> None:
    """The last row is Newcombe's (1998), method 3."""
    interval = wilson_interval(hits, of)
    assert interval.low == pytest.approx(low, abs=1e-4)
    assert interval.high == pytest.approx(high, abs=1e-4)


def test_where_nothing_can_be_said_nothing_is_said() -> None:
    nothing = VerdictAgreement(0, 0, 0, 0)
    assert nothing.kappa is None and nothing.f1 is None and nothing.precision.value is None
    assert VerdictAgreement(0, 0, 0, 50).kappa is None, "both always keep: chance agrees as well"
    assert VerdictAgreement(0, 0, 12, 30).precision.value is None
    assert VerdictAgreement(0, 0, 12, 30).recall.value == 0.0


@pytest.mark.parametrize(
    ("agreement", "words"),
    [
        (VerdictAgreement(3, 1, 1, 5), "only 10 steps"),
        (VerdictAgreement(3, 1, 1, 95), "masked only 4"),
        (VerdictAgreement(20, 5, 10, 15), ""),
    ],
)
def test_too_little_is_said_to_be_too_little(agreement: VerdictAgreement, words: str) -> None:
    assert words in agreement.few and bool(words) == bool(agreement.few)
