"""In which order lists stand: by need, and steady under the eyes of who reads.

A list that changes its order while somebody moves in it makes them open the wrong rollout. So for
some seconds after a key nothing changes its order, and what is new comes last; for a minute the
rollout under the cursor keeps its place, and with it the tasks around it.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

from houston_shared.need import Need

HELD_SECONDS = 8.0
"""After a key or the mouse nothing in a list changes its order for so long."""
READING_SECONDS = 60.0
"""After it the rollout at the cursor keeps its place for so long: somebody reads there."""

T = TypeVar("T")


class Reading:
    """Whether somebody is at a list."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: seconds."""
        self.clock = clock
        self._at: float | None = None

    def touched(self) -> None:
        """A key was pressed there, or the mouse moved."""
        self._at = self.clock()

    def left(self) -> None:
        """Nobody is there any more."""
        self._at = None

    @property
    def moves(self) -> bool:
        """Whether somebody moves through it: its order is held."""
        return self._within(HELD_SECONDS)

    @property
    def reads(self) -> bool:
        """Whether somebody may still read at the cursor."""
        return self._within(READING_SECONDS)

    def _within(self, seconds: float) -> bool:
        return self._at is not None and self.clock() - self._at < seconds


def held(found: Sequence[T], before: Sequence[T], key: Callable[[T], Hashable]) -> list[T]:
    """`found` in the order of before; what is new comes last, in the order in which it is found."""
    places = {key(one): at for at, one in enumerate(before)}
    return sorted(found, key=lambda one: places.get(key(one), len(places)))


class Row(NamedTuple):
    """One entry of a list: a rollout, or (without one) the task over the rollouts that follow."""

    task: str
    need: Need | None = None

    @property
    def id(self) -> str:
        """Of the rollout; empty for a task."""
        return self.need.standing.rollout.id if self.need else ""


def arranged(
    found: Sequence[Need],
    by_task: bool,
    before: Sequence[Row] = (),
    keep: str = "",
    hold: bool = False,
) -> list[Row]:
    """`found`, which is in the order of need, as it is listed.

    by_task: under their tasks, the task with the neediest rollout first. before, keep: what was
    listed, and the rollout of it whose place stays as it is. hold: all of it keeps its order.
    """
    rows = [Row(one.standing.rollout.task, one) for one in found]
    if hold:
        rows, keep = held(rows, [row for row in before if row.need], lambda row: row.id), ""
    if not by_task:
        return _pinned(rows, [row for row in before if row.need], keep)
    by: dict[str, list[Row]] = {}
    if keep or hold:
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


class Order:
    """How one list of rollouts stands, from one read to the next."""

    def __init__(self) -> None:
        self.reading = Reading()
        self.rows: list[Row] = []
        self.held = False
        """Whether it would be another if nobody moved through the list."""
        self._known: set[str] = set()
        """Rollouts that were there when it was by need last."""

    def take(
        self, found: Sequence[Need], by_task: bool, cursor: str, hold: bool = True
    ) -> list[Row]:
        """`found` as it is listed now. cursor: the rollout there, empty to keep no place.

        hold: keep the order while somebody moves through the list.
        """
        keep = cursor if self.reading.reads else ""
        rows = wanted = arranged(found, by_task, self.rows, keep)
        if hold and self.reading.moves and self.rows:
            rows = arranged(found, by_task, self.rows, hold=True)
        self.rows, self.held = rows, rows != wanted
        if not self.held:
            self._known = {row.id for row in rows}
        return rows

    @property
    def due(self) -> bool:
        """Whether it was held, and need not be any more."""
        return self.held and not self.reading.moves

    def words(self, key: str) -> str:
        """That it is held, and what is new; empty where it is by need. key: what sorts at once."""
        new = len({row.id for row in self.rows} - self._known)
        return f"{f'{new} new, ' if new else ''}order held: {key} sorts" if self.held else ""


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
