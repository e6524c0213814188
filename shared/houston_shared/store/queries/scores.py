"""Scores of rollouts over their active time, small: for sparklines and comparisons."""

from collections.abc import Sequence
from typing import NamedTuple

from houston_shared.store.plan import Ask, Plan
from houston_shared.store.queries import lineage

CHUNK = 500
"""Rollouts named in one statement."""
MOST = 32
"""Scores of one rollout that are given unless asked otherwise: the newest."""


_SELECT = (
    "SELECT e.rollout, e.step, max(s.active_us), e.at, e.score FROM evaluations e JOIN steps s"
    " ON s.rollout = e.rollout AND s.step = e.step AND s.current WHERE e.score IS NOT NULL AND"
)
_ORDER = "GROUP BY e.rollout, e.number ORDER BY e.rollout, e.number"


class Score(NamedTuple):
    """One submission that gave a score."""

    step: int
    active_us: int
    """Active time of the rollout at that step's end, microseconds."""
    at: int
    score: float


def history(rollouts: Sequence[str], most: int = MOST) -> Plan[dict[str, list[Score]]]:
    """By rollout, its newest scores, oldest of them first; with those of a past that it shares."""
    found: dict[str, list[Score]] = {one: [] for one in rollouts}
    for start in range(0, len(rollouts), CHUNK):
        chunk = tuple(rollouts[start : start + CHUNK])
        marks = ", ".join("?" * len(chunk))
        rows = yield Ask(f"{_SELECT} e.rollout IN ({marks}) {_ORDER}", chunk)
        for rollout, *score in rows:
            found[rollout].append(Score(*score))
        branches = yield Ask(
            f"SELECT id, parent, parent_step FROM rollouts WHERE parent <> '' AND id IN ({marks})",
            chunk,
        )
        for id, parent, step in branches:
            found[id] = (yield from _shared(parent, step)) + found[id]
    return {rollout: scores[-most:] for rollout, scores in found.items()}


def _shared(parent: str, last: int) -> Plan[list[Score]]:
    """Scores of the past that a branch shares, up to its last step of it."""
    found: list[Score] = []
    for part in (yield from lineage.stretches(parent, 1, last)):
        rows = yield Ask(f"{_SELECT} e.rollout = ? AND e.step BETWEEN ? AND ? {_ORDER}", part)
        found += [Score(*score) for _, *score in rows]
    return found
