"""The data of one ECHO update: each task is attempted once, criticised several times, and attempted
again with each critique (sections 3.1 to 3.3).

The policy's group is the refinements of an attempt, rewarded by their scores. The critic's group is
its critiques, rewarded by their gains. An attempt with the full score is not criticised. Both
tracks train in the same optimizer steps, each on its own rows.
"""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from houston_daemon.review.critic.critique_prompt import FULL_SCORE
from houston_daemon.review.critic.refinements import RefinementText
from houston_daemon.training.credit.group_advantages import group_advantages, has_reward_spread
from houston_daemon.training.credit.policy_gradient_rows import (
    PolicyGradientRow,
    sampled_answer_row,
)
from houston_daemon.training.echo.sampled_critiques import CriticisedAttempt, CritiqueSampler
from houston_daemon.training.rl.dynamic_sampling import has_learning_signal, sample_groups
from houston_daemon.training.rl.engine_sampler import EngineSampler
from houston_daemon.training.rl.policy_gradient_trainer import NO_GAP, EngineGap, Pass
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rollout_groups import (
    GroupCoordinator,
    GroupOutcome,
    RolloutGroup,
)
from houston_daemon.training.rl.update_batches import (
    CriticBatch,
    PassScorer,
    RowScorer,
    UpdateBatch,
    UpdateBatches,
    scored_parts,
)
from houston_daemon.training.rl.update_figures import CriticFigures
from houston_shared.config import LoadedConfiguration
from houston_shared.critic_gain import critique_gain, unit_score
from houston_shared.store import outcome_queries
from houston_shared.store.store_reader import Reader


class CriticInUse(Protocol):
    """The critic as a batch needs it."""

    @property
    def name(self) -> str:
        """Policy that it samples with; `base` for the engine's own model, and the engine's name
        where it is one of its own."""

    @property
    def scorer(self) -> PassScorer | None:
        """Its adapter as it is; None where it is not trained."""


class RefinedAttempt(NamedTuple):
    """An attempt with its critiques, and how their refinements came out."""

    criticised: CriticisedAttempt
    refined: GroupOutcome

    @property
    def scores(self) -> list[float]:
        """Of the refinements, shares of the full one."""
        return [unit_score(member.score) for member in self.refined.members]

    def gains(self, recipe: RlRecipe) -> list[float]:
        """Of all critiques."""
        return self.criticised.gains([member.score for member in self.refined.members], recipe)


class Sampled(NamedTuple):
    """All that one update sampled."""

    attempts: list[GroupOutcome]
    criticised: list[CriticisedAttempt]
    refined: list[RefinedAttempt]
    seconds: dict[str, float]

    @property
    def usable(self) -> list[RefinedAttempt]:
        """Those of which no refinement failed."""
        return [each for each in self.refined if each.refined.members]


