"""What a repair keeps: which events are sound, and what an unsound one costs its rollout.

Also what a backup may give back. The chain decides whether an event is what was stored; one changed
column can be put back, a body or row taken from a backup. A rollout that goes on loses its steps
behind the last sound one; one that has ended loses the event alone. What was erased stays erased.
Changes nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from houston_daemon.maintenance.home_verification import EventRow
from houston_daemon.recorder import hash_chain
from houston_daemon.recorder.event_projections import EventHeader
from houston_shared.errors import HoustonError
from houston_shared.records import ENDED_STATES
from houston_shared.store import event_bodies
from houston_shared.store.event_bodies import QUARANTINED_KIND

BODY_COLUMN, BLOB_COLUMN, ERASED_COLUMN, HASH_COLUMN, LINK_COLUMN = 7, 8, 9, 10, 11
"""Columns of a row."""


class EventDecision(NamedTuple):
    """What is to become of one event."""

    seq: int
    row: EventRow | None
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


ReadBody = Callable[[EventRow], bytes | None]
"""The bytes of a row's body, wherever they lie; None when they cannot be read."""
FindSpareRows = Callable[[int], Iterable[EventRow]]
"""Rows that backups hold for an event."""


class EventDecider:
    """Goes through a journal once, in order."""

    def __init__(self, body: ReadBody, spare: FindSpareRows, end: tuple[int, bytes] | None) -> None:
        """spare: also asked for events that are set aside. end: the last event that is vouched
        for, with its link.
        """
        self._body = body
        self._spare = spare
        self._end = end
        self._link: bytes | None = hash_chain.GENESIS

    def all(self, rows: Iterator[EventRow], last: int) -> Iterator[EventDecision]:
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

    def _one(self, seq: int, row: EventRow | None, follower: EventRow | None) -> EventDecision:
        if row is not None and row[5] == event_bodies.QUARANTINED_KIND:
            return self._back(seq, row) or EventDecision(
                seq, row, link=_link_or_empty(row[LINK_COLUMN]), taken=True
            )
        judged = self._lost(seq) if row is None else self._found(seq, row, follower)
        if not judged.why:
            return judged
        for spare in self._spare(seq):
            same = row is None or spare[LINK_COLUMN] == judged.link
            if same and self._fits(spare):
                text = "taken from a backup"
                taken = self._link is None
                return EventDecision(seq, spare, mended=text, link=spare[LINK_COLUMN], taken=taken)
        return judged

    def _back(self, seq: int, row: EventRow) -> EventDecision | None:
        """An event that is set aside, from a backup that has it; its row may have kept its link."""
        link = _link_or_empty(row[LINK_COLUMN])
        for spare in self._spare(seq):
            known = spare[LINK_COLUMN] == link if link else self._link is not None
            if known and self._fits(spare):
                taken = self._link is None
                return EventDecision(seq, spare, link=spare[LINK_COLUMN], taken=taken, back=True)
        return None

    def _fits(self, spare: EventRow) -> bool:
        """Whether a row is sound, and follows the event before where that one's link is known."""
        follows = self._link is None or self._links(spare, spare[HASH_COLUMN]) == spare[LINK_COLUMN]
        return follows and self._sound_body(spare)

    def _lost(self, seq: int) -> EventDecision:
        link = self._end[1] if self._end and self._end[0] == seq else b""
        return EventDecision(seq, None, "it cannot be read any more", link=link)

    def _found(self, seq: int, row: EventRow, follower: EventRow | None) -> EventDecision:
        link = _link_or_empty(row[LINK_COLUMN])
        sound = self._sound_body(row)
        if self._link is None:
            if sound:
                return EventDecision(seq, row, taken=True, link=link)
            return EventDecision(seq, row, "its body is not what was stored", link=link)
        if self._links(row, row[HASH_COLUMN]) == link:
            return self._linked(seq, row, sound, link)
        return self._mended(seq, row, sound, follower) or EventDecision(
            seq, row, "it does not fit the chain", link=link
        )

    def _linked(self, seq: int, row: EventRow, sound: bool, link: bytes) -> EventDecision:
        if sound:
            return EventDecision(seq, row, link=link)
        data = self._body(row)
        if (
            row[ERASED_COLUMN] != 0
            and data is not None
            and hash_chain.body_hash(data) == row[HASH_COLUMN]
        ):
            return EventDecision(
                seq,
                _replace_column(row, ERASED_COLUMN, 0),
                mended="`erased` was put back",
                link=link,
            )
        return EventDecision(seq, row, "its body is not what was stored", link=link)

    def _mended(
        self, seq: int, row: EventRow, sound: bool, follower: EventRow | None
    ) -> EventDecision | None:
        """The row with its link or its hash put back, where that makes it fit."""
        link = _link_or_empty(row[LINK_COLUMN])
        data = self._body(row)
        digest = hash_chain.body_hash(data) if data is not None else b""
        if self._links(row, digest) == link:
            return EventDecision(
                seq,
                _replace_column(row, HASH_COLUMN, digest),
                mended="its hash was put back",
                link=link,
            )
        should = self._links(row, row[HASH_COLUMN])
        if sound and should is not None and self._follows(seq, should, follower):
            return EventDecision(
                seq,
                _replace_column(row, LINK_COLUMN, should),
                mended="its link was put back",
                link=should,
            )
        return None

    def _follows(self, seq: int, link: bytes, follower: EventRow | None) -> bool:
        if self._end and self._end[0] == seq:
            return self._end[1] == link
        return follower is not None and bool(
            follower[LINK_COLUMN] == _chain_link(link, follower, follower[HASH_COLUMN])
        )

    def _links(self, row: EventRow, digest: object) -> bytes | None:
        return None if self._link is None else _chain_link(self._link, row, digest)

    def _sound_body(self, row: EventRow) -> bool:
        if row[ERASED_COLUMN] == 1 and row[BLOB_COLUMN] is None and row[BODY_COLUMN] is not None:
            # Whether it is what the erasing event vouches for, `verify` knows.
            return bool(hash_chain.body_hash(row[BODY_COLUMN]) != row[HASH_COLUMN])
        if row[ERASED_COLUMN] != 0 or (row[BODY_COLUMN] is None) == (row[BLOB_COLUMN] is None):
            return False
        data = self._body(row)
        return data is not None and hash_chain.body_hash(data) == row[HASH_COLUMN]


