"""Dynamic sampling: a group whose rewards are all alike is dropped whole, and another is sampled in
its place, up to a cap (DAPO, arXiv 2503.14476, eq. 11).

Groups are of rollouts of one task (`update_batches`), of refined attempts at one (`echo_batches`),
or of decisions in one recorded state (`decision_batches`). Imports no torch.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from houston_daemon.training.rl.group_credit import (
    decisions_differ,
    outcomes_differ,
    process_weight,
)
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rollout_groups import GroupOutcome

_Source = TypeVar("_Source")
_Group = TypeVar("_Group")


def sample_groups(
    sources: Iterable[_Source],
    recipe: RlRecipe,
    sample: Callable[[int, Sequence[_Source]], Sequence[_Group]],
    is_kept: Callable[[_Group], bool],
) -> tuple[list[_Group], list[_Group]]:
    """All groups that were sampled for one update, and those of them that are kept.

    At most `groups` of the recipe are kept; `refill` says how often dropped ones are replaced.

    sources: what groups are sampled from (tasks, or recorded states), in order. sample: at most one
    group of each source; its first argument is the number of the round, from 0.
    """
    remaining = iter(sources)
    every: list[_Group] = []
    kept_groups: list[_Group] = []
    for round_number in range(recipe.refill + 1):
        chosen = list(itertools.islice(remaining, recipe.groups - len(kept_groups)))
        if not chosen:
            break
        groups = sample(round_number, chosen)
        every += groups
        kept_groups += filter(is_kept, groups)
    return every, kept_groups


def has_learning_signal(outcome: GroupOutcome, recipe: RlRecipe) -> bool:
    """Whether a group is kept: the rewards of its rollouts differ, or with process rewards those of
    its decisions. Rewards without weight do not count."""
    weight = process_weight(recipe)
    return (weight > 0 and decisions_differ(outcome, recipe)) or (
        weight < 1 and outcomes_differ(outcome, recipe)
    )
