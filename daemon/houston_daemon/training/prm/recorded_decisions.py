"""Recorded decisions of rollouts as a process reward model reads them: the same for labels,
training, rewards and live scores.

`prompts.decision_text` writes the texts. What is no action scores 0. It imports no torch.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from houston_daemon.prompts.decision_text import (
    EARLIER_DECISIONS,
    Decision,
    decision_of,
    decision_text,
)
from houston_shared.store import removed_data_queries, rollout_queries, step_queries
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.store_reader import Reader

MAX_CACHED_ROLLOUTS = 256
"""Rollouts whose last decisions are kept in memory, so that only new steps are read."""


class DecisionScorer(Protocol):
    """A process reward model in memory (`prm_scorer.ProcessRewardScorer`)."""

    def score(self, texts: Sequence[str]) -> list[float]:
        """The worth of each decision, 0 to 1."""


class RecordedDecision(msgspec.Struct, frozen=True):
    """A decision of a rollout as it is scored."""

    step: int
    text: str
    sound: bool
    """Whether it is an action at all; what is none earns nothing."""
    attempt: int = 1
    inherited: bool = False
    """Whether another rollout decided it, of which this one is a branch."""


def score_decisions(scorer: DecisionScorer, decisions: Sequence[RecordedDecision]) -> list[float]:
    """The process reward of each decision, 0 to 1; of what is no action 0, whatever a model says
    (AgentFlow-Pro)."""
    sound = [decision.text for decision in decisions if decision.sound]
    scores = iter(scorer.score(sound) if sound else ())
    return [next(scores) if decision.sound else 0.0 for decision in decisions]


def rollout_decisions(reader: Reader, rollout: str) -> list[RecordedDecision]:
    """Every closed step's decision of a rollout, in order; none where texts of it are gone."""
    rows = reader.run(step_queries.list_step_rows(rollout))
    closed = [row.step for row in rows if row.observation_seq is not None]
    return DecisionReader(reader).read(rollout, closed) if closed else []


class DecisionHistory:
    """The decisions of one rollout up to a step, the newest with all their words."""

    def __init__(self, question: str) -> None:
        """question: the task as the agent was given it."""
        self.question = question
        self.last = 0
        """The last step that is in it."""
        self._decisions: list[Decision] = []

    def add(self, step: int, decision: Decision) -> str:
        """The text of the decision at a step, which comes into the history with it."""
        text = decision_text(self.question, self._decisions, decision)
        self._decisions.append(decision)
        if len(self._decisions) > EARLIER_DECISIONS:  # only counted from now on
            self._decisions[-EARLIER_DECISIONS - 1] = _COUNTED
        self.last = step
        return text

    def count(self, steps: int) -> None:
        """Steps before the first that is told."""
        self._decisions = [_COUNTED] * steps


_COUNTED = Decision("", "", "")


class DecisionReader:
    """Reads decisions of steps as texts."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._histories: dict[str, DecisionHistory] = {}

    def read(self, rollout: str, steps: Sequence[int]) -> list[RecordedDecision]:
        """The decisions at some closed steps, in order.

        steps: in order, at least one. None at all where something of the rollout is gone. Raises
        HoustonError where the journal cannot be read.
        """
        history = self._histories.pop(rollout, None)
        if self._reader.run(removed_data_queries.find_missing_data(rollout)) is not None:
            return []
        if history is None or history.last != steps[0] - 1:
            history = self._reader.run(_begin_history(rollout, steps[0]))
        wanted_steps, decisions = set(steps), []
        for record in self._reader.run(
            step_queries.read_steps(rollout, history.last + 1, steps[-1])
        ):
            if record.observation is None:
                break
            decision = decision_of(record)
            text = history.add(record.step, decision)
            if record.step in wanted_steps:
                decisions.append(
                    RecordedDecision(
                        record.step, text, decision.sound, record.attempt, bool(record.inherited)
                    )
                )
        self._histories[rollout] = history
        if len(self._histories) > MAX_CACHED_ROLLOUTS:
            del self._histories[next(iter(self._histories))]
        return decisions


def _begin_history(rollout: str, step: int) -> ReadPlan[DecisionHistory]:
    """The history of a rollout before so many steps ahead of `step` as are told."""
    row = yield from rollout_queries.find_rollout(rollout)
    head = yield from rollout_queries.read_rollout_head(row)
    history = DecisionHistory(head.task if head else "")
    rows = yield from step_queries.list_step_rows(rollout, 1, step - 1)
    closed = [row.step for row in rows if row.observation_seq is not None]
    counted = closed[: max(0, len(closed) - EARLIER_DECISIONS)]
    history.count(len(counted))
    history.last = counted[-1] if counted else 0
    return history