def _chain_link(before: bytes, row: EventRow, digest: object) -> bytes | None:
    try:
        return hash_chain.chain_value(before, *EventHeader(*row[:7]), digest)  # type: ignore[arg-type]
    except (TypeError, UnicodeEncodeError, HoustonError, OverflowError):
        return None


def _replace_column(row: EventRow, column: int, value: object) -> EventRow:
    return (*row[:column], value, *row[column + 1 :])


def _link_or_empty(value: object) -> bytes:
    return value if isinstance(value, bytes) and len(value) == 32 else b""


STEP_KINDS = frozenset({"head", "sample", "intent", "result", "observation", "delivery", "fork"})
"""Kinds that make up the steps of a rollout."""
HARMLESS_KINDS = frozenset(
    {"assigned", "state", "clock", "cancel", "bookmark", "withdraw", "cleaned"}
    | {"reorder", "verdict", "claim"}
)
"""Kinds whose loss changes no step."""


@dataclass(slots=True)
class RolloutDamage:
    """One rollout."""

    state: str = "queued"
    closed: list[tuple[int, int]] = field(default_factory=list)
    """(seq, step) of its sound observations."""
    first_bad: int = 0
    bad_step: int = 2**62
    """The first step that an unsound event belonged to."""
    spec: bool = False
    """Whether what it was started with is there."""
    rewinds: bool = False
    gap: int = 0
    """The first event that stays aside from an earlier repair."""
    back: bool = False
    """Whether work that such a repair had set aside came back."""
    known: bool = False
    """Whether any sound event is its own: else its name is part of the damage."""

    @property
    def ended(self) -> bool:
        """Whether nothing goes on in it."""
        return self.state in ENDED_STATES

    @property
    def last_step(self) -> int:
        """The last step that is closed and followed nothing unsound."""
        end = self.first_bad or (self.gap if self.back else 0) or 2**62
        sound = [step for seq, step in self.closed if seq < end and step < self.bad_step]
        return max(sound, default=0)


