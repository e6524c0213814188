"""What is read to set two rollouts beside each other, in one short read."""

from typing import NamedTuple

from houston_shared.records import Guidance
from houston_shared.store.plan import Ask, Plan
from houston_shared.store.queries import cost, guidance, lineage, rollouts, scores
from houston_shared.store.queries.cost import Spent
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.queries.scores import Score

MOST = 4_000
"""Scores of one rollout: more than a screen has columns, by far."""


class Side(NamedTuple):
    """One of the two."""

    rollout: Rollout
    scores: list[Score]
    heard: list[tuple[int, Guidance]]
    """Guidance that was delivered, with the active time of its step in microseconds."""
    waiting: int
    """Guidance that is queued."""
    spent: list[Spent]


def sides(first: str, second: str) -> Plan[tuple[Side, Side]]:
    """Both. Raises HoustonError where one is not there."""
    spent = yield from cost.of([first, second])
    scored = yield from scores.history([first, second], MOST)
    found: list[Side] = []
    for name in (first, second):
        one = yield from rollouts.rollout(name)
        said = yield from guidance.of_rollout(name)
        heard = [each for each in said if each.state == "delivered" and each.step is not None]
        at = yield from _active(name, [each.step or 0 for each in heard])
        found.append(
            Side(
                rollout=one,
                scores=scored[name],
                heard=[(at.get(each.step or 0, 0), each) for each in heard],
                waiting=sum(each.state == "queued" for each in said),
                spent=spent[name],
            )
        )
    return found[0], found[1]


def _active(rollout: str, steps: list[int]) -> Plan[dict[int, int]]:
    """Active time at the end of steps, of those of a past that a branch shares too."""
    found: dict[int, int] = {}
    if steps:
        for part in (yield from lineage.stretches(rollout, min(steps), max(steps))):
            marks = ", ".join(str(step) for step in sorted(set(steps)))
            rows = yield Ask(
                "SELECT step, active_us FROM steps WHERE rollout = ? AND step BETWEEN ? AND ?"
                f" AND current AND step IN ({marks})",
                part,
            )
            found.update(dict(rows))
    return found
