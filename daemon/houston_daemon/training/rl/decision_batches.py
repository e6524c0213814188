"""What one update trains on when single decisions are rewarded: several are sampled at each
recorded state and scored by a process reward model; no environment runs (AgentFlow-Pro).

A state takes the place of a task: its decisions are a group, and a group whose rewards are all
equal is dropped and replaced up to the same cap. Sampled decisions are stored with their scores in
the run's folder, so that a run that resumes after a kill trains on the same decisions.
"""

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from houston_daemon.engines.engine_protocol import EngineSample
from houston_daemon.training.credit.group_advantages import group_advantages, has_reward_spread
from houston_daemon.training.credit.policy_gradient_rows import (
    PolicyGradientRow,
    sampled_answer_row,
)
from houston_daemon.training.prm.recorded_decisions import (
    DecisionScorer,
    RecordedDecision,
    score_decisions,
)
from houston_daemon.training.rl.dynamic_sampling import sample_groups
from houston_daemon.training.rl.engine_sampler import (
    EngineSampler,
    drawn_logprobs,
    read_sampled_policy,
)
from houston_daemon.training.rl.recorded_states import (
    RecordedState,
    StateKey,
    draw_states,
    read_state,
)
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rollout_groups import RolloutGroup
from houston_daemon.training.rl.update_batches import RowScorer, UpdateBatch, make_update_batch
from houston_daemon.training.rl.update_figures import GateFigures, SamplingFigures
from houston_shared import atomic_file
from houston_shared.config import LoadedConfiguration
from houston_shared.store.store_reader import Reader


class SampledDecision(msgspec.Struct, frozen=True):
    """A decision as it was sampled at a state, and what it is worth."""

    token_ids: list[int]
    logprobs: list[float] | None
    """As the engine drew them; None where it says something else."""
    finished: bool
    """Whether it ended by itself; one that was cut at its limit is not trained where the recipe
    filters overlong answers."""
    sound: bool
    """Whether it is an action at all."""
    score: float


class DecisionGroup(msgspec.Struct, frozen=True):
    """The decisions of one state."""

    rollout: str
    step: int
    prompt: list[int]
    decisions: tuple[SampledDecision, ...]

    @property
    def scores(self) -> list[float]:
        """The reward of each."""
        return [decision.score for decision in self.decisions]


