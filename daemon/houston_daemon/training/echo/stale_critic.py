"""Whether a critic's critiques help less than they once did: ECHO's staleness, as an alert.

Imports no torch.
"""

import statistics
from collections.abc import Sequence

from houston_daemon.training.rl.update_figures import UpdateFigures

WINDOW = 5
"""Updates whose mean gain is compared: one update's is noise."""
LEAST_GAIN = 0.05
"""A mean gain below this was no help that could be lost."""
LEFT_SHARE = 0.5
"""Of its best mean gain, below which a critic has become stale."""


def stale_critic(updates: Sequence[UpdateFigures]) -> str:
    """A sentence where the critic's mean gain over the last updates has just fallen below half of
    its best; empty otherwise. Updates in which nothing was criticised say nothing."""
    gains = [
        update.critic.gain
        for update in updates
        if update.critic and update.critic.attempts > update.critic.full
    ]
    means = [statistics.fmean(gains[end - WINDOW : end]) for end in range(WINDOW, len(gains) + 1)]
    stale = [
        max(means[: place + 1]) >= LEAST_GAIN and mean < LEFT_SHARE * max(means[: place + 1])
        for place, mean in enumerate(means)
    ]
    if not stale or not stale[-1] or (len(stale) > 1 and stale[-2]):
        return ""
    return (
        f"the critic helps less than it did: its mean gain over {WINDOW} updates is"
        f" {means[-1]:+.2f}, and was {max(means):+.2f} at best"
    )
