"""What one update trains on where decisions are rewarded alone: several at each recorded state,
scored by a process reward model, and nothing done in an environment (AgentFlow-Pro).

A state is to decisions what a task is to rollouts: its decisions are a group, and a group whose
rewards are all alike is dropped and replaced up to the same cap. What was sampled is kept in the
run's folder with its scores, so that a run that goes on after a kill trains on the same decisions.
"""

import asyncio
import itertools
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_daemon.engines.engine_protocol import Engine, EngineSample, EngineUnavailable
from houston_daemon.engines.engine_registry import choose_engine
from houston_daemon.engines.logprob_kind import true_logprob_kind
from houston_daemon.review.judge.judge_engine import JudgeEnginePlace
from houston_daemon.training.credit.group_advantages import group_advantages, has_reward_spread
from houston_daemon.training.credit.policy_gradient_rows import (
    RATIO_LOGPROB_KIND,
    PolicyGradientRow,
)
from houston_daemon.training.prm.recorded_decisions import (
    DecisionScorer,
    RecordedDecision,
    score_decisions,
)
from houston_daemon.training.rl.recorded_states import (
    RecordedState,
    StateKey,
    draw_states,
    read_state,
)
from houston_daemon.training.rl.rl_recipe import RlRecipe
from houston_daemon.training.rl.rollout_groups import RolloutGroup, StopRequested
from houston_daemon.training.rl.update_batches import RowScorer, UpdateBatch, make_update_batch
from houston_daemon.training.rl.update_figures import GateFigures, SamplingFigures
from houston_shared import atomic_file
from houston_shared.backoff import RetryPolicy
from houston_shared.config import LoadedConfiguration
from houston_shared.policy_and_run_files import policies_folder
from houston_shared.store import policy_queries
from houston_shared.store.store_reader import Reader

REQUESTS_AT_ONCE = 64
_RETRIES = RetryPolicy(first_wait=1.0, max_wait=30.0)
_STARTING_POLL_SECONDS = 0.2
_DAEMON_TELLS_SECONDS = 10.0


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


class SampledPolicy(NamedTuple):
    """With which policy an engine is asked."""

    name: str
    """Empty for the engine's own model."""
    hash: str
    settings: dict[str, Any]
    """Of the engine's client, so that it can load an adapter again."""


def read_sampled_policy(reader: Reader, name: str) -> SampledPolicy:
    """A policy that is active on the engine; `base` for the engine's own model."""
    policy = reader.run(policy_queries.find_policy(name))
    if policy is None or policy.kind == "base":
        return SampledPolicy("", "", {})
    folder = str(policies_folder(reader.home) / policy.folder)
    settings = {"adapters": {name: folder}, "adapter_hashes": {name: policy.hash}}
    return SampledPolicy(name, policy.hash, settings)


