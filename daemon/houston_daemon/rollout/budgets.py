"""Budgets: what a rollout has used and has left; where it ends, and why.

Steps, active time and submissions. Time for a last evaluation is set aside from the start, so that
the agent's own time ends while there is still time to grade.
"""

from dataclasses import dataclass

from houston_daemon.environments.environment_registry import kind
from houston_daemon.environments.protocol import Standing
from houston_daemon.rollout.clock import ActiveClock
from houston_shared.records import Result
from houston_shared.task import Task

LONGEST_SECONDS = 1e9
"""No clock shows more, whatever a stored task says."""


@dataclass(slots=True)
class Scores:
    """Submissions so far, as the environment counted them."""

    evaluations: int = 0
    best: float | None = None
    last: float | None = None
    seconds: float = 0.0
    """Time that they took, those without a score too."""
    since_gain: int = 0
    """Those with a score since the best one."""
    gained_seconds: float = 0.0
    """Active time at the best score; 0 without one."""

    def take(self, result: Result, active_seconds: float) -> None:
        """Count an evaluation's result, which came at this active time; others change nothing."""
        if result.kind != "eval" or "overall_score" not in result.fields:
            return
        self.seconds += float(result.fields.get("seconds", result.seconds))
        self.evaluations += bool(result.fields.get("counted", True))
        score = result.fields["overall_score"]
        if isinstance(score, int | float):
            self.last = float(score)
            if self.best is None or self.last > self.best:
                self.best, self.since_gain, self.gained_seconds = self.last, 0, active_seconds
            else:
                self.since_gain += 1


class Budgets:
    """The task's budgets against the clock and the scores."""

    def __init__(self, task: Task, clock: ActiveClock, scores: Scores) -> None:
        self.budget = task.budget
        self.clock = clock
        self.scores = scores
        environment = kind(task.environment)
        self.has_evaluator = bool(task.evaluate.command) or environment.scores(task)
        self._secret = environment.secret_score
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
        """Active time left for the agent, without what is set aside for a last evaluation."""
        reserve = self._reserve if self.evaluations_left else 0.0
        return self.budget.active_seconds - reserve - self.clock.seconds

    @property
    def told(self) -> Scores:
        """The scores as far as the agent may know them."""
        return Scores() if self._secret else self.scores

    @property
    def tells(self) -> bool:
        """Whether the agent knows of scores and submissions at all."""
        return self.has_evaluator and not self._secret

    def spent(self, step: int) -> str:
        """Which budget ends the rollout with `step`; empty when none does."""
        if step >= self.budget.steps:
            return "budget: steps"
        return "budget: active_seconds" if self.seconds_left <= 0 else ""

    def standing(self, step: int) -> Standing:
        """Where the rollout stands while `step` acts."""
        return Standing(
            step=step,
            steps_left=max(0, self.budget.steps - step),
            active_seconds=self.clock.seconds,
            seconds_left=max(0.0, self.seconds_left),
            evaluations=self.scores.evaluations,
            best_score=self.scores.best,
            last_score=self.scores.last,
            evaluation_seconds=self.scores.seconds,
        )


def tail(step: int, budgets: Budgets, notes: tuple[str, ...] = ()) -> str:
    """Clock and budgets after `step`, one line, with notes of the loop before it."""
    budget, scores = budgets.budget, budgets.told
    left = hours(max(0.0, budgets.seconds_left))
    parts = [
        f"step {step} of {budget.steps}",
        f"active {hours(budgets.clock.seconds)}, {left} left",
    ]
    if budgets.tells:
        parts.append(f"evaluations left {budgets.evaluations_left} of {budget.evaluations}")
    if budgets.tells and budget.evaluation_seconds:
        rest = hours(max(0.0, budget.evaluation_seconds - scores.seconds))
        parts.append(f"{rest} of evaluation time left")
    if scores.last is not None and scores.best is not None:
        parts.append(f"score last {scores.last:g}, best {scores.best:g}")
    return "\n".join((*notes, f"[{'; '.join(parts)}]"))


def hours(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    whole = int(min(seconds, LONGEST_SECONDS))
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
