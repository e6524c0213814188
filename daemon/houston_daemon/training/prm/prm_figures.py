"""How well scores agree with labels: error, order, and calibration. Pure functions."""

import statistics
from collections.abc import Sequence

import msgspec

BINS = 10
"""Of the calibration, each a tenth of the scale wide."""


class CalibrationBin(msgspec.Struct, frozen=True):
    """Decisions whose scores lie in one tenth of the scale."""

    low: float
    high: float
    count: int
    score: float
    """Mean of what the model said; 0 where the bin is empty."""
    label: float
    """Mean of what they are worth."""


class AgreementFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Scores against labels."""

    labels: int
    mae: float
    """Mean absolute error."""
    mean_predictor_mae: float
    """The same of a predictor that always says the mean of the trained labels."""
    rank_correlation: float | None
    """Spearman's, ties at their mean rank; None where scores or labels are all alike."""
    calibration: list[CalibrationBin]


def agreement(
    scores: Sequence[float], labels: Sequence[float], trained_mean: float
) -> AgreementFigures:
    """How scores agree with the labels of the same decisions. trained_mean: of trained labels."""
    count = max(len(labels), 1)
    return AgreementFigures(
        labels=len(labels),
        mae=sum(abs(a - b) for a, b in zip(scores, labels, strict=True)) / count,
        mean_predictor_mae=sum(abs(trained_mean - label) for label in labels) / count,
        rank_correlation=rank_correlation(scores, labels),
        calibration=calibration(scores, labels),
    )


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's rank correlation, ties at their mean rank; None where one side is all alike."""
    if len(set(one)) < 2 or len(set(other)) < 2:
        return None
    return statistics.correlation(_ranks(one), _ranks(other))


def roc_auc(better: Sequence[float], worse: Sequence[float]) -> float | None:
    """Share of pairs whose better one has the higher score, ties as one half: the area under the
    ROC curve. None where one side is empty."""
    if not better or not worse:
        return None
    ranks = _ranks([*better, *worse])
    above = sum(ranks[: len(better)]) - len(better) * (len(better) + 1) / 2
    return above / (len(better) * len(worse))


def calibration(scores: Sequence[float], labels: Sequence[float]) -> list[CalibrationBin]:
    """Scores by tenths of the scale, with what they should have been."""
    bins = []
    for number in range(BINS):
        inside = [
            (score, label)
            for score, label in zip(scores, labels, strict=True)
            if min(int(score * BINS), BINS - 1) == number
        ]
        bin_scores = [score for score, _ in inside]
        worth = [label for _, label in inside]
        bins.append(
            CalibrationBin(
                low=number / BINS,
                high=(number + 1) / BINS,
                count=len(inside),
                score=statistics.fmean(bin_scores) if bin_scores else 0.0,
                label=statistics.fmean(worth) if worth else 0.0,
            )
        )
    return bins


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for place in order[start:end]:
            ranks[place] = (start + 1 + end) / 2
        start = end
    return ranks
