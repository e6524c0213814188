"""Whose steps a rollout's steps are: a branch shares those of its parent up to where it began.

Nothing of the shared past is stored twice, so a range of a branch's steps is read as stretches,
each from the rollout that has it. A branch of a branch is read the same way, to any depth.
"""

from typing import NamedTuple

from houston_shared.store.plan import END, Ask, Plan

LINE = """
WITH RECURSIVE line (id, first, last, parent) AS (
    SELECT id, CASE WHEN parent = '' THEN 1 ELSE coalesce(parent_step, 0) + 1 END, ?2, parent
    FROM rollouts WHERE id = ?1
    UNION ALL
    SELECT r.id, CASE WHEN r.parent = '' THEN 1 ELSE coalesce(r.parent_step, 0) + 1 END,
           line.first - 1, r.parent
    FROM line JOIN rollouts r ON r.id = line.parent WHERE line.first > 1
)
"""
"""A rollout (?1) and those it shares steps with, newest first: the steps up to ?2 that each has."""


class Stretch(NamedTuple):
    """Consecutive steps of one rollout."""

    rollout: str
    first: int
    last: int


def stretches(rollout: str, first: int = 1, last: int = END) -> Plan[list[Stretch]]:
    """Where steps `first` to `last` (both included) of a rollout lie, in order."""
    rows = yield Ask(f"{LINE} SELECT id, first, last FROM line ORDER BY first", (rollout, last))
    if not rows:  # not a rollout of this home: then nothing is shared
        return [Stretch(rollout, first, last)]
    parts = (Stretch(one, max(first, begin), min(last, end)) for one, begin, end in rows)
    return [part for part in parts if part.first <= part.last]


def owner(rollout: str, step: int) -> Plan[str]:
    """The rollout whose step it is: `rollout` itself, or one that it is a branch of."""
    found = yield from stretches(rollout, step, step)
    return found[-1].rollout if found else rollout
