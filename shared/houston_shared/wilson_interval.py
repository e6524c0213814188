"""Wilson's score interval: how far a share that was counted may be from the true one.

A module of its own, since `statistics` takes milliseconds.
"""

import math
from statistics import NormalDist
from typing import NamedTuple


class ConfidenceInterval(NamedTuple):
    """An estimate with its bounds."""

    value: float | None
    """None where nothing was tried."""
    low: float
    high: float

    def as_json(self, digits: int | None = 4) -> dict[str, float | None]:
        """As JSON has it: what is not known is null there, since it has no NaN. digits: behind the
        point; None for all."""

        def known(value: float | None) -> float | None:
            if value is None or math.isnan(value):
                return None
            return value if digits is None else round(value, digits)

        return {name: known(value) for name, value in self._asdict().items()}


def wilson_interval(hits: float, trials: int, confidence: float = 0.95) -> ConfidenceInterval:
    """The share `hits / of` with its bounds, each 0 to 1 (Wilson 1927, eq. 6).

    hits: a trial may count as any mean from 0 to 1; the bounds are then somewhat too wide. Without
    any trial nothing is known: the bounds are 0 and 1.
    """
    if trials == 0:
        return ConfidenceInterval(None, 0.0, 1.0)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = hits / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = (
        z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials**2)) / (1 + z * z / trials)
    )
    return ConfidenceInterval(share, max(0.0, middle - half), min(1.0, middle + half))
