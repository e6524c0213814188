"""Scores of rollouts over their active time, small: for sparklines and comparisons."""

from collections.abc import Sequence
from typing import NamedTuple

from houston_shared.store.plan import Ask, Plan
from houston_shared.store.queries import lineage

MOST = 32
"""Scores of one rollout that are given unless asked otherwise: the newest."""


class Score(NamedTuple):
    """One submission that gave a score."""

    step: int
    active_us: int
    """Active time of the rollout at that step's end, microseconds."""
    at: int
    score: float


def history(rollouts: Sequence[str], most: int = MOST) -> Plan[dict[str, list[Score]]]:
    """By rollout, its newest scores, oldest of them first; with those of a past that it shares."""
    found: dict[str, list[Score]] = {}
    for rollout in rollouts:
        scores: list[Score] = []
        for part in (yield from lineage.stretches(rollout)):
            rows = yield Ask(
                "SELECT e.step, max(s.active_us), e.at, e.score FROM evaluations e JOIN steps s"
                " ON s.rollout = e.rollout AND s.step = e.step AND s.current"
                " WHERE e.rollout = ? AND e.step BETWEEN ? AND ? AND e.score IS NOT NULL"
                " GROUP BY e.number ORDER BY e.number",
                part,
            )
            scores += [Score(*row) for row in rows]
        found[rollout] = scores[-most:]
    return found
