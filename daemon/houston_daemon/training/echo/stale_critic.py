"""Whether a critic's critiques help less than they once did: ECHO's staleness, as an alert.

Imports no torch.
"""

import itertools
import statistics
from collections.abc import Sequence

from houston_daemon.training.rl.update_figures import UpdateFigures

WINDOW = 5
"""Updates whose mean gain is compared: one update's is noise."""
LEAST_GAIN = 0.05
"""A mean gain below this was no help that could be lost."""
LEFT_SHARE = 0.5
"""Of its best mean gain, below which a critic has become stale."""


def critic_gains(updates: Sequence[UpdateFigures]) -> list[float]:
    """The mean gain of each update in which something was criticised."""
    return [
        update.critic.gain
        for update in updates
        if update.critic and update.critic.attempts > update.critic.full
    ]


def stale_critic(gains: Sequence[float]) -> str:
    """A sentence where the critic's mean gain over the last updates has just fallen below half of
    its best; empty otherwise. gains: of all updates so far."""
    means = [statistics.fmean(gains[end - WINDOW : end]) for end in range(WINDOW, len(gains) + 1)]
    stale = [
        best >= LEAST_GAIN and mean < LEFT_SHARE * best
        for mean, best in zip(means, itertools.accumulate(means, max), strict=True)
    ]
    if not stale or not stale[-1] or (len(stale) > 1 and stale[-2]):
        return ""
    return (
        f"the critic helps less than it did: its mean gain over {WINDOW} updates is"
        f" {means[-1]:+.2f}, and was {max(means):+.2f} at best"
    )
