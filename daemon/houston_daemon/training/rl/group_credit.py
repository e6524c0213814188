"""The credit of each rollout of a finished group, and its rows with that credit.

The trainer and the export of a run both use it, so the exported rows are the trained rows. Imports
no torch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from houston_daemon.engines.logprob_kind import non_neutral_sampling, settings_text
from houston_daemon.training.credit.credited_rows import (
    OUTCOME_ONLY,
    CreditedRow,
    ProcessCredit,
    RolloutCredit,
    credit_rollout,
)
from houston_daemon.training.credit.group_advantages import (
    OVERLONG_REASONS,
    OverlongPenalty,
    group_advantages,
    has_reward_spread,
    rollout_reward,
    step_advantages,
)
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rollout_groups import GroupOutcome
from houston_daemon.training.rows.training_row import RowOptions, TokenRow
from houston_shared.errors import HoustonError
from houston_shared.sample_roles import parse_row_roles

ROW_OPTIONS = RowOptions(masking=False, people_mask=True)
"""What was sampled is trained, good or bad: its advantage says which. A step that a person masked
is not: what earned the reward there may be no more than a gap of the task."""
RAW_OPTIONS = replace(ROW_OPTIONS, attempts="raw")
"""The same with what purification replaced."""


def row_options(recipe: RlRecipe) -> RowOptions:
    """How the rows of a run are made."""
    return replace(ROW_OPTIONS, roles=parse_row_roles(recipe.roles))


def group_rewards(outcome: GroupOutcome, recipe: RlRecipe) -> list[float]:
    """The reward of each member."""
    penalty = OverlongPenalty(recipe.overlong_limit, recipe.overlong_margin)
    return [
        rollout_reward(member, recipe.reward, recipe.solved, penalty) for member in outcome.members
    ]


def process_weight(recipe: RlRecipe) -> float:
    """Share of process rewards in an answer's credit; 0 where there are none."""
    return recipe.process_weight if recipe.process_reward else 0.0


def decisions_differ(outcome: GroupOutcome, recipe: RlRecipe) -> bool:
    """Whether decisions were rewarded unlike each other."""
    decisions = [score for steps in outcome.scores for score in steps.values()]
    return has_reward_spread(decisions, recipe.least_spread)


def outcomes_differ(outcome: GroupOutcome, recipe: RlRecipe) -> bool:
    """Whether the rewards of rollouts differ, apart from their length. DAPO's eq. 11 counts correct
    answers; a group in which all failed would only teach to be short."""
    rewards = [rollout_reward(each, recipe.reward, recipe.solved) for each in outcome.members]
    return has_reward_spread(rewards, recipe.least_spread)


def group_credits(outcome: GroupOutcome, recipe: RlRecipe) -> list[RolloutCredit]:
    """What each member is given; no advantage by outcomes, or by decisions, that hardly differ."""
    rewards = group_rewards(outcome, recipe)
    advantages = [0.0] * len(rewards)
    if outcomes_differ(outcome, recipe):
        advantages = group_advantages(rewards, recipe.scale)
    return [
        RolloutCredit(
            rollout=member.rollout,
            reward=reward,
            advantage=advantage,
            masked=OVERLONG_REASONS[member.overlong] if member.overlong else "",
            update=outcome.group.update,
            group=outcome.group.name,
            process=process,
        )
        for member, reward, advantage, process in zip(
            outcome.members,
            rewards,
            advantages,
            _process_credits(outcome, recipe),
            strict=True,
        )
    ]


def _process_credits(outcome: GroupOutcome, recipe: RlRecipe) -> list[ProcessCredit]:
    weight = process_weight(recipe)
    if not weight:
        return [OUTCOME_ONLY] * len(outcome.members)
    advantages: Sequence[Mapping[int, float]] = [{}] * len(outcome.members)
    if decisions_differ(outcome, recipe):
        advantages = step_advantages(outcome.scores, recipe.scale)
    return [ProcessCredit(weight, *pair) for pair in zip(outcome.scores, advantages, strict=True)]


def credit_rows(rows: Sequence[TokenRow], credit: RolloutCredit) -> Iterator[CreditedRow]:
    """All rows of a rollout with its credit. Raises HoustonError where it was not sampled
    plainly."""
    require_plain_sampling(rows)
    return credit_rollout(rows, credit)


def require_plain_sampling(rows: Sequence[TokenRow]) -> None:
    """Raise HoustonError for rollouts whose answers were not sampled from the policy's own
    distribution, or that differ in the rows from what was sampled."""
    for row in rows:
        if row.source == "rendered" and row.trained:
            raise HoustonError(
                f"Rows of rollout {row.rollout} are rendered: the policy would be trained on"
                " text that it did not write, or not in that context.",
                "Nothing was trained further.",
                'Leave thoughts = "strip" out of [sampling] of the task',
            )
        for span in row.spans:
            bent = non_neutral_sampling(span.sampling)
            if span.weight and (bent or span.guided):
                raise HoustonError(
                    f"Rollout {row.rollout} was sampled with {settings_text(bent) or 'a grammar'}:"
                    " the policy would be trained on answers that are not its own.",
                    "Nothing was trained further.",
                    "Set temperature = 1 and top_p = 1 in [sampling] of the task, and no grammar;"
                    " none of them in parameters or omit_parameters of the engine",
                )
