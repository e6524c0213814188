"""The attention signals of a closing step, from what the loop knows: the step and the budgets.

Signals and their thresholds are `supervision.attention`'s; this module only brings them what they
look at, and puts what they found into the observation.
"""

from collections.abc import Iterable, Sequence

import msgspec

from houston_daemon.rollout.budgets import Budgets
from houston_daemon.rollout.line import Line
from houston_daemon.supervision.attention.catalog import VERSION
from houston_daemon.supervision.attention.watch import Watch
from houston_daemon.supervision.attention.window import Left, horizon, seen
from houston_shared.records import ObservationBody, Result, SampleBody, StepRecord
from houston_shared.secret_values import redact
from houston_shared.task import Task

UNSNAPPED = "snapshot_failed"
"""The signal that the loop itself gives: what a step did to the files is not known."""

FURTHER = 4
"""Times as many steps are read, while all that were do the same."""


class Watching:
    """Looks at each step of one rollout as it closes."""

    def __init__(self, budgets: Budgets, task: Task, records: Iterable[StepRecord]) -> None:
        """records: the last closed steps, in order."""
        self._budgets = budgets
        self._watch = Watch(task.attention, records, task.hosts[0])

    @property
    def cut_off(self) -> bool:
        """Whether records of before would say more of what the last steps repeat."""
        return self._watch.cut_off

    def marked(
        self,
        step: int,
        sample: SampleBody,
        results: Sequence[Result],
        closing: ObservationBody,
        unsnapped: str = "",
    ) -> ObservationBody:
        """The observation with its signals and reasons. unsnapped: why it has no snapshot."""
        now, left = seen(step, sample, results, closing), self._left(step, closing)
        found = self._watch.step(now, left, results)
        if unsnapped:
            found[UNSNAPPED] = unsnapped
        return msgspec.structs.replace(
            closing,
            attention=tuple(found),
            reasons={name: redact(reason) for name, reason in found.items()},
            attention_version=VERSION,
        )

    def _left(self, step: int, closing: ObservationBody) -> Left:
        budgets = self._budgets
        return Left(
            steps=budgets.budget.steps,
            steps_left=max(0, budgets.budget.steps - step),
            seconds=budgets.budget.active_seconds,
            seconds_left=budgets.seconds_left,
            evaluations=budgets.budget.evaluations if budgets.has_evaluator else 0,
            evaluations_left=budgets.evaluations_left,
            best=budgets.scores.best,
            since_gain=budgets.scores.since_gain,
            seconds_since_gain=budgets.clock.seconds - budgets.scores.gained_seconds,
            finished=closing.finished,
        )


async def watching(
    line: Line, budgets: Budgets, task: Task, closed: Sequence[StepRecord], following: int
) -> Watching:
    """A watch that knows the last steps. following: the number of the step after them.

    closed: the steps that were read already; where a window reaches further back than the current
    context, or what the last steps repeat began before it, more are read.
    """
    reach = horizon(task.attention)
    while True:
        first = max(1, following - reach)
        known = closed[0].step if closed else following
        if first < known:
            closed = [one for one in await line.steps(first) if one.step < following]
        watching = Watching(budgets, task, closed)
        if first == 1 or not watching.cut_off:
            return watching
        reach *= FURTHER
