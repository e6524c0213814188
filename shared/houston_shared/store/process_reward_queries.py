"""Scores of process reward models, as lists, lines of steps and summaries read them.

Where several policies scored an attempt, the score that came last is shown. Attempts that another
one replaced keep theirs, and do not count. Who scores steps and when is the daemon's business.
"""

from collections.abc import Sequence
from itertools import groupby, takewhile
from typing import Any, NamedTuple

from houston_shared.store import rollout_queries
from houston_shared.store.journal_events import (
    OPEN_END,
    ReadPlan,
    RowRecord,
    RunSql,
    column_list,
    rows_to_records,
)


class ProcessRewardRow(RowRecord, frozen=True):
    """A row of `process_rewards`, without its rollout."""

    step: int
    attempt: int
    policy: str
    """The process reward model, e.g. `prm@2`."""
    score: float
    """0 to 1."""
    weak: int
    """1 below what `[review] weak_decision` was when it was scored."""
    seq: int
    at: int
    """UTC microseconds."""


def list_process_rewards(
    rollout: str, first: int = 1, last: int = OPEN_END
) -> ReadPlan[dict[tuple[int, int], ProcessRewardRow]]:
    """By (step, attempt), the newest score of steps `first` to `last` that have one.

    A step that a branch shares has the score of the rollout whose step it is.
    """
    newest: dict[tuple[int, int], ProcessRewardRow] = {}
    for part in (yield from rollout_queries.step_ranges(rollout, first, last)):
        rows = yield RunSql(
            f"SELECT {column_list(ProcessRewardRow)} FROM process_rewards WHERE rollout = ?"
            " AND step BETWEEN ? AND ? ORDER BY step, attempt, seq",
            part,
        )
        for reward in rows_to_records(ProcessRewardRow, rows):
            newest[reward.step, reward.attempt] = reward
    return newest


class StepReward(NamedTuple):
    """What a step that counts was scored."""

    step: int
    score: float
    weak: int
    policy: str
    active_us: int
    """The rollout's active time then."""


def list_step_rewards(rollout: str) -> ReadPlan[list[StepReward]]:
    """Scores of the attempts that count, in order of steps."""
    rewards: list[StepReward] = []
    for part in (yield from rollout_queries.step_ranges(rollout)):
        rows = yield RunSql(
            "SELECT s.step, p.score, p.weak, p.policy, s.active_us"
            " FROM process_rewards p JOIN steps s USING (rollout, step, attempt)"
            " WHERE p.rollout = ? AND p.step BETWEEN ? AND ? AND s.current"
            " ORDER BY s.step, p.seq",
            part,
        )
        newest = {reward.step: reward for reward in (StepReward(*row) for row in rows)}
        rewards += newest.values()
    return rewards


class ProcessRewardSummary(NamedTuple):
    """The scores of one rollout in a few numbers."""

    policy: str
    """That scored last; others may have scored earlier steps."""
    steps: int
    """Steps with a score."""
    mean: float
    lowest: float
    lowest_step: int
    """The first of the lowest."""


def summarize_process_rewards(rewards: Sequence[StepReward]) -> ProcessRewardSummary | None:
    """None where nothing was scored."""
    if not rewards:
        return None
    lowest = min(rewards, key=lambda reward: (reward.score, reward.step))
    mean = sum(reward.score for reward in rewards) / len(rewards)
    return ProcessRewardSummary(rewards[-1].policy, len(rewards), mean, lowest.score, lowest.step)


def find_next_lowest(rewards: Sequence[StepReward], step: int, back: bool) -> int | None:
    """The step that comes after `step` from the lowest score up, or (`back`) before it.

    step: 0 for the lowest of all. Of equal scores the earlier step comes first. None where nothing
    is left.
    """
    order = [number for _, number in sorted((reward.score, reward.step) for reward in rewards)]
    if step not in order:
        return None if back or not order else order[0]
    position = order.index(step) + (-1 if back else 1)
    return order[position] if 0 <= position < len(order) else None


def reward_curve(rewards: Sequence[StepReward], cells: int) -> list[float]:
    """Means over `cells` equal parts of the active time up to the last of the steps, in order.

    A part in which no step closed has the mean before it; parts before the first step are left out.
    """
    if not rewards:
        return []
    end = max(reward.active_us for reward in rewards) + 1
    parts: list[list[float]] = [[] for _ in range(cells)]
    for reward in rewards:
        parts[reward.active_us * cells // end].append(reward.score)
    curve: list[float] = []
    for part in parts:
        if part or curve:
            curve.append(sum(part) / len(part) if part else curve[-1])
    return curve


WEAK_RUN_STEPS = 3
"""Weak decisions in a row that ask for a person."""
MAX_WEAK_RUN = 20
"""Steps of a run that are counted at most."""


class WeakRun(NamedTuple):
    """Weak decisions in a row, up to the newest that was scored."""

    steps: int
    """How many, at most `MAX_WEAK_RUN`."""
    last: int
    """The newest of them."""
    score: float
    """Of that one."""
    policy: str
    seq: int
    """The event of its score."""


def read_weak_runs(behind: int) -> ReadPlan[dict[str, WeakRun]]:
    """By live rollout, the weak decisions in a row that end at its newest scored step, if there are
    `WEAK_RUN_STEPS` or more.

    behind: how many steps the scores may be behind the newest closed step.
    """
    scored = yield RunSql("SELECT 1 FROM process_rewards LIMIT 1")
    if not scored:  # without a model nobody pays for the steps of every rollout
        return {}
    rows = yield RunSql(
        "SELECT r.id, r.steps, s.step, p.score, p.weak, p.policy, p.seq FROM rollouts r"
        " JOIN steps s ON s.rollout = r.id AND s.step > r.steps - ? AND s.step <= r.steps"
        " AND s.current JOIN process_rewards p USING (rollout, step, attempt)"
        " WHERE r.state IN ('queued', 'running', 'paused') ORDER BY r.id, s.step DESC, p.seq DESC",
        (MAX_WEAK_RUN,),
    )
    runs: dict[str, WeakRun] = {}
    for rollout, group in groupby(rows, key=lambda row: row[0]):
        newest_of_steps = [next(scores) for _, scores in groupby(group, key=lambda row: row[2])]
        weak = [
            WeakRun(number, *row[2:4], *row[5:])
            for number, row in enumerate(takewhile(lambda row: bool(row[4]), newest_of_steps), 1)
        ]
        _, closed, last, *_ = newest_of_steps[0]
        in_a_row = sum(run.last == last - number for number, run in enumerate(weak))
        if in_a_row >= WEAK_RUN_STEPS and closed - last < behind:
            runs[rollout] = weak[0]._replace(steps=in_a_row)
    return runs


def process_reward_json(reward: ProcessRewardRow | None) -> dict[str, Any] | None:
    """`process_reward` of a line of `steps R --json`."""
    return None if reward is None else {"policy": reward.policy, "score": reward.score}


def process_reward_summary_json(summary: ProcessRewardSummary | None) -> dict[str, Any] | None:
    """`process_reward` of `rollout show --json`."""
    return None if summary is None else summary._asdict()
