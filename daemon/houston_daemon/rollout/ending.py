"""How a rollout ends: by `finish` or a spent budget, and scored one last time.

Pure decisions; the loop carries them out.
"""

from collections.abc import Sequence

from houston_daemon.rollout.actions import EVALUATION
from houston_daemon.rollout.budgets import Budgets
from houston_shared.records import Delivered, ObservationBody, Result, StepRecord

FINISHED = "finish"
_TRIES = 3
"""Last evaluations of a rollout."""
_HARMLESS = frozenset({EVALUATION, "finish", "think", "sleep"})
"""Calls after which a score still stands."""


def finish_accepted(results: Sequence[Result]) -> bool:
    """Whether the agent's `finish`, or a call that ends its world, was accepted in this step."""
    return any(
        one.success and (one.kind == "finish" or one.fields.get("finished") is True)
        for one in results
    )


def ended(
    observation: ObservationBody,
    results: Sequence[Result],
    guidance: Sequence[Delivered],
    step: int,
    budgets: Budgets,
) -> str:
    """Why the rollout is over after a closed step; empty when it goes on.

    A person's word that reached the last observation is heard: the agent goes on, unless its
    steps are spent.
    """
    if not observation.finished:
        return ""
    if step >= budgets.budget.steps:
        return FINISHED if finish_accepted(results) else "budget: steps"
    if finish_accepted(results):
        return "" if guidance else FINISHED
    return "budget: active_seconds"


def may_score(last: Sequence[Result]) -> bool:
    """Whether the last evaluation may run, after those of the ending step that the loop added.

    One that a restart or a machine broke off gave no score and took no submission, so another
    follows it: the work of days is not left without a score for that. Whatever breaks off every
    one of them is not tried for ever.
    """
    broken_off = all(one.kind == "interrupted" and not one.success for one in last)
    return len(last) < _TRIES and broken_off


class Unscored:
    """Whether the newest state of the workspace has no score yet."""

    def __init__(self) -> None:
        # Submissions of before this context: what changed since is not known, so score again.
        self.now = True

    def step(self, results: Sequence[Result], changed: bool) -> None:
        """Take note of a step. changed: whether files changed in it."""
        scored = [i for i, one in enumerate(results) if _scored(one)]
        after = results[scored[-1] + 1 :] if scored else results
        if scored:
            self.now = False
        if changed and any(one.call.name not in _HARMLESS for one in after):
            self.now = True

    def record(self, record: StepRecord) -> None:
        """Take note of a step read back."""
        if record.observation is not None:
            seen = record.observation
            self.step(record.results, bool(seen.files or seen.more_files))

    def wants_score(self, results: Sequence[Result], budgets: Budgets) -> bool:
        """Whether a last evaluation should run after `results` of the ending step."""
        if not budgets.evaluations_left:
            return False
        for one in reversed(results):
            if _scored(one):
                return False
            if one.call.name not in _HARMLESS:
                return True
        return self.now


def _scored(result: Result) -> bool:
    return result.kind == EVALUATION and result.fields.get("state", "scored") == "scored"
