"""Which answers rows would have trained and could not, as their consumer would mistrain them.

Another rollout of the export that shares such an answer must train it, and a copy of it in another
row must not say that it is trained.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TypeVar

from houston_daemon.training.rows.beside import Answered
from houston_daemon.training.rows.plan import trained_in
from houston_daemon.training.rows.row import ChatMessage, ChatRow, Row, Span
from houston_shared.records import SampleRole

_Copy = TypeVar("_Copy", Span, ChatMessage)


class Losses:
    """Of the rows of an export, of which those of one rollout come one after the other."""

    def __init__(self) -> None:
        self.lost: dict[str, set[Answered]] = {}
        """By rollout, answers that would be trained in what was refused, and in no other line."""
        self._rollout = ""
        self._written: set[Answered] = set()
        """Of the rollout whose rows come now: all of an export would be millions."""
        self._copies: dict[tuple[str, int | None], str] = {}
        """What copies of lost answers say of themselves, with their step, and what is true."""

    def note(self, row: Row | ChatRow, written: Collection[Answered]) -> None:
        """Take in a row. written: what is trained in those of its lines that were written."""
        if row.rollout != self._rollout:
            self._rollout, self._written = row.rollout, set()
        self._written.update(written)
        gone = set(trained(row)).difference(written)
        said = trained_in(row.id)
        self._copies.update({(said, one.step): f"left out with row {row.id}" for one in gone})
        left = (self.lost.pop(row.rollout, set()) | gone) - self._written
        if left:
            self.lost[row.rollout] = left

    def true(self, row: Row | ChatRow) -> Row | ChatRow:
        """The row, in which no copy of an answer says that it is trained where it is not."""
        if not self._copies:
            return row
        if isinstance(row, Row):
            return replace(row, spans=tuple(map(self._said, row.spans)))
        return replace(row, messages=tuple(map(self._said, row.messages)))

    def _said(self, one: _Copy) -> _Copy:
        said = self._copies.get((one.why, one.step))
        return replace(one, why=said) if said else one


def trained(row: Row | ChatRow) -> Iterator[Answered]:
    """Which answers a row trains."""
    if isinstance(row, Row):
        yield from (Answered(one.role, one.step) for one in row.spans if one.weight)
        return
    for one in row.messages:
        if one.weight and one.step is not None:
            yield Answered(role(row), one.step)


def role(row: ChatRow) -> SampleRole:
    """The role of the answers that a row trains."""
    return "summary" if row.kind == "summary" else "policy"
