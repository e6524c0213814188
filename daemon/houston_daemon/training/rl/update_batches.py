"""What one update trains on: credited rows of the groups that dynamic sampling kept, as scored
passes of each minibatch.

Nothing is dropped for its age: a rollout that an older version sampled is trained with importance
weights, and counted as stale.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import torch

from houston_daemon.training.credit.policy_gradient_rows import (
    PolicyGradientRow,
    policy_gradient_row,
)
from houston_daemon.training.rl.dynamic_sampling import has_learning_signal, sample_groups
from houston_daemon.training.rl.group_credit import (
    RAW_OPTIONS,
    credit_rows,
    group_credits,
    group_rewards,
    row_options,
)
from houston_daemon.training.rl.policy_gradient_batches import (
    collate_pass,
    pack_passes,
    rollout_weights,
    split_by_rollout,
)
from houston_daemon.training.rl.policy_gradient_trainer import EngineGap, Pass
from houston_daemon.training.rl.process_rewards import ProcessRewards
from houston_daemon.training.rl.purification_gate import PurificationGate
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rollout_groups import (
    GroupCoordinator,
    GroupOutcome,
    RolloutGroup,
)
from houston_daemon.training.rl.update_figures import (
    CriticFigures,
    GateFigures,
    SamplingFigures,
)
from houston_daemon.training.rows.row_builder import build_token_rows
from houston_shared.config import LoadedConfiguration
from houston_shared.store.store_reader import Reader


class PassScorer(Protocol):
    """An adapter as it is, which says how likely tokens are."""

    def score(self, passes: Sequence[Pass], cap: float) -> EngineGap:
        """Add the log-probabilities that the loss needs."""


class RowScorer(PassScorer, Protocol):
    """The policy as it is (`PolicyGradientTrainer`)."""

    def logprobs(self, one_pass: Pass) -> torch.Tensor:
        """Those of one pass, (rows, completion tokens)."""


class UpdateBatch(NamedTuple):
    """One update, ready to be trained."""

    parts: list[list[Pass]]
    """The passes of each optimizer step; as many as the recipe has minibatches, empty where there
    were too few rollouts."""
    trained: int
    """Tokens that are trained."""
    figures: SamplingFigures
    gap: EngineGap
    gate: GateFigures
    sampling_seconds: float
    scoring_seconds: float
    critic: "CriticBatch | None" = None
    """What the critic is trained on in the same optimizer steps, where there is one."""


class CriticBatch(NamedTuple):
    """The critic's share of an update, and how its critiques went."""

    parts: list[list[Pass]]
    """As many as the policy's; empty for one that is not trained."""
    figures: CriticFigures


def make_update_batch(
    rows: Sequence[PolicyGradientRow],
    recipe: RlRecipe,
    scorer: RowScorer,
    pad: int,
    update: int,
    figures: SamplingFigures,
    gate: GateFigures,
    times: tuple[float, float],
) -> UpdateBatch:
    """The batch of an update of its rows, scored.

    pad: the id that fills rows up. times: when sampling began and ended, monotonic.
    """
    parts, gap = scored_parts(rows, recipe, scorer, pad, update)
    began, sampled = times
    return UpdateBatch(
        parts=parts,
        trained=sum(row.trained for row in rows),
        figures=figures,
        gap=gap,
        gate=gate,
        sampling_seconds=sampled - began,
        scoring_seconds=time.monotonic() - sampled,
    )


def scored_parts(
    rows: Sequence[PolicyGradientRow],
    recipe: RlRecipe,
    scorer: PassScorer,
    pad: int,
    update: int,
) -> tuple[list[list[Pass]], EngineGap]:
    """The scored passes of each optimizer step, and how far the engine is from the scorer."""
    parts = [
        _passes(part, recipe, pad) for part in split_by_rollout(rows, recipe.minibatches, update)
    ]
    gap = scorer.score([each for part in parts for each in part], recipe.importance_cap)
    return parts + [[] for _ in range(recipe.minibatches - len(parts))], gap


def _passes(rows: Sequence[PolicyGradientRow], recipe: RlRecipe, pad: int) -> list[Pass]:
    """The passes of one optimizer step."""
    weights = rollout_weights(rows, recipe.normalization)
    whole = torch.tensor(float(sum(row.trained for row in rows)))
    return [
        collate_pass(part, weights, pad) | {"num_items_in_batch": whole}
        for part in pack_passes(rows, recipe.pass_tokens)
    ]


