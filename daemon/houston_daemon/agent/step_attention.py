"""Adds the attention signals of a closing step to its observation.

Gives the signals their input: the step, its results and the budgets. The signals and their
thresholds are decided in the review room's attention catalog, not here. Guidance is tracked from
the ack that brought it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from houston_daemon.agent.recorder_client import RecorderClient
from houston_daemon.agent.rollout_budgets import RolloutBudgets
from houston_daemon.review.attention_catalog import SIGNALS_VERSION, AttentionTracker
from houston_daemon.review.attention_window import RemainingBudgets, observe_step, window_length
from houston_daemon.review.guidance_following import GuidanceFollowing
from houston_shared.records import (
    DeliveredGuidance,
    ObservationBody,
    SampleBody,
    StepRecord,
    ToolResult,
)
from houston_shared.secret_redaction import redact
from houston_shared.task import Task

SNAPSHOT_FAILED_SIGNAL = "snapshot_failed"
"""The signal that the loop itself gives: what a step did to the files is not known."""

LOOKBACK_FACTOR = 4
"""Times as many steps are read, while all that were do the same."""


class StepAttention:
    """Looks at each step of one rollout as it closes."""

    def __init__(self, budgets: RolloutBudgets, task: Task, records: Iterable[StepRecord]) -> None:
        """records: the last closed steps, in order."""
        self._budgets = budgets
        closed = [record for record in records if record.observation is not None]
        self._tracker = AttentionTracker(task.attention, closed, task.hosts[0])
        self._following = GuidanceFollowing(task)
        for record in closed:
            self._following.replay(record)

    @property
    def needs_more_steps(self) -> bool:
        """Whether earlier records would show more of a pattern that the last steps repeat."""
        return self._tracker.cut_off

    def with_signals(
        self,
        step: int,
        sample: SampleBody,
        results: Sequence[ToolResult],
        closing: ObservationBody,
        unsnapped: str = "",
    ) -> ObservationBody:
        """The observation with its signals and reasons. unsnapped: why it has no snapshot."""
        observed = replace(
            observe_step(step, sample, results, closing),
            ignored_guidance=self._following.take(_closing_record(step, sample, results, closing)),
        )
        signals = self._tracker.step(observed, self._remaining_budgets(step, closing), results)
        if unsnapped:
            signals[SNAPSHOT_FAILED_SIGNAL] = unsnapped
        return msgspec.structs.replace(
            closing,
            attention=tuple(signals),
            reasons={name: redact(reason) for name, reason in signals.items()},
            attention_version=SIGNALS_VERSION,
        )

    def hear(self, guidance: tuple[DeliveredGuidance, ...]) -> None:
        """Take guidance that was joined to the observation of the last step seen here."""
        self._following.hear(guidance)

    def _remaining_budgets(self, step: int, closing: ObservationBody) -> RemainingBudgets:
        budgets = self._budgets
        return RemainingBudgets(
            steps=budgets.budget.steps,
            steps_left=max(0, budgets.budget.steps - step),
            seconds=budgets.budget.active_seconds,
            seconds_left=budgets.seconds_left,
            cost=budgets.budget.cost,
            cost_left=budgets.budget.cost - budgets.cost.total,
            evaluations=budgets.budget.evaluations if budgets.has_evaluator else 0,
            evaluations_left=budgets.evaluations_left,
            best=budgets.scores.best,
            since_gain=budgets.scores.evaluations_since_best,
            seconds_since_gain=budgets.clock.seconds - budgets.scores.best_at_seconds,
            finished=closing.finished,
        )


def _closing_record(
    step: int, sample: SampleBody, results: Sequence[ToolResult], closing: ObservationBody
) -> StepRecord:
    """A step that closes as the journal will have it, without what only the recorder knows."""
    return StepRecord(
        step=step, attempt=1, sample_seq=0, sample=sample, intents=(), results=tuple(results),
        observation=closing, guidance=(), at="", active_seconds=0.0,
    )  # fmt: skip


async def load_step_attention(
    line: RecorderClient,
    budgets: RolloutBudgets,
    task: Task,
    closed: Sequence[StepRecord],
    following: int,
) -> StepAttention:
    """A StepAttention that has seen the last steps. following: the number of the step after them.

    closed: the steps that were read already. More are read where a window is longer than the
    current context, or where a pattern that the last steps repeat started earlier.
    """
    reach = window_length(task.attention)
    while True:
        first = max(1, following - reach)
        oldest_step = closed[0].step if closed else following
        if first < oldest_step:
            closed = [record for record in await line.read_steps(first) if record.step < following]
        watching = StepAttention(budgets, task, closed)
        if first == 1 or not watching.needs_more_steps:
            return watching
        reach *= LOOKBACK_FACTOR
