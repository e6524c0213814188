"""Rewards of finished rollouts, and the advantage of each within its group.

Group-relative advantages are GRPO's (arXiv 2402.03300, eq. 1; CLEANER, eq. 4). Dropping groups
whose rewards are all alike and the soft penalty for overlong answers are DAPO's (arXiv 2503.14476,
eqs. 11 and 13). Process rewards are compared within the group as well (process supervision:
arXiv 2402.03300, section 4.1.3). Pure functions: they read nothing.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from houston_shared.store.outcome_queries import Overlong

STD_EPSILON = 1e-4
"""Added to a group's standard deviation before it divides, as in TRL."""
MIN_REWARD_STD = 1e-3
"""A group whose rewards deviate less than this teaches nothing and is dropped, unless a recipe says
otherwise."""

RewardKind = Literal["binary", "score"]
"""`binary`: +1 for a solved task, else -1 (CLEANER, table 5). `score`: the score as a share."""
AdvantageScale = Literal["group", "none"]
"""Divide by the group's standard deviation (GRPO), or not at all (Dr. GRPO, arXiv 2503.20783)."""


@dataclass(frozen=True, slots=True)
class ScoredRollout:
    """A finished rollout as its reward needs it."""

    rollout: str
    score: float | None
    """Final score, 0 to 100; None where nothing scored it, which earns what 0 earns."""
    tokens: int
    """Tokens of its longest context, as the engine counted them."""
    overlong: Overlong | None = None
    """What a limit broke off for which it is left out of training; None where it is not."""


@dataclass(frozen=True, slots=True)
class OverlongPenalty:
    """The soft penalty for length: nothing up to `limit - margin` tokens, then linear to -1."""

    limit: int
    """Tokens from which the whole penalty holds; 0: none."""
    margin: int
    """Tokens before the limit over which the penalty grows."""

    def __call__(self, tokens: int) -> float:
        """The penalty, -1 to 0 (DAPO, eq. 13)."""
        if not self.limit or tokens <= self.limit - self.margin:
            return 0.0
        if tokens > self.limit:
            return -1.0
        return (self.limit - self.margin - tokens) / self.margin


NO_PENALTY = OverlongPenalty(0, 1)


def rollout_reward(
    rollout: ScoredRollout,
    kind: RewardKind = "binary",
    solved: float = 100.0,
    penalty: OverlongPenalty = NO_PENALTY,
) -> float:
    """What a rollout earned: its outcome, and the penalty for its length.

    solved: the least score that counts as solved, where the reward is binary.
    """
    score = rollout.score or 0.0
    outcome = (1.0 if score >= solved else -1.0) if kind == "binary" else score / 100
    return outcome + penalty(rollout.tokens)


OVERLONG_REASONS: Mapping[Overlong, str] = {
    "answer": "an answer was cut at its limit of tokens",
    "result": "a tool's result was too long for an observation and was cut",
    "budget": "its steps or its time were spent",
}
"""Why overlong filtering (DAPO, section 3.4) leaves a rollout out of training."""


def has_reward_spread(rewards: Sequence[float], min_std: float = MIN_REWARD_STD) -> bool:
    """Whether the rewards of a group differ, so that it teaches something. Never for one rollout.

    min_std: the smallest standard deviation that counts as a difference.

    A group is kept or dropped as a whole: its mean would change without one of its members.
    """
    return len(rewards) > 1 and statistics.stdev(rewards) >= min_std


def group_advantages(rewards: Sequence[float], scale: AdvantageScale = "group") -> list[float]:
    """(r - mean) / (std + 1e-4) for each member of a whole group; std is the sample's (n - 1)."""
    mean = statistics.fmean(rewards)
    if scale == "none" or len(rewards) < 2:
        return [reward - mean for reward in rewards]
    divisor = statistics.stdev(rewards) + STD_EPSILON
    return [(reward - mean) / divisor for reward in rewards]


def step_advantages(
    scores: Sequence[Mapping[int, float]], scale: AdvantageScale = "group"
) -> list[dict[int, float]]:
    """How much better each decision of a group was than the mean of all its decisions.

    scores: for each rollout, the process reward of each of its steps, 0 to 1. A decision gets only
    its own score, (r - mean) / (std + 1e-4) over all scores. A process reward already says what the
    decision itself was worth (AgentFlow-Pro), so later scores are not added up as in process
    supervision.
    """
    every = [score for steps in scores for score in steps.values()]
    advantages = iter(group_advantages(every, scale) if every else ())
    return [{step: next(advantages) for step in steps} for steps in scores]