class UpdateBatches:
    """Makes the batch of each update. Blocks until its rollouts have ended."""

    def __init__(
        self,
        loaded: LoadedConfiguration,
        recipe: RlRecipe,
        coordinator: GroupCoordinator,
        scorer: RowScorer,
        pad: int,
        process_rewards: ProcessRewards | None = None,
    ) -> None:
        """pad: the id that fills rows up. process_rewards: those of every decision; None: outcomes
        alone are rewarded."""
        self._loaded = loaded
        self._recipe = recipe
        self._coordinator = coordinator
        self._scorer = scorer
        self._pad = pad
        self._process_rewards = process_rewards
        self._row_options = row_options(recipe)
        self._raw_options = replace(RAW_OPTIONS, roles=self._row_options.roles)

    def begin(self, update: int, policy: str) -> list[RolloutGroup]:
        """Start the first groups of an update, unless they were."""
        tasks = self._coordinator.task_order(update)[: self._recipe.groups]
        return self._coordinator.begin(update, 0, tasks, policy)

    def make(self, update: int, policy: str) -> UpdateBatch:
        """Wait for the rollouts of an update and make its batch. Raises StopRequested."""
        began = time.monotonic()
        all_outcomes, kept_outcomes = self._sample(update, policy)
        return self._batch_of(
            all_outcomes, kept_outcomes, update, policy, (began, time.monotonic())
        )

    def _batch_of(
        self,
        all_outcomes: Sequence[GroupOutcome],
        kept_outcomes: Sequence[GroupOutcome],
        update: int,
        policy: str,
        times: tuple[float, float],
    ) -> UpdateBatch:
        """Of the groups of an update, those that are kept; times: as in `make_update_batch`."""
        gate = PurificationGate(self._recipe.purify_gate, self._logprobs)
        rows = [row for outcome in kept_outcomes for row in self._rows(outcome, gate)]
        return make_update_batch(
            rows,
            self._recipe,
            self._scorer,
            self._pad,
            update,
            figures=self._figures(all_outcomes, kept_outcomes, policy),
            gate=gate.figures,
            times=times,
        )

    def _sample(self, update: int, policy: str) -> tuple[list[GroupOutcome], list[GroupOutcome]]:
        """Every group of the update that ended, and those of them that teach something."""

        def ended_groups(round_number: int, tasks: Sequence[int]) -> list[GroupOutcome]:
            groups = self._coordinator.begin(update, round_number, tasks, policy)
            return self._score_decisions(self._coordinator.wait(groups))

        return sample_groups(
            self._coordinator.task_order(update),
            self._recipe,
            ended_groups,
            lambda outcome: has_learning_signal(outcome, self._recipe),
        )

    def _score_decisions(self, ended: list[GroupOutcome]) -> list[GroupOutcome]:
        """With the process reward of each decision, where the run has them."""
        if self._process_rewards is None:
            return ended
        with Reader(self._loaded.home) as reader:
            return self._process_rewards.add(reader, ended)

    def _rewards(self, outcome: GroupOutcome) -> list[float]:
        return group_rewards(outcome, self._recipe)

    def _rows(self, outcome: GroupOutcome, gate: PurificationGate) -> Iterator[PolicyGradientRow]:
        """Rows of all rollouts of a group that are trained."""
        with Reader(self._loaded.home) as reader:
            for credit in group_credits(outcome, self._recipe):
                rows = list(build_token_rows(reader, credit.rollout, self._row_options))
                if self._recipe.purify_gate and not credit.masked:
                    raw = build_token_rows(reader, credit.rollout, self._raw_options)
                    rows = gate.decide(rows, list(raw))
                for credited in credit_rows(rows, credit):
                    if (row := policy_gradient_row(credited)) is not None:
                        yield row

    def _logprobs(self, rows: Sequence[PolicyGradientRow]) -> list[list[float]]:
        """What the policy says of each row's completion, one pass for each."""
        return [
            self._scorer.logprobs(collate_pass([row], {row.rollout: 1.0}, self._pad))[0].tolist()
            for row in rows
        ]

    def _figures(
        self,
        all_outcomes: Sequence[GroupOutcome],
        kept_outcomes: Sequence[GroupOutcome],
        policy: str,
    ) -> SamplingFigures:
        members = [member for outcome in all_outcomes for member in outcome.members]
        rewards = [reward for outcome in all_outcomes for reward in self._rewards(outcome)]
        sound = [outcome for outcome in all_outcomes if outcome.members]
        purified = [counts for outcome in sound for counts in outcome.purification]
        worths = [worth for each in sound for steps in each.scores for worth in steps.values()]
        recovered: Counter[str] = Counter()
        for counts in purified:
            recovered.update({str(key): times for key, times in counts.recovered_at.items()})

        def mean(values: Iterable[float]) -> float:
            return sum(values) / max(len(members), 1)

        return SamplingFigures(
            groups=len(all_outcomes),
            zero_variance=len(sound) - len(kept_outcomes),
            failed=len(all_outcomes) - len(sound),
            rollouts=len(members),
            solved=mean((member.score or 0.0) >= self._recipe.solved for member in members),
            reward=mean(rewards),
            process_reward=sum(worths) / max(len(worths), 1),
            tool_failures=mean(counts.failures_before for counts in purified),
            tool_failures_kept=mean(counts.failures_after for counts in purified),
            purified_steps=mean(counts.purified for counts in purified),
            corrections=mean(counts.lookahead_samples for counts in purified),
            correction_seconds=sum(counts.lookahead_seconds for counts in purified),
            recovered_at=dict(recovered),
            steps=mean(outcome.steps for outcome in sound),
            tokens=mean(member.tokens for member in members),
            overlong=sum(member.overlong is not None for member in members),
            stale=sum(outcome.group.policy != policy for outcome in kept_outcomes)
            / max(len(kept_outcomes), 1),
        )
