"""Whether a critic's critiques help less than they once did: ECHO's staleness, as an alert.

A trainer logs it, and whoever looks at the run is told. It reads nothing.
"""

from collections.abc import Sequence

WINDOW = 5
"""Updates whose mean gain is compared: one update's is noise."""
MIN_GAIN = 0.05
"""A mean gain below this was no help that could be lost."""
LEFT_SHARE = 0.5
"""Of its best mean gain, below which a critic has become stale."""


def staleness(gains: Sequence[float]) -> str:
    """The alert where the critic's mean gain over the last updates is below half of its best; empty
    otherwise. gains: of all updates so far in which something was criticised, in order.
    """
    means = [sum(gains[end - WINDOW : end]) / WINDOW for end in range(WINDOW, len(gains) + 1)]
    if not means or max(means) < MIN_GAIN or means[-1] >= LEFT_SHARE * max(means):
        return ""
    return (
        f"helps less than it did: its mean gain over {WINDOW} updates is"
        f" {means[-1]:+.2f}, and was {max(means):+.2f} at best"
    )
