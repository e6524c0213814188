"""What a critique was worth: the gain of score from the attempt that it criticised to the one that
followed it (ECHO, eqs. 3 to 6).

A gain near the full score is harder to have and counts for more. Pure functions: they read nothing.
"""

import math
from typing import Literal

GAIN_SMOOTHING = 0.1
"""η of eq. 3: how soon a gain near the full score stops growing."""
GainKind = Literal["saturation", "linear"]
"""`saturation`: ECHO's. `linear`: the difference of scores, to compare with."""


def unit_score(score: float | None, max_score: float = 100.0) -> float:
    """A score as a share of the full one, 0 to 1; what is below 0, or was never given, is 0."""
    return min(1.0, max(0.0, (score or 0.0) / max_score))


def critique_gain(
    before: float,
    after: float,
    kind: GainKind = "saturation",
    smoothing: float = GAIN_SMOOTHING,
) -> float:
    """Gain of a critique by the scores before and after it, each 0 to 1.

    `saturation`: ln((1 - before + η) / (1 - after + η)), the integral of 1 / (1 - s + η). The gains
    of two steps add up, and the reverse step has the negative gain. Raises ValueError for a score
    outside 0 to 1, and for a smoothing that is not above 0, with which a full score would be worth
    infinity.
    """
    if not (0.0 <= before <= 1.0 and 0.0 <= after <= 1.0):
        raise ValueError(f"scores are shares of the full one, 0 to 1: {before}, {after}")
    if kind == "linear":
        return after - before
    if smoothing <= 0.0:
        raise ValueError(f"the smoothing of a gain is above 0: {smoothing}")
    return math.log((1.0 - before + smoothing) / (1.0 - after + smoothing))
