"""What may come back from a backup, as the journal itself tells: what was set aside, or erased.

An event that an earlier repair set aside comes back where its rollout stands as that repair left
it. One that went on has other events in its place; and what was erased since must stay erased,
whatever a backup of before still holds.
"""

from collections.abc import Iterable

import msgspec

from houston_daemon.recorder.upkeep.rewind import WORK
from houston_daemon.recorder.upkeep.verify_events import Row
from houston_shared.store import bodies, chain

ERASED = 9
"""Column of a row."""
_BODY, _HASH = 7, 10
_IN_PLACE = WORK | {"edit", "withdraw"}
"""Kinds that would contradict what people and a worker have done since."""


class Earlier:
    """Looks at a journal once; what is damaged in it says nothing."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._aside: set[int] = set()
        self._repaired: dict[int, int] = {}
        """Event that was set aside → the first event that says so."""
        self._worked: dict[str, int] = {}
        """Rollout → its newest event of `_IN_PLACE`."""
        self._erased: set[int] = set()
        self._erasing: dict[str, int] = {}
        """Rollout → the newest event that erased some of its bodies."""
        self.stays: dict[int, tuple[str, str]] = {}
        """Events that a backup has and that stay aside all the same: rollout, and why."""
        for row in rows:
            self._see(row)

    def allows(self, seq: int, spare: Row) -> bool:
        """Whether a backup's row may stand in the place of event `seq`."""
        if seq in self._erased and not spare[ERASED]:
            return False
        if seq not in self._aside:
            return True
        why = self._why_not(seq, str(spare[1]), str(spare[5]))
        if why:
            self.stays[seq] = str(spare[1]), why
        return not why

    def _why_not(self, seq: int, rollout: str, kind: str) -> str:
        since = self._repaired.get(seq, 0)
        if self._erasing.get(rollout, 0) > since:
            return "texts of its rollout were erased since"
        if kind in _IN_PLACE and self._worked.get(rollout, 0) > since:
            return "its rollout has gone on without it"
        return ""

    def _see(self, row: Row) -> None:
        seq, rollout, kind = row[0], row[1], row[5]
        if kind == bodies.ASIDE:
            self._aside.add(seq)
        elif kind in _IN_PLACE:
            self._worked[rollout] = seq
        elif kind in ("erased", "repaired") and _sound(row):
            told = msgspec.msgpack.decode(row[_BODY], type=bodies.TYPES[kind])
            if isinstance(told, bodies.Erased):
                self._erasing[rollout] = seq
                self._erased.update(told.seqs)
            elif isinstance(told, bodies.Repaired):
                for one in told.seqs:
                    self._repaired.setdefault(one, seq)


def _sound(row: Row) -> bool:
    return isinstance(row[_BODY], bytes) and chain.body_hash(row[_BODY]) == row[_HASH]
