"""Rewards and advantages: against values worked out by hand, and against TRL's arithmetic."""

import pytest
import torch

from houston_daemon.training.credit.group_advantages import (
    OverlongPenalty,
    ScoredRollout,
    group_advantages,
    has_reward_spread,
    rollout_reward,
    step_advantages,
)


def scored(score: float | None, tokens: int = 100) -> ScoredRollout:
    return ScoredRollout("r", score, tokens)


def test_advantages_by_hand() -> None:
    """Rewards 1, -1, -1, -1: mean -0.5, deviations 1.5 and -0.5, sum of squares 3, std 1."""
    assert group_advantages([1.0, -1.0, -1.0, -1.0]) == pytest.approx(
        [1.5 / 1.0001, -0.5 / 1.0001, -0.5 / 1.0001, -0.5 / 1.0001]
    )
    assert group_advantages([1.0, -1.0, -1.0, -1.0], "none") == [1.5, -0.5, -0.5, -0.5]


@pytest.mark.parametrize(
    "rewards", [[1.0, 0.0], [0.2, 0.9, 0.4], [1.0, -1.0, -1.3, 0.5, 0.5, -0.25]]
)
def test_advantages_are_those_of_trl(rewards: list[float]) -> None:
    values = torch.tensor(rewards)
    wanted = (values - values.mean()) / (values.std() + 1e-4)
    assert group_advantages(rewards) == pytest.approx(wanted.tolist(), abs=1e-6)
    assert sum(group_advantages(rewards)) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("rewards", "kept"),
    [
        ([1.0, 1.0, 1.0], False),
        ([-1.0, -1.0], False),
        ([1.0, -1.0, 1.0], True),
        ([0.5, 0.5005], False),
        ([0.5, 0.503], True),
        ([1.0], False),
        ([], False),
    ],
)
def test_a_group_counts_whole_or_not_at_all(rewards: list[float], kept: bool) -> None:
    assert has_reward_spread(rewards) is kept


@pytest.mark.parametrize(
    ("tokens", "penalty"),
    [(0, 0.0), (80, 0.0), (85, -0.25), (90, -0.5), (100, -1.0), (101, -1.0), (5000, -1.0)],
)
def test_the_penalty_for_length_grows_over_its_margin(tokens: int, penalty: float) -> None:
    assert OverlongPenalty(100, 20)(tokens) == pytest.approx(penalty)
    assert OverlongPenalty(0, 20)(tokens) == 0.0


@pytest.mark.parametrize(
    ("score", "kind", "solved", "reward"),
    [
        (100.0, "binary", 100.0, 1.0),
        (99.9, "binary", 100.0, -1.0),
        (60.0, "binary", 50.0, 1.0),
        (None, "binary", 100.0, -1.0),
        (60.0, "score", 100.0, 0.6),
        (None, "score", 100.0, 0.0),
    ],
)
def test_rewards(score: float | None, kind: str, solved: float, reward: float) -> None:
    assert rollout_reward(scored(score), kind, solved) == pytest.approx(reward)  # type: ignore[arg-type]


def test_the_penalty_is_part_of_the_reward() -> None:
    penalty = OverlongPenalty(100, 20)
    assert rollout_reward(scored(100.0, 90), "binary", penalty=penalty) == pytest.approx(0.5)


def test_a_decision_is_compared_with_all_decisions_of_its_group() -> None:
    """Scores 1, 0, 0.5, 0.5: mean 0.5, sum of squares 0.5, std (0.5 / 3) ** 0.5 = 0.408248."""
    std = 0.408248 + 1e-4
    given = step_advantages([{1: 1.0, 2: 0.0}, {1: 0.5, 3: 0.5}])
    assert given == [
        {1: pytest.approx(0.5 / std), 2: pytest.approx(-0.5 / std)},
        {1: pytest.approx(0.0), 3: pytest.approx(0.0)},
    ]
    assert step_advantages([{1: 1.0}, {}], "none") == [{1: 0.0}, {}]
    assert step_advantages([{}, {}]) == [{}, {}]
