"""Rewards and advantages of a run's finished groups, for the export of its rows.

The same groups are kept as the trainer keeps them, and they are credited by the same functions.
Reads the run's folder and the home; a run may still be at work. Imports no torch.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from houston_daemon.training.credit.credited_rows import RolloutCredit
from houston_daemon.training.rl.dynamic_sampling import has_learning_signal
from houston_daemon.training.rl.group_credit import group_credits, process_weight, row_options
from houston_daemon.training.rl.process_rewards import ProcessRewards
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rl_run_folder import find_rl_run
from houston_daemon.training.rl.rollout_groups import (
    TRAIN_SPLIT,
    GroupFolder,
    RolloutGroup,
    read_outcomes,
)
from houston_daemon.training.rows.training_row import RowOptions
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.records import ENDED_STATES
from houston_shared.store import outcome_queries
from houston_shared.store.store_reader import Reader

NOTHING_EXPORTED = "Nothing was exported."
UNFINISHED = "have not ended"
UNSCORED = "have decisions that were not scored"
LOST = "have a rollout of which something was erased, archived or set aside"
FAILED = "have a rollout that failed"
ALIKE = "have rewards that are all alike"
_RECIPE_KEYS = (
    "reward", "solved", "process_reward", "process_weight", "scale", "overlong_filter",
    "overlong_limit", "overlong_margin", "normalization", "purify", "roles", "critic",
)  # fmt: skip


class RunCredits(NamedTuple):
    """What a run's kept groups are given."""

    credits: tuple[RolloutCredit, ...]
    """Of each rollout, group by group in the order of updates."""
    rows: RowOptions
    """How its rows are made."""
    facts: dict[str, Any]
    """For the manifest: the run, how it rewards, groups that are kept, and others by why not."""


def read_run_credits(home: Home, name: str) -> RunCredits:
    """name: of the run, as `find_rl_run` takes it. Raises HoustonError for what is no run, or has
    no group that teaches something."""
    folder = find_rl_run(home, name, NOTHING_EXPORTED)
    run = folder.path.name
    try:
        recipe = folder.spec.recipe
    except HoustonError as problem:
        raise HoustonError(
            problem.cause, NOTHING_EXPORTED, "houston train list", problem.code
        ) from None
    if recipe.purify_gate:
        raise HoustonError(
            f"The run {run} has purify_gate: its trainer chose the steps to train raw by its"
            " weights at that time, and that choice is not stored.",
            NOTHING_EXPORTED,
            "Export a run without purify_gate",
        )
    groups = [
        group
        for group in GroupFolder(folder.path / "groups").all()
        if group.split == TRAIN_SPLIT and bool(group.refines) == (recipe.critic != "none")
    ]
    scores = ProcessRewards(folder.process_rewards) if process_weight(recipe) else None
    credits, dropped = _credit_groups(home, groups, recipe, scores)
    if not credits:
        why = ", ".join(f"{count} {why}" for why, count in dropped.items()) or "it has started none"
        raise HoustonError(
            f"No group of the run {run} has anything to teach: {why}.",
            NOTHING_EXPORTED,
            f"houston train show {run}",
        )
    facts = {
        "run": run,
        "recipe": {key: getattr(recipe, key) for key in _RECIPE_KEYS},
        "groups": len({credit.group for credit in credits}),
        "updates": len({credit.update for credit in credits}),
        "dropped": dict(sorted(dropped.items())),
    }
    return RunCredits(tuple(credits), row_options(recipe), facts)


def _credit_groups(
    home: Home,
    groups: Sequence[RolloutGroup],
    recipe: RlRecipe,
    scores: ProcessRewards | None,
) -> tuple[list[RolloutCredit], Counter[str]]:
    """Credits of the groups that are kept, and how many others there are, by why."""
    dropped: Counter[str] = Counter()
    credits: list[RolloutCredit] = []
    with Reader(home) as reader:
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        rows = reader.run(outcome_queries.find_rollouts(rollouts))
        if missing := [rollout for rollout in rollouts if rollout not in rows]:
            raise HoustonError(
                f"Rollout {missing[0]} of this run is no longer in the home: its group's"
                " advantages cannot be computed.",
                NOTHING_EXPORTED,
            )
        ended = [
            group
            for group in groups
            if all(rows[rollout].state in ENDED_STATES for rollout in group.rollouts)
        ]
        outcomes = read_outcomes(reader, ended, rows, recipe.overlong_filter)
        if scores is not None:
            scored = [each for each in outcomes if not each.members or scores.has(each.group)]
            dropped[UNSCORED] = len(outcomes) - len(scored)
            outcomes = scores.add(reader, scored)
    dropped[UNFINISHED] = len(groups) - len(ended)
    for outcome in outcomes:
        if not outcome.members:
            dropped[LOST if outcome.lost else FAILED] += 1
        elif not has_learning_signal(outcome, recipe):
            dropped[ALIKE] += 1
        else:
            credits += group_credits(outcome, recipe)
    return credits, +dropped
