"""Which events of a damaged journal are sound, and what each unsound one costs its rollout.

The chain decides: an event is what was stored when the chain before it, its header and the hash of
its body give its own link, and the next event's link follows from that. One changed column can be
told from the others and is put back; a body or row that a backup holds with the right hash is
taken from there. Everything else is set aside. Changes nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from houston_daemon.recorder.derived.rules import Event
from houston_daemon.recorder.upkeep.verify_events import Row
from houston_shared.errors import HoustonError
from houston_shared.store import bodies, chain

BODY, BLOB, ERASED, HASH, LINK = 7, 8, 9, 10, 11
"""Columns of a row."""


class Judged(NamedTuple):
    """What is to become of one event."""

    seq: int
    row: Row | None
    """As it is kept; as it was found where it is set aside; None where nothing is left of it."""
    why: str = ""
    """Why it is set aside; empty when it is kept."""
    taken: bool = False
    """Kept although its place in the chain cannot be checked: what was before it is lost."""
    mended: str = ""
    """What was put back."""
    link: bytes = b""
    """The chain behind it."""
    back: bool = False
    """Whether an earlier repair had set it aside, and a backup gave it back."""


Body = Callable[[Row], bytes | None]
"""The bytes of a row's body, wherever they lie; None when they cannot be read."""
Spare = Callable[[int], Iterable[Row]]
"""Rows that backups hold for an event."""


class Judge:
    """Goes through a journal once, in order."""

    def __init__(self, body: Body, spare: Spare, end: tuple[int, bytes] | None) -> None:
        """spare: also asked for events that are set aside. end: the last event that is vouched
        for, with its link.
        """
        self._body = body
        self._spare = spare
        self._end = end
        self._link: bytes | None = chain.GENESIS

    def all(self, rows: Iterator[Row], last: int) -> Iterator[Judged]:
        """Every event from 1 to `last`."""
        ahead = next(rows, None)
        for seq in range(1, last + 1):
            row = None
            if ahead is not None and ahead[0] == seq:
                row, ahead = ahead, next(rows, None)
            follower = ahead if ahead is not None and ahead[0] == seq + 1 else None
            judged = self._one(seq, row, follower)
            self._link = judged.link or None
            yield judged

    def _one(self, seq: int, row: Row | None, follower: Row | None) -> Judged:
        if row is not None and row[5] == bodies.ASIDE:
            return self._back(seq, row) or Judged(seq, row, link=_bytes(row[LINK]), taken=True)
        judged = self._lost(seq) if row is None else self._found(seq, row, follower)
        if not judged.why:
            return judged
        for spare in self._spare(seq):
            same = row is None or spare[LINK] == judged.link
            if same and self._fits(spare):
                text = "taken from a backup"
                taken = self._link is None
                return Judged(seq, spare, mended=text, link=spare[LINK], taken=taken)
        return judged

    def _back(self, seq: int, row: Row) -> Judged | None:
        """An event that is set aside, from a backup that has it; its row may have kept its link."""
        link = _bytes(row[LINK])
        for spare in self._spare(seq):
            known = spare[LINK] == link if link else self._link is not None
            if known and self._fits(spare):
                taken = self._link is None
                return Judged(seq, spare, link=spare[LINK], taken=taken, back=True)
        return None

    def _fits(self, spare: Row) -> bool:
        """Whether a row is sound, and follows the event before where that one's link is known."""
        follows = self._link is None or self._links(spare, spare[HASH]) == spare[LINK]
        return follows and self._sound_body(spare)

    def _lost(self, seq: int) -> Judged:
        link = self._end[1] if self._end and self._end[0] == seq else b""
        return Judged(seq, None, "it cannot be read any more", link=link)

    def _found(self, seq: int, row: Row, follower: Row | None) -> Judged:
        link = _bytes(row[LINK])
        sound = self._sound_body(row)
        if self._link is None:
            if sound:
                return Judged(seq, row, taken=True, link=link)
            return Judged(seq, row, "its body is not what was stored", link=link)
        if self._links(row, row[HASH]) == link:
            return self._linked(seq, row, sound, link)
        return self._mended(seq, row, sound, follower) or Judged(
            seq, row, "it does not fit the chain", link=link
        )

    def _linked(self, seq: int, row: Row, sound: bool, link: bytes) -> Judged:
        if sound:
            return Judged(seq, row, link=link)
        data = self._body(row)
        if row[ERASED] != 0 and data is not None and chain.body_hash(data) == row[HASH]:
            return Judged(seq, _with(row, ERASED, 0), mended="`erased` was put back", link=link)
        return Judged(seq, row, "its body is not what was stored", link=link)

    def _mended(self, seq: int, row: Row, sound: bool, follower: Row | None) -> Judged | None:
        """The row with its link or its hash put back, where that makes it fit."""
        link = _bytes(row[LINK])
        data = self._body(row)
        digest = chain.body_hash(data) if data is not None else b""
        if self._links(row, digest) == link:
            return Judged(seq, _with(row, HASH, digest), mended="its hash was put back", link=link)
        should = self._links(row, row[HASH])
        if sound and should is not None and self._follows(seq, should, follower):
            return Judged(
                seq, _with(row, LINK, should), mended="its link was put back", link=should
            )
        return None

    def _follows(self, seq: int, link: bytes, follower: Row | None) -> bool:
        if self._end and self._end[0] == seq:
            return self._end[1] == link
        return follower is not None and bool(
            follower[LINK] == _link(link, follower, follower[HASH])
        )

    def _links(self, row: Row, digest: object) -> bytes | None:
        return None if self._link is None else _link(self._link, row, digest)

    def _sound_body(self, row: Row) -> bool:
        if row[ERASED] == 1 and row[BLOB] is None and row[BODY] is not None:
            # Whether it is what the erasing event vouches for, `verify` knows.
            return bool(chain.body_hash(row[BODY]) != row[HASH])
        if row[ERASED] != 0 or (row[BODY] is None) == (row[BLOB] is None):
            return False
        data = self._body(row)
        return data is not None and chain.body_hash(data) == row[HASH]


def _link(before: bytes, row: Row, digest: object) -> bytes | None:
    try:
        return chain.link(before, *Event(*row[:7]), digest)  # type: ignore[arg-type]
    except (TypeError, UnicodeEncodeError, HoustonError, OverflowError):
        return None


def _with(row: Row, column: int, value: object) -> Row:
    return (*row[:column], value, *row[column + 1 :])


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) and len(value) == 32 else b""