class DamageByRollout:
    """All rollouts of one journal; `see` every event in order, then ask."""

    def __init__(self) -> None:
        self.of: dict[str, RolloutDamage] = {}
        self.everybody = 0
        """The first event that is lost and may have been anybody's; 0 for none."""

    def see(self, judged: EventDecision, owner: str, state: str) -> None:
        """Take note of one event. owner: its rollout; state: what a `state` event moved to."""
        row = judged.row
        if not judged.why:
            assert row is not None
            if owner:
                fate = self.of.setdefault(owner, RolloutDamage())
                self._sound(fate, judged.seq, row[5], row[2], state)
                fate.back |= judged.back and row[5] in STEP_KINDS
            return
        kind = str(row[5]) if row is not None else ""
        if row is not None and (not owner or kind == QUARANTINED_KIND):
            return
        if not owner:
            self.everybody = self.everybody or judged.seq
            return
        fate = self.of.setdefault(owner, RolloutDamage())
        fate.first_bad = fate.first_bad or judged.seq
        if kind not in HARMLESS_KINDS:
            fate.rewinds = True
            if row is not None and kind in STEP_KINDS and isinstance(row[2], int):
                fate.bad_step = min(fate.bad_step, row[2])

    def settle(self) -> None:
        """An event that may have been anybody's was everybody's who had not ended."""
        for fate in self.of.values():
            if not fate.known:
                self.everybody = min(self.everybody or fate.first_bad, fate.first_bad)
        for fate in self.of.values():
            if self.everybody and not fate.ended and fate.spec:
                fate.first_bad = min(fate.first_bad or self.everybody, self.everybody)
                fate.rewinds = True

    def aside(self, judged: EventDecision, owner: str) -> str:
        """Why a sound event is set aside all the same; empty when it stays."""
        fate, row = self.of.get(owner), judged.row
        if fate is None or row is None or row[5] == QUARANTINED_KIND:
            return ""
        kind, step = row[5], row[2]
        if judged.back and kind in STEP_KINDS and not fate.ended and 0 < fate.gap < judged.seq:
            return f"it follows event {fate.gap}, which no backup gave back"
        if not fate.first_bad:
            return ""
        if not fate.spec and fate.known:
            return "what its rollout was started with is lost"
        stays = fate.ended or not fate.rewinds or kind not in STEP_KINDS or step <= fate.last_step
        return "" if stays else f"it follows event {fate.first_bad}, which is unsound"

    def _sound(self, fate: RolloutDamage, seq: int, kind: str, step: int, state: str) -> None:
        fate.known = True
        if kind == QUARANTINED_KIND:
            fate.gap = fate.gap or seq
        elif kind == "spec":
            fate.spec = True
        elif kind == "observation":
            fate.closed.append((seq, step))
        elif state:
            fate.state = state


SPARE_ERASED_COLUMN = 9
"""Column of a row."""
_FACT_BODY_COLUMN, _FACT_HASH_COLUMN = 7, 10
_CONTRADICTED_KINDS = STEP_KINDS | {"edit", "withdraw"}
"""Kinds that would contradict what people and a worker have done since."""


class EarlierRepairs:
    """Looks at a journal once; what is damaged in it says nothing."""

    def __init__(self, rows: Iterable[EventRow]) -> None:
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

    def allows(self, seq: int, spare: EventRow) -> bool:
        """Whether a backup's row may stand in the place of event `seq`."""
        if seq in self._erased and not spare[SPARE_ERASED_COLUMN]:
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
        if kind in _CONTRADICTED_KINDS and self._worked.get(rollout, 0) > since:
            return "its rollout has gone on without it"
        return ""

    def _see(self, row: EventRow) -> None:
        seq, rollout, kind = row[0], row[1], row[5]
        if kind == event_bodies.QUARANTINED_KIND:
            self._aside.add(seq)
        elif kind in _CONTRADICTED_KINDS:
            self._worked[rollout] = seq
        elif kind in ("erased", "repaired") and _is_row_sound(row):
            told = msgspec.msgpack.decode(
                row[_FACT_BODY_COLUMN], type=event_bodies.BODY_TYPES[kind]
            )
            if isinstance(told, event_bodies.BodiesErased):
                self._erasing[rollout] = seq
                self._erased.update(told.seqs)
            elif isinstance(told, event_bodies.JournalRepaired):
                for one in told.seqs:
                    self._repaired.setdefault(one, seq)


def _is_row_sound(row: EventRow) -> bool:
    return (
        isinstance(row[_FACT_BODY_COLUMN], bytes)
        and hash_chain.body_hash(row[_FACT_BODY_COLUMN]) == row[_FACT_HASH_COLUMN]
    )
