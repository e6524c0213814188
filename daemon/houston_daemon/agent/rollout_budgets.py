"""Active time and budgets: what a rollout has used and has left of steps, time and submissions.

The active clock leaves out downtime, pauses, a missing engine, waits for a slot or the recorder,
and time in which this process was suspended. Time for a last evaluation is reserved from the start.
Also makes the line about clock and budgets that ends each observation. `agent_loop` decides how a
rollout ends.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from houston_daemon.environments.environment_protocol import BudgetStatus
from houston_daemon.environments.environment_registry import kind
from houston_daemon.prompts.system_prompt import hides_evaluation
from houston_shared.records import EVALUATION_CALL, ToolResult
from houston_shared.task import Task
from houston_shared.times_and_counts import format_clock

TICK_SECONDS = 1.0
SUSPENDED_AFTER_NS = 3_000_000_000
"""Nobody counted for longer than this although somebody should every second: nothing ran."""


class ActiveClock:
    """Microseconds of active time, going on from `start_us`."""

    def __init__(self, start_us: int, monotonic_ns: Callable[[], int] | None = None) -> None:
        self._now = monotonic_ns or time.monotonic_ns
        self._counted_ns = start_us * 1000
        self._since = self._now()
        self._used = time.process_time_ns()
        self._exclusions = 0
        self._watched = False

    def microseconds(self) -> int:
        """Active time so far, microseconds; never less than it was before."""
        self._count()
        return self._counted_ns // 1000

    @property
    def seconds(self) -> float:
        """Active time so far, seconds."""
        return self.microseconds() / 1_000_000

    async def watch(self) -> None:
        """Count every second until cancelled; while it runs, a long gap is a suspension, not
        work."""
        self._count()
        self._watched = True
        try:
            while True:
                await asyncio.sleep(TICK_SECONDS)
                self._count()
        finally:
            self._watched = False

    def exclude(self, waiting: bool) -> None:
        """Stop counting (True) or resume (False); every stop needs its own resume."""
        self._count()
        self._exclusions += 1 if waiting else -1

    @contextmanager
    def excluded(self) -> Iterator[None]:
        """Time inside is not active time; may be nested and may overlap between tasks."""
        self.exclude(True)
        try:
            yield
        finally:
            self.exclude(False)

    def _count(self) -> None:
        """Add what has passed since the last time; of a gap only what this process computed in it,
        so that one that was busy and one that was stopped are told apart."""
        now, used = self._now(), time.process_time_ns()
        passed = now - self._since
        if self._watched and passed > SUSPENDED_AFTER_NS:
            passed = min(passed, used - self._used)
        if not self._exclusions:
            self._counted_ns += passed
        self._since, self._used = now, used


@dataclass(slots=True)
class EvaluationScores:
    """Submissions so far, as the environment counted them."""

    evaluations: int = 0
    best: float | None = None
    last: float | None = None
    seconds: float = 0.0
    """Time that they took, those without a score too."""
    evaluations_since_best: int = 0
    """Those with a score since the best one."""
    best_at_seconds: float = 0.0
    """Active time at the best score; 0 without one."""

    def count_result(self, result: ToolResult, active_seconds: float) -> None:
        """Count an evaluation's result, which came at this active time; others change nothing."""
        if result.kind != EVALUATION_CALL or "overall_score" not in result.fields:
            return
        self.seconds += float(result.fields.get("seconds", result.seconds))
        self.evaluations += bool(result.fields.get("counted", True))
        score = result.fields["overall_score"]
        if isinstance(score, int | float):
            self.last = float(score)
            if self.best is None or self.last > self.best:
                self.best, self.evaluations_since_best, self.best_at_seconds = (
                    self.last,
                    0,
                    active_seconds,
                )
            else:
                self.evaluations_since_best += 1


@dataclass(slots=True)
class SpentCost:
    """The cost of a rollout's samples so far, those of its roles included."""

    total: float = 0.0


class RolloutBudgets:
    """The task's budgets against the clock, the scores and what samples cost."""

    def __init__(
        self,
        task: Task,
        clock: ActiveClock,
        scores: EvaluationScores,
        cost: SpentCost | None = None,
    ) -> None:
        self.budget = task.budget
        self.clock = clock
        self.scores = scores
        self.cost = cost or SpentCost()
        environment = kind(task.environment)
        self.has_evaluator = bool(task.evaluate.command) or environment.scores(task)
        self._secret = environment.secret_score or hides_evaluation(task)
        evaluator = task.evaluate.seconds if task.evaluate.command else 0.0
        self._reserve = min(evaluator, self.budget.active_seconds / 2)

    @property
    def evaluations_left(self) -> int:
        """Submissions left; 0 without an evaluator."""
        if not self.has_evaluator:
            return 0
        return max(0, self.budget.evaluations - self.scores.evaluations)

    @property
    def seconds_left(self) -> float:
        """Active time left for the agent, without the time reserved for a last evaluation."""
        reserve = self._reserve if self.evaluations_left else 0.0
        return self.budget.active_seconds - reserve - self.clock.seconds

    @property
    def is_cost_spent(self) -> bool:
        """Whether the samples have used up the cost budget."""
        return 0 < self.budget.cost <= self.cost.total

    @property
    def visible_scores(self) -> EvaluationScores:
        """The scores that the agent may know."""
        return EvaluationScores() if self._secret else self.scores

    @property
    def shows_scores(self) -> bool:
        """Whether the agent knows of scores and submissions at all."""
        return self.has_evaluator and not self._secret

    def spent_budget(self, step: int) -> str:
        """Which budget ends the rollout with `step`; empty when none does."""
        if step >= self.budget.steps:
            return "budget: steps"
        if self.is_cost_spent:
            return "budget: cost"
        return "budget: active_seconds" if self.seconds_left <= 0 else ""

    def budget_status(self, step: int) -> BudgetStatus:
        """Where the rollout stands while `step` acts."""
        return BudgetStatus(
            step=step,
            steps_left=max(0, self.budget.steps - step),
            seconds_left=max(0.0, self.seconds_left),
            evaluations=self.scores.evaluations,
            evaluation_seconds=self.scores.seconds,
            cost_spent=self.is_cost_spent,
        )


def observation_tail(step: int, budgets: RolloutBudgets, notes: tuple[str, ...] = ()) -> str:
    """Clock and budgets after `step`, one line, with notes of the loop before it."""
    budget, scores = budgets.budget, budgets.visible_scores
    time_left = format_clock(budgets.seconds_left)
    parts = [
        f"step {step} of {budget.steps}",
        f"active {format_clock(budgets.clock.seconds)}, {time_left} left",
    ]
    if budget.cost:
        parts.append(f"cost {budgets.cost.total:.4g} of {budget.cost:g}")
    if budgets.shows_scores:
        parts.append(f"evaluations left {budgets.evaluations_left} of {budget.evaluations}")
    if budgets.shows_scores and budget.evaluation_seconds:
        rest = format_clock(budget.evaluation_seconds - scores.seconds)
        parts.append(f"{rest} of evaluation time left")
    if scores.last is not None and scores.best is not None:
        parts.append(f"score last {scores.last:g}, best {scores.best:g}")
    return "\n".join((*notes, f"[{'; '.join(parts)}]"))
