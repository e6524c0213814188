"""What a group's rollouts and their decisions are given, and which groups teach something."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from houston_daemon.training.credit.group_advantages import MIN_REWARD_STD, ScoredRollout
from houston_daemon.training.rl.dynamic_sampling import has_learning_signal
from houston_daemon.training.rl.group_credit import group_credits, require_plain_sampling
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rollout_groups import GroupOutcome, RolloutGroup
from houston_shared.errors import HoustonError
from tests.support.synthetic_rows import KEPT, MASKED, made


def outcome(
    finals: list[float], *steps: dict[int, float], tokens: Sequence[int] = ()
) -> GroupOutcome:
    """finals: scores of rollouts. steps: for each the process rewards of its steps. tokens: for
    each how many it has."""
    names = tuple(f"r{number}" for number in range(len(finals)))
    group = RolloutGroup(update=0, batch=0, split="train", index=0, policy="base", rollouts=names)
    members = tuple(
        ScoredRollout(name, final, length)
        for name, final, length in zip(names, finals, tokens or (10,) * len(names), strict=True)
    )
    return GroupOutcome(group, members, (), 0, steps)


def recipe(weight: float | None = None, **settings: Any) -> RlRecipe:
    """weight: of the process reward; None for a recipe without one."""
    if weight is None:
        return RlRecipe(**settings)
    return RlRecipe(process_reward="prm", process_weight=weight, **settings)


UNLIKE, ALIKE = [100.0, 0.0], [0.0, 0.0]
SPREAD, EVEN = ({1: 0.9}, {1: 0.1}), ({1: 0.4}, {1: 0.4})
NEARLY = ({1: 0.4}, {1: 0.4 + MIN_REWARD_STD / 2})


@pytest.mark.parametrize(
    ("finals", "steps", "weight", "kept"),
    [
        (UNLIKE, (), None, True),
        (ALIKE, (), None, False),
        (ALIKE, SPREAD, None, False),
        (ALIKE, SPREAD, 0.5, True),
        (ALIKE, EVEN, 0.5, False),
        (ALIKE, NEARLY, 0.5, False),
        (UNLIKE, EVEN, 0.5, True),
        (UNLIKE, EVEN, 1.0, False),
        (UNLIKE, SPREAD, 0.0, True),
        (ALIKE, SPREAD, 0.0, False),
    ],
)
def test_a_group_is_kept_where_what_weighs_something_differs(
    finals: list[float], steps: tuple[dict[int, float], ...], weight: float | None, kept: bool
) -> None:
    assert has_learning_signal(outcome(finals, *steps), recipe(weight)) is kept


@pytest.mark.parametrize(("least", "kept"), [(0.05, True), (0.6, False)])
def test_a_recipe_says_from_which_spread_a_group_teaches(least: float, kept: bool) -> None:
    """0.9 and 0.1 deviate by 0.57: above the noise of most models, not of any."""
    chosen = recipe(1.0, least_spread=least)
    assert has_learning_signal(outcome(ALIKE, *SPREAD), chosen) is kept


def test_decisions_are_held_against_all_decisions_of_the_group() -> None:
    """Rewards 1, 0.5, 0, 0.5: mean 0.5; without scale each is its distance from it."""
    group = outcome(UNLIKE, {1: 1.0, 2: 0.5}, {1: 0.0, 2: 0.5})
    first, second = group_credits(group, recipe(0.25, scale="none"))
    assert (first.advantage, second.advantage) == (1.0, -1.0), "rewards of +1 and -1"
    assert first.process.weight == second.process.weight == 0.25
    assert dict(first.process.advantages) == {1: 0.5, 2: 0.0}
    assert dict(second.process.advantages) == {1: -0.5, 2: 0.0}
    assert dict(first.process.rewards) == {1: 1.0, 2: 0.5}


@pytest.mark.parametrize("weight", [None, 0.0])
def test_what_weighs_nothing_leaves_the_outcome_alone(weight: float | None) -> None:
    first, _ = group_credits(outcome(UNLIKE, *SPREAD), recipe(weight))
    assert first.process.weight == 0.0


@pytest.mark.parametrize(("weight", "refused"), [(KEPT, True), (MASKED, False)])
def test_rendered_rows_are_not_trained(weight: float, refused: bool) -> None:
    """Of a rollout that ran without its thoughts."""
    row = replace(made(((5, weight),)), source="rendered", logprobs={})
    if not refused:
        return require_plain_sampling([row])
    with pytest.raises(HoustonError, match="are rendered") as refusal:
        require_plain_sampling([row])
    assert 'thoughts = "strip"' in refusal.value.next


NOISE = ({1: 0.50, 2: 0.52}, {1: 0.51, 2: 0.49})


@pytest.mark.parametrize(
    ("finals", "steps", "outcomes", "decisions"),
    [
        (UNLIKE, SPREAD, True, True),
        (UNLIKE, NOISE, True, False),
        (ALIKE, SPREAD, False, True),
    ],
)
def test_the_side_that_differs_by_noise_gives_no_advantage(
    finals: list[float], steps: tuple[dict[int, float], ...], outcomes: bool, decisions: bool
) -> None:
    group, mixed = outcome(finals, *steps), recipe(0.5, least_spread=0.1)
    assert has_learning_signal(group, mixed)
    for given in group_credits(group, mixed):
        assert (given.advantage != 0) is outcomes
        assert any(given.process.advantages.values()) is decisions


LONGER = (60, 95)
"""The second is within the margin of the penalty for length."""


@pytest.mark.parametrize("reward", ["binary", "score"])
def test_a_group_that_differs_by_length_alone_is_dropped(reward: str) -> None:
    shaped = recipe(overlong_limit=100, overlong_margin=40, reward=reward)
    assert not has_learning_signal(outcome(ALIKE, tokens=LONGER), shaped)
    assert not has_learning_signal(outcome([100.0, 100.0], tokens=LONGER), shaped)
    unlike = outcome(UNLIKE, tokens=LONGER)
    assert has_learning_signal(unlike, shaped)
    first, second = group_credits(unlike, shaped)
    assert second.reward == pytest.approx((-1 if reward == "binary" else 0) - 35 / 40), "shaped"
    assert first.advantage == pytest.approx(-second.advantage)


DRAWN: dict[str, tuple[dict[str, Any], str]] = {
    "as the policy says": ({"temperature": 1.0, "top_k": -1}, ""),
    "at another temperature": ({"temperature": 0.3}, "temperature = 0.3"),
    "at the server's own temperature": ({"top_p": 1.0}, "temperature = unknown"),
    "from the best tokens": ({"temperature": 1.0, "top_k": 20}, "top_k = 20"),
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_trained_was_drawn_as_the_policy_says(name: str) -> None:
    sampling, cause = DRAWN[name]
    row = made(((4, 1.0), (4, 0.0)))
    first, masked = row.spans
    require_plain_sampling([replace(row, spans=(first, replace(masked, sampling=sampling)))])
    bent = replace(row, spans=(replace(first, sampling=sampling), masked))
    if not cause:
        return require_plain_sampling([bent])
    with pytest.raises(HoustonError, match=cause):
        require_plain_sampling([bent])