class DecisionBatches:
    """Makes the batch of each update. See `UpdateBatches`."""

    def __init__(
        self,
        loaded: LoadedConfiguration,
        recipe: RlRecipe,
        states: Sequence[StateKey],
        sampler: EngineSampler,
        judge: DecisionScorer,
        scorer: RowScorer,
        pad: int,
        folder: Path,
    ) -> None:
        """judge: the process reward model. folder: where decisions are kept."""
        self._loaded = loaded
        self._recipe = recipe
        self._states = states
        self._sampler = sampler
        self._judge = judge
        self._scorer = scorer
        self._pad = pad
        self._folder = folder

    def begin(self, update: int, policy: str) -> list[RolloutGroup]:
        """Nothing: decisions are sampled when their update is made."""
        return []

    def make(self, update: int, policy: str) -> UpdateBatch:
        """Sample and score decisions, and make the batch of them. Raises StopRequested."""
        began = time.monotonic()
        all_groups, kept_groups = self._sample(update, policy)
        sampled = time.monotonic()
        return make_update_batch(
            [row for group in kept_groups for row in decision_rows(group, self._recipe)],
            self._recipe,
            self._scorer,
            self._pad,
            update,
            figures=_figures(all_groups, kept_groups, "answer" in self._recipe.overlong_filter),
            gate=GateFigures(),
            times=(began, sampled),
        )

    def _sample(self, update: int, policy: str) -> tuple[list[DecisionGroup], list[DecisionGroup]]:
        """Every group of the update, and those of them that teach something."""
        recipe = self._recipe
        return sample_groups(
            draw_states(self._states, recipe.seed, update, recipe.max_groups),
            recipe,
            lambda round_number, keys: self._groups(update, round_number, keys, policy),
            lambda group: has_reward_spread(group.scores, recipe.least_spread),
        )

    def _groups(
        self, update: int, batch: int, keys: Sequence[StateKey], policy: str
    ) -> list[DecisionGroup]:
        """The decisions of some states; those that were sampled before are read."""
        file = self._folder / f"{update}.{batch}.json"
        if file.is_file():
            return msgspec.json.decode(file.read_bytes(), type=list[DecisionGroup])
        with Reader(self._loaded.home) as reader:
            states = [read_state(reader, key) for key in keys]
            sampled_by = read_sampled_policy(reader, policy)
        each = range(self._recipe.group_size)
        requests = [
            state.request(sampled_by.name, sampled_by.hash, state.asked.role)
            for state in states
            for _ in each
        ]
        sampled = iter(self._sampler.sample(sampled_by, lambda client: requests))
        groups = self._score_groups(states, [[next(sampled) for _ in each] for _ in states])
        self._folder.mkdir(exist_ok=True)
        atomic_file.write_atomically(file, msgspec.json.encode(groups))
        return groups

    def _score_groups(
        self, states: Sequence[RecordedState], sampled: Sequence[Sequence[EngineSample]]
    ) -> list[DecisionGroup]:
        decisions = [
            state.decision(answer)
            for state, answers in zip(states, sampled, strict=True)
            for answer in answers
        ]
        worth = iter(zip(decisions, score_decisions(self._judge, decisions), strict=True))
        return [
            DecisionGroup(
                state.key.rollout,
                state.key.step,
                state.prompt,
                tuple(_sampled_decision(answer, *next(worth)) for answer in answers),
            )
            for state, answers in zip(states, sampled, strict=True)
        ]


def _sampled_decision(
    answer: EngineSample, decision: RecordedDecision, score: float
) -> SampledDecision:
    return SampledDecision(
        token_ids=list(answer.token_ids or ()),
        logprobs=drawn_logprobs(answer),
        finished=answer.finish_reason == "stop",
        sound=decision.sound,
        score=score,
    )


def decision_rows(group: DecisionGroup, recipe: RlRecipe) -> list[PolicyGradientRow]:
    """A row for each decision that is trained, with its advantage among those of its state."""
    rows = []
    advantages = group_advantages(group.scores, recipe.scale)
    for number, (decision, advantage) in enumerate(zip(group.decisions, advantages, strict=True)):
        if not decision.token_ids or (not decision.finished and "answer" in recipe.overlong_filter):
            continue
        name = f"{group.rollout}/{group.step}.{number}"
        ids, logprobs = decision.token_ids, decision.logprobs
        rows.append(sampled_answer_row(name, group.prompt, ids, logprobs, advantage))
    return rows


def _figures(
    all_groups: Sequence[DecisionGroup], kept_groups: Sequence[DecisionGroup], filters_cut: bool
) -> SamplingFigures:
    """How the decisions of one update went; a rollout of the figures is one decision here."""
    decisions = [decision for group in all_groups for decision in group.decisions]
    count = max(len(decisions), 1)
    worth = sum(decision.score for decision in decisions) / count
    failed = sum(not decision.sound for decision in decisions) / count
    return SamplingFigures(
        groups=len(all_groups),
        zero_variance=len(all_groups) - len(kept_groups),
        failed=0,
        rollouts=len(decisions),
        solved=0.0,
        reward=worth,
        process_reward=worth,
        tool_failures=failed,
        tool_failures_kept=failed,
        purified_steps=0.0,
        corrections=0.0,
        correction_seconds=0.0,
        recovered_at={},
        steps=1.0,
        tokens=sum(
            len(group.prompt) + len(decision.token_ids)
            for group in all_groups
            for decision in group.decisions
        )
        / count,
        overlong=sum(not decision.finished for decision in decisions) if filters_cut else 0,
        stale=0.0,
    )
