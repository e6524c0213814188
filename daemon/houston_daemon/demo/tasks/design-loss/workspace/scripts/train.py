"""The training that your loss is used in; it is fixed, only the loss is yours.

Logistic regression by gradient descent over all examples. The gradient of the loss by `p` is taken
numerically, the rest follows by the chain rule.
"""

import json
import math
from pathlib import Path

from expression import Formula, formula

NAMES = ("p", "y", "share", "t")
"""Probability of the positive class, label, share of positives in the labels, progress 0 to 1."""
ROUNDS = 80
RATE = 4.0
MOST = 4.0
"""No example pulls harder than this."""
STEP = 1e-4
Rows = list[tuple[list[float], int]]


def read(file: Path) -> Rows:
    """Features and labels of a JSON Lines file."""
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [(row["x"], row["y"]) for row in found]


def loss(file: Path) -> Formula:
    """The submitted loss, tried at the edges. Raises ValueError with a sentence."""
    found = formula(file.read_text(encoding="utf-8"), NAMES)
    for p in (STEP, 0.01, 0.5, 0.99, 1 - STEP):
        for y in (0, 1):
            for t in (0.0, 1.0):
                found(p=p, y=y, share=0.1, t=t)
    return found


def probability(weights: list[float], x: list[float]) -> float:
    """Of the positive class; the last weight is the bias."""
    z = weights[-1] + sum(w * value for w, value in zip(weights, x, strict=False))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, z))))


def train(rows: Rows, value: Formula) -> list[float]:
    """Weights after all rounds."""
    share = sum(y for _, y in rows) / len(rows)
    weights = [0.0] * (len(rows[0][0]) + 1)
    for number in range(ROUNDS):
        pull = [0.0] * len(weights)
        known = {"share": share, "t": number / (ROUNDS - 1)}
        for x, y in rows:
            p = min(1 - 2 * STEP, max(2 * STEP, probability(weights, x)))
            rise = value(p=p + STEP, y=y, **known) - value(p=p - STEP, y=y, **known)
            slope = max(-MOST, min(MOST, rise / (2 * STEP) * p * (1 - p)))
            for index, part in enumerate((*x, 1.0)):
                pull[index] += slope * part
        weights = [w - RATE * g / len(rows) for w, g in zip(weights, pull, strict=True)]
    return weights


def balanced(weights: list[float], rows: Rows) -> float:
    """Mean of the shares of positives and of negatives that are found, 0 to 100."""
    right, count = [0, 0], [0, 0]
    for x, y in rows:
        count[y] += 1
        right[y] += (probability(weights, x) > 0.5) == (y == 1)
    return 50 * (right[0] / count[0] + right[1] / count[1])
