"""How policies did, as the journal has it: guidance that was followed, and scores by task.

Policies are named as they sample: empty for engines' own models. Results of suites are files
(`kept_suite_runs`), what training measured are others (`training_figures`).
"""

from collections.abc import Mapping
from typing import NamedTuple

from houston_shared.store.journal_events import ReadPlan, RunSql

SETTLED_STEPS = 3
"""Steps after guidance from which it is known whether it was followed, unless the next one comes
before: the default of `[attention] guidance_steps`."""
IGNORED_SIGNAL = "guidance_ignored"


class Obedience(NamedTuple):
    """Steps that heard guidance, and of those the ones after which it was seen to be ignored."""

    heard: int = 0
    ignored: int = 0

    @property
    def followed(self) -> int:
        """The others: what asks for nothing that can be looked for counts as followed."""
        return self.heard - self.ignored


def count_followed_guidance() -> ReadPlan[dict[str, Obedience]]:
    """By policy, of guidance that was heard and of which it is known whether it was followed.

    A signal belongs to the newest guidance before it: the daemon follows one at a time.
    """
    rows = yield RunSql(
        "WITH heard AS (SELECT DISTINCT rollout, delivered_step AS step FROM guidance"
        " WHERE state = 'delivered'), spans AS (SELECT h.rollout, h.step, r.policy,"
        " coalesce(lead(h.step) OVER (PARTITION BY h.rollout ORDER BY h.step), r.steps) AS until"
        " FROM heard h JOIN rollouts r ON r.id = h.rollout),"
        " judged AS (SELECT policy, until - step AS length, EXISTS (SELECT 1 FROM steps s"
        " WHERE s.rollout = spans.rollout AND s.step > spans.step AND s.step <= until"
        " AND s.current AND instr(',' || s.attention || ',', ?1) > 0) AS ignored FROM spans)"
        " SELECT policy, count(*), sum(ignored) FROM judged WHERE ignored OR length >= ?2"
        " GROUP BY policy",
        (f",{IGNORED_SIGNAL},", SETTLED_STEPS),
    )
    return {policy: Obedience(heard, ignored) for policy, heard, ignored in rows}


class TaskScore(NamedTuple):
    """Rollouts of one task that have ended with a score."""

    rollouts: int
    score: float
    """Mean of their last scores."""


def read_task_scores(policies: tuple[str, ...]) -> ReadPlan[dict[str, dict[str, TaskScore]]]:
    """By policy and task, how rollouts that finished scored; refinements and branches are left
    out, since they begin elsewhere."""
    scores: dict[str, dict[str, TaskScore]] = {policy: {} for policy in policies}
    for policy in policies:
        rows = yield RunSql(
            "SELECT task, count(*), avg(last_score) FROM rollouts r WHERE policy = ?"
            " AND state = 'finished' AND last_score IS NOT NULL AND parent = ''"
            " AND NOT EXISTS (SELECT 1 FROM refinements f WHERE f.rollout = r.id) GROUP BY task",
            (policy,),
        )
        scores[policy] = {task: TaskScore(rollouts, mean) for task, rollouts, mean in rows}
    return scores


class CommonTasks(NamedTuple):
    """Two policies on the tasks of both; every task weighs alike."""

    tasks: int
    before: float
    after: float


def compare_task_scores(
    before: Mapping[str, TaskScore], after: Mapping[str, TaskScore]
) -> CommonTasks | None:
    """Mean scores on the tasks that both have ended; None where there is none."""
    both = sorted(before.keys() & after.keys())
    if not both:
        return None
    return CommonTasks(
        len(both),
        sum(before[task].score for task in both) / len(both),
        sum(after[task].score for task in both) / len(both),
    )