class DecisionSampler:
    """Asks the engine that is trained for decisions. Blocks."""

    def __init__(
        self,
        loaded: LoadedConfiguration,
        engine: str,
        stop: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> None:
        """stop: asked while the engine is away. tell: takes a line about that."""
        self._place = JudgeEnginePlace(loaded, engine, tell)
        self._stop = stop
        self._tell = tell

    def sample(
        self, states: Sequence[RecordedState], count: int, policy: SampledPolicy
    ) -> list[list[EngineSample]]:
        """`count` answers at each state. Raises StopRequested, and HoustonError where the engine
        refuses."""
        return asyncio.run(self._sample_all(states, count, policy))

    async def _sample_all(
        self, states: Sequence[RecordedState], count: int, policy: SampledPolicy
    ) -> list[list[EngineSample]]:
        url = await asyncio.to_thread(self._child_url) if self._place.child else ""
        settings = {**self._place.settings, **({"url": url} if url else {}), **policy.settings}
        engine = choose_engine(settings, None, self._place.name)
        turns = asyncio.Semaphore(REQUESTS_AT_ONCE)
        try:
            answers = await asyncio.gather(
                *(
                    self._sample_one(engine, turns, state, policy)
                    for state in states
                    for _ in range(count)
                )
            )
        finally:
            await engine.close()
        return [answers[start : start + count] for start in range(0, len(answers), count)]

    def _child_url(self) -> str:
        """Where the engine answers. The daemon brings it up when it is given a policy or its own
        model; what it tells of that may be a moment old, so silence is waited for, too."""
        patience = time.monotonic() + _DAEMON_TELLS_SECONDS
        while (state := self._place.daemon_state()) != "ready":
            if not state and time.monotonic() > patience:
                break  # a daemon that was started since does not watch it, but it may run
            if self._stop():
                raise StopRequested
            self._tell(f"engine {self._place.name}: {state or 'is being brought up'}")
            time.sleep(_STARTING_POLL_SECONDS)
        self._tell("")
        return self._place.url()

    async def _sample_one(
        self,
        engine: Engine,
        turns: asyncio.Semaphore,
        state: RecordedState,
        policy: SampledPolicy,
    ) -> EngineSample:
        request = state.request(policy.name, policy.hash, state.asked.role)
        async with turns:
            for tries in itertools.count(1):
                if self._stop():
                    raise StopRequested
                try:
                    return await engine.sample(request, asyncio.Event())
                except EngineUnavailable as problem:
                    self._tell(problem.cause)
                    await asyncio.sleep(_RETRIES.wait(tries))
        raise AssertionError("it is asked until it answers")


class DecisionBatches:
    """Makes the batch of each update. See `UpdateBatches`."""

    def __init__(
        self,
        loaded: LoadedConfiguration,
        recipe: RlRecipe,
        states: Sequence[StateKey],
        sampler: DecisionSampler,
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
        every, kept = self._sample(update, policy)
        sampled = time.monotonic()
        return make_update_batch(
            [row for group in kept for row in decision_rows(group, self._recipe)],
            self._recipe,
            self._scorer,
            self._pad,
            update,
            figures=_figures(every, kept),
            gate=GateFigures(),
            times=(began, sampled),
        )

    def _sample(self, update: int, policy: str) -> tuple[list[DecisionGroup], list[DecisionGroup]]:
        """Every group of the update, and those of them that teach something."""
        recipe = self._recipe
        count = recipe.groups * (recipe.refill + 1)
        order = iter(draw_states(self._states, recipe.seed, update, count))
        every: list[DecisionGroup] = []
        kept: list[DecisionGroup] = []
        for batch in range(recipe.refill + 1):
            keys = list(itertools.islice(order, recipe.groups - len(kept)))
            if not keys:
                break
            groups = self._groups(update, batch, keys, policy)
            every += groups
            kept += [
                group for group in groups if has_reward_spread(group.scores, recipe.least_spread)
            ]
        return every, kept

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
        sampled = self._sampler.sample(states, self._recipe.group_size, sampled_by)
        groups = self._scored(states, sampled)
        self._folder.mkdir(exist_ok=True)
        atomic_file.write_atomically(file, msgspec.json.encode(groups))
        return groups

    def _scored(
        self, states: Sequence[RecordedState], sampled: Sequence[Sequence[EngineSample]]
    ) -> list[DecisionGroup]:
        asked = [
            state.decision(answer)
            for state, answers in zip(states, sampled, strict=True)
            for answer in answers
        ]
        worth = iter(zip(asked, score_decisions(self._judge, asked), strict=True))
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
    kind = true_logprob_kind(answer.logprob_kind, answer.parameters)
    drawn = kind == RATIO_LOGPROB_KIND and answer.logprobs is not None
    return SampledDecision(
        token_ids=list(answer.token_ids or ()),
        logprobs=list(answer.logprobs or ()) if drawn else None,
        finished=answer.finish_reason == "stop",
        sound=decision.sound,
        score=score,
    )


def decision_rows(group: DecisionGroup, recipe: RlRecipe) -> list[PolicyGradientRow]:
    """A row for each decision that is trained, with its advantage among those of its state."""
    rows = []
    advantages = group_advantages(group.scores, recipe.scale)
    for number, (decision, advantage) in enumerate(zip(group.decisions, advantages, strict=True)):
        count = len(decision.token_ids)
        if not count or (not decision.finished and "answer" in recipe.overlong_filter):
            continue
        name = f"{group.rollout}/{group.step}.{number}"
        rows.append(
            PolicyGradientRow(
                id=name,
                rollout=name,
                prompt=group.prompt,
                completion=decision.token_ids,
                mask=[1] * count,
                advantages=[advantage] * count,
                sampled_logprobs=decision.logprobs or [math.nan] * count,
            )
        )
    return rows


def _figures(every: Sequence[DecisionGroup], kept: Sequence[DecisionGroup]) -> SamplingFigures:
    """How the decisions of one update went; a rollout of the figures is one decision here."""
    decisions = [decision for group in every for decision in group.decisions]
    count = max(len(decisions), 1)
    worth = sum(decision.score for decision in decisions) / count
    failed = sum(not decision.sound for decision in decisions) / count
    return SamplingFigures(
        groups=len(every),
        zero_variance=len(every) - len(kept),
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
            for group in every
            for decision in group.decisions
        )
        / count,
        overlong=sum(not decision.finished for decision in decisions),
        stale=0.0,
    )