class EchoBatches(UpdateBatches):
    """Makes the batch of each update. See `UpdateBatches`."""

    def __init__(
        self,
        loaded: LoadedConfiguration,
        recipe: RlRecipe,
        coordinator: GroupCoordinator,
        scorer: RowScorer,
        pad: int,
        critic: CriticInUse,
        sampler: EngineSampler,
        folder: Path,
    ) -> None:
        """folder: where critiques are kept."""
        super().__init__(loaded, recipe, coordinator, scorer, pad)
        self._critic = critic
        self._critiques = CritiqueSampler(loaded, recipe, sampler, folder)

    def begin(self, update: int, policy: str) -> list[RolloutGroup]:
        """Start the first attempts of an update, unless they were."""
        tasks = self._coordinator.task_order(update)[: self._recipe.groups]
        return self._coordinator.begin(update, 0, tasks, policy, size=1)

    def make(self, update: int, policy: str) -> UpdateBatch:
        """Attempt, criticise, refine, and make the batches of both. Raises StopRequested."""
        began = time.monotonic()
        sampled, teaching = self._attempts(update, policy)
        times = (began, time.monotonic())
        all_outcomes = [each.refined for each in sampled.refined]
        kept_outcomes = [each.refined for each in teaching]
        batch = self._batch_of(all_outcomes, kept_outcomes, update, policy, times)
        began = time.monotonic()
        parts, gap = self._critic_parts(sampled, update)
        sampled.seconds["scoring"] = time.monotonic() - began
        trained = sum(int((each["tool_mask"] > 0).sum()) for part in parts for each in part)
        figures = self._critic_figures(sampled, trained, gap)
        return batch._replace(critic=CriticBatch(parts, figures))

    def _attempts(self, update: int, policy: str) -> tuple[Sampled, list[RefinedAttempt]]:
        """What the update sampled, with replacements where groups teach nothing, and those that
        teach something."""
        samples = Sampled([], [], [], dict.fromkeys(("attempts", "critiques", "refinements"), 0.0))

        def refined_attempts(round_number: int, tasks: Sequence[int]) -> list[RefinedAttempt]:
            before = len(samples.refined)
            self._add_batch(samples, update, round_number, tasks, policy)
            return samples.refined[before:]

        _, teaching = sample_groups(
            self._coordinator.task_order(update),
            self._recipe,
            refined_attempts,
            lambda attempt: has_learning_signal(attempt.refined, self._recipe),
        )
        return samples, teaching

    def _add_batch(
        self, samples: Sampled, update: int, batch: int, tasks: Sequence[int], policy: str
    ) -> None:
        """Attempts at some tasks, their critiques and refinements."""
        began = time.monotonic()
        groups = self._coordinator.begin(update, batch, tasks, policy, size=1)
        attempts = self._coordinator.wait(groups)
        samples.attempts.extend(attempts)
        short = {
            member.rollout: outcome.group
            for outcome in attempts
            for member in outcome.members
            if (member.score or 0.0) < FULL_SCORE
        }
        attempted = time.monotonic()
        criticised = self._critiques.criticise(f"{update}.{batch}", list(short), self._critic.name)
        samples.criticised.extend(criticised)
        critiqued_at = time.monotonic()
        # Of a kept critique's attempt something may have been erased since.
        refinable_attempts = [each for each in criticised if each.usable and each.rollout in short]
        refined = [self._refine(short[each.rollout], each) for each in refinable_attempts]
        samples.refined.extend(
            map(RefinedAttempt, refinable_attempts, self._coordinator.wait(refined))
        )
        for stage, seconds in (
            ("attempts", attempted - began),
            ("critiques", critiqued_at - attempted),
            ("refinements", time.monotonic() - critiqued_at),
        ):
            samples.seconds[stage] += seconds

    def _refine(self, attempt: RolloutGroup, criticised: CriticisedAttempt) -> RolloutGroup:
        critiques = [
            RefinementText(critique.text, criticised.critic) for critique in criticised.usable
        ]
        return self._coordinator.refine(attempt, critiques)

    def _critic_parts(self, sampled: Sampled, update: int) -> tuple[list[list[Pass]], EngineGap]:
        """The critic's passes of each optimizer step; none where it is not trained."""
        if self._critic.scorer is None:
            return [[] for _ in range(self._recipe.minibatches)], NO_GAP
        rows = [row for each in sampled.usable for row in critique_rows(each, self._recipe)]
        return scored_parts(rows, self._recipe, self._critic.scorer, self._pad, update)

    def _critic_figures(self, sampled: Sampled, trained: int, gap: EngineGap) -> CriticFigures:
        scores = [unit_score(member.score) for each in sampled.attempts for member in each.members]
        critiques = [critique for each in sampled.criticised for critique in each.critiques]
        pairs = [(each.criticised.score, after) for each in sampled.usable for after in each.scores]
        gains = [
            critique_gain(*pair, self._recipe.gain, self._recipe.gain_smoothing) for pair in pairs
        ]
        groups = [each.refined.group for each in sampled.refined]
        refinements = [rollout for group in groups for rollout in group.rollouts]
        with Reader(self._loaded.home) as reader:
            cached = reader.run(outcome_queries.cached_share(refinements))
        total = sum(each.asked_tokens for each in sampled.criticised)
        return CriticFigures(
            policy=self._critic.name,
            attempts=len(sampled.attempts),
            full=sum(score >= 1.0 for score in scores),
            failed=sum(not each.members for each in sampled.attempts)
            + len(sampled.refined)
            - len(sampled.usable),
            critiques=len(critiques),
            malformed=sum(bool(critique.problem) for critique in critiques),
            silent=sum(not critique.problem and not critique.text for critique in critiques),
            before=_mean(scores),
            before_refined=_mean([before for before, _ in pairs]),
            after=_mean([after for _, after in pairs]),
            gain=_mean(gains),
            improved=_mean([float(after > before) for before, after in pairs]),
            worsened=_mean([float(after < before) for before, after in pairs]),
            shortened=sum(each.level > 0 for each in sampled.criticised),
            trained_tokens=trained,
            gap_mean=gap.mean,
            gap_largest=gap.largest,
            cached_critiques=sum(each.cached_tokens for each in sampled.criticised) / max(total, 1),
            cached_refinements=cached,
            seconds={stage: round(value, 3) for stage, value in sampled.seconds.items()},
        )


def critique_rows(refined: RefinedAttempt, recipe: RlRecipe) -> list[PolicyGradientRow]:
    """One row for each critique of an attempt; its advantage compares its gain with the others. No
    rows where all gains are equal."""
    gains = refined.gains(recipe)
    if not has_reward_spread(gains, recipe.least_spread):
        return []
    criticised = refined.criticised
    rows = []
    for number, (critique, advantage) in enumerate(
        zip(criticised.critiques, group_advantages(gains, recipe.scale), strict=True)
    ):
        name = f"{criticised.rollout}/critique.{number}"
        if critique.token_ids:
            rows.append(
                sampled_answer_row(
                    name, criticised.prompt, critique.token_ids, critique.logprobs, advantage
                )
            )
    return rows


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else 0.0
