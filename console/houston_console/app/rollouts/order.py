"""In which order rollouts are listed: by need, and steady under the eyes of who reads. Pure.

A list that changes its order while somebody moves in it makes them open the wrong rollout. So the
rollout under the cursor of who is at it keeps its place, and with it the tasks around it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from houston_shared.need import Need


class Row(NamedTuple):
    """One entry of a list: a rollout, or (without one) the task over the rollouts that follow."""

    task: str
    need: Need | None = None

    @property
    def id(self) -> str:
        """Of the rollout; empty for a task."""
        return self.need.standing.rollout.id if self.need else ""


def arranged(
    found: Sequence[Need], by_task: bool, before: Sequence[Row] = (), keep: str = ""
) -> list[Row]:
    """`found`, which is in the order of need, as it is listed.

    by_task: under their tasks, the task with the neediest rollout first. before, keep: what was
    listed, and the rollout of it whose place stays as it is.
    """
    rows = [Row(one.standing.rollout.task, one) for one in found]
    if not by_task:
        return _pinned(rows, [row for row in before if row.need], keep)
    by: dict[str, list[Row]] = {}
    if keep:
        by = {row.task: [] for row in before}
    for row in rows:
        by.setdefault(row.task, []).append(row)
    listed: list[Row] = []
    for task, ones in by.items():
        if ones:
            stood = [row for row in before if row.need and row.task == task]
            listed += [Row(task), *_pinned(ones, stood, keep)]
    return listed


def _pinned(rows: list[Row], before: Sequence[Row], keep: str) -> list[Row]:
    """`rows`, but with the rollout `keep` at the place that it had."""
    place = next((at for at, row in enumerate(before) if keep and row.id == keep), None)
    mine = next((row for row in rows if keep and row.id == keep), None)
    if place is None or mine is None:
        return rows
    others = [row for row in rows if row is not mine]
    return [*others[:place], mine, *others[place:]]


def matching(found: Sequence[Need], words: str) -> list[Need]:
    """Those that hold every word somewhere: in name, task, state, reasons, action, or people."""
    wanted = words.lower().split()
    return [one for one in found if all(word in _text(one) for word in wanted)]


def _text(one: Need) -> str:
    stands, rollout = one.standing, one.standing.rollout
    parts = [rollout.id, rollout.task, rollout.state, rollout.activity, rollout.policy, one.text]
    parts += [look.name for look in stands.lookers]
    parts += [stands.holding.holder] if stands.holding else []
    parts += [stands.acted.text] if stands.acted else []
    return "\n".join(parts).lower()
