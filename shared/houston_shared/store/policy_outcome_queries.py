"""How policies did, as the journal has it: guidance that was followed, and scores by task.

Policies are named as they sample: empty for engines' own models. Results of suites are files
(`kept_suite_runs`), what training measured are others (`training_figures`).
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from houston_shared.guidance_asked_words import can_be_checked
from houston_shared.store.journal_events import ReadPlan, RunSql, read_records_at

SETTLED_STEPS = 3
"""Steps after guidance from which it is known whether it was followed, unless the next one comes
before: the default of `[attention] guidance_steps`."""
IGNORED_SIGNAL = "guidance_ignored"


class Obedience(NamedTuple):
    """Steps that heard guidance, and what was seen after them."""

    heard: int = 0
    ignored: int = 0
    """After which it was seen to be ignored."""
    unchecked: int = 0
    """Whose guidance names nothing that could be looked for: it cannot be checked."""

    @property
    def checked(self) -> int:
        """Those of which it is known whether it was followed."""
        return self.heard - self.unchecked

    @property
    def followed(self) -> int:
        """Those whose guidance could be looked for, and was not ignored."""
        return self.checked - self.ignored


def count_followed_guidance() -> ReadPlan[dict[str, Obedience]]:
    """By policy, of guidance that was heard and of which it is known whether it was followed.

    A signal belongs to the newest guidance before it: the daemon follows one at a time. What was
    seen to be ignored could be checked; of the rest the words tell (`guidance_asked_words`).
    """
    rows = yield RunSql(
        "WITH heard AS (SELECT DISTINCT rollout, delivered_step AS step FROM guidance"
        " WHERE state = 'delivered'), spans AS (SELECT h.rollout, h.step, r.policy,"
        " coalesce(lead(h.step) OVER (PARTITION BY h.rollout ORDER BY h.step), r.steps) AS until"
        " FROM heard h JOIN rollouts r ON r.id = h.rollout),"
        " judged AS (SELECT policy, rollout, step, until - step AS length,"
        " EXISTS (SELECT 1 FROM steps s WHERE s.rollout = spans.rollout AND s.step > spans.step"
        " AND s.step <= until AND s.current"
        " AND instr(',' || s.attention || ',', ?1) > 0) AS ignored FROM spans)"
        " SELECT policy, rollout, step, ignored FROM judged WHERE ignored OR length >= ?2",
        (f",{IGNORED_SIGNAL},", SETTLED_STEPS),
    )
    checkable = yield from _checkable_steps()
    counts: dict[str, Obedience] = {}
    for policy, rollout, step, ignored in rows:
        obedience = counts.get(policy, Obedience())
        unchecked = not ignored and (rollout, step) not in checkable
        counts[policy] = Obedience(
            obedience.heard + 1, obedience.ignored + ignored, obedience.unchecked + unchecked
        )
    return counts


class _GuidanceText(msgspec.Struct, frozen=True):
    text: str = ""


def _checkable_steps() -> ReadPlan[set[tuple[str, int]]]:
    """Rollouts and steps that heard something which can be seen to be followed, or not."""
    rows = yield RunSql(
        "SELECT rollout, delivered_step, text_seq FROM guidance WHERE state = 'delivered'", ()
    )
    texts = yield from read_records_at([seq for *_, seq in rows], _GuidanceText, _GuidanceText())
    return {
        (rollout, step)
        for rollout, step, seq in rows
        if seq in texts and can_be_checked(texts[seq].text)
    }


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
