"""Stage 3 of a repair: which events are kept, and what an unsound one costs its rollout.

Also decides what a backup may restore. The chain shows whether an event is what was stored; one
changed column can be put back, a body or row taken from a backup. A rollout that has not ended
loses its steps after the last sound one; one that has ended loses only the event. What was erased
stays erased. Changes nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from houston_daemon.recorder import hash_chain
from houston_daemon.recorder.hash_chain import EventRow
from houston_shared.errors import HoustonError
from houston_shared.records import ENDED_STATES
from houston_shared.store import event_bodies
from houston_shared.store.event_bodies import QUARANTINED_KIND, VOUCHING_KINDS


class EventDecision(NamedTuple):
    """What is to become of one event."""

    seq: int
    row: EventRow | None
    """As it is kept; as it was found where it is set aside; None where nothing is left of it."""
    aside_reason: str = ""
    """Why it is set aside; empty when it is kept."""
    link: bytes = b""
    """The chain behind it."""
    restored: str = ""
    """What was put back."""
    unchecked: bool = False
    """Kept although its place in the chain cannot be checked: what was before it is lost."""
    returned: bool = False
    """Whether an earlier repair had set it aside, and a backup gave it back."""


ReadBody = Callable[[EventRow], bytes | None]
"""The bytes of a row's body, wherever they lie; None when they cannot be read."""
FindSpareRows = Callable[[int], Iterable[EventRow]]
"""Rows that backups hold for an event."""


class EventDecider:
    """Goes through a journal once, in order."""

    def __init__(
        self, read_body: ReadBody, spare_rows: FindSpareRows, end: tuple[int, bytes] | None
    ) -> None:
        """spare_rows: also asked for events that are set aside. end: the last event that is
        vouched for, with its link.
        """
        self._read_body = read_body
        self._spare_rows = spare_rows
        self._end = end
        self._link: bytes | None = hash_chain.GENESIS
        """The chain behind the event before; None where it is not known."""

    def decide_all(self, rows: Iterator[EventRow], last: int) -> Iterator[EventDecision]:
        """Every event from 1 to `last`."""
        ahead = next(rows, None)
        for seq in range(1, last + 1):
            row = None
            if ahead is not None and ahead.seq == seq:
                row, ahead = ahead, next(rows, None)
            follower = ahead if ahead is not None and ahead.seq == seq + 1 else None
            decision = self._decide(seq, row, follower)
            self._link = decision.link or None
            yield decision

    def _decide(self, seq: int, row: EventRow | None, follower: EventRow | None) -> EventDecision:
        if row is not None and row.kind == QUARANTINED_KIND:
            return self._decide_returned(seq, row) or EventDecision(
                seq, row, link=_link_or_empty(row.chain), unchecked=True
            )
        if row is None:
            link = self._end[1] if self._end and self._end[0] == seq else b""
            decision = EventDecision(seq, None, "it cannot be read any more", link)
        else:
            decision = self._decide_found(seq, row, follower)
        if not decision.aside_reason:
            return decision
        for spare in self._spare_rows(seq):
            if (row is None or spare.chain == decision.link) and self._is_valid_spare(spare):
                return EventDecision(
                    seq,
                    spare,
                    link=spare.chain,
                    restored="taken from a backup",
                    unchecked=self._link is None,
                )
        return decision

    def _decide_returned(self, seq: int, row: EventRow) -> EventDecision | None:
        """An event that is set aside, from a backup that has it; its row may have kept its link."""
        link = _link_or_empty(row.chain)
        for spare in self._spare_rows(seq):
            is_known = spare.chain == link if link else self._link is not None
            if is_known and self._is_valid_spare(spare):
                return EventDecision(
                    seq, spare, link=spare.chain, unchecked=self._link is None, returned=True
                )
        return None

    def _is_valid_spare(self, spare: EventRow) -> bool:
        """Whether a row is sound, and follows the event before where that one's link is known."""
        follows = self._link is None or self._next_link(spare, spare.body_hash) == spare.chain
        return follows and self._is_body_sound(spare)

    def _decide_found(self, seq: int, row: EventRow, follower: EventRow | None) -> EventDecision:
        link = _link_or_empty(row.chain)
        sound = self._is_body_sound(row)
        if self._link is not None and self._next_link(row, row.body_hash) != link:
            return self._restore_column(seq, row, sound, follower) or EventDecision(
                seq, row, "it does not fit the chain", link
            )
        if sound:
            return EventDecision(seq, row, link=link, unchecked=self._link is None)
        if self._link is not None and row.erased != 0 and self._has_stored_body(row):
            return EventDecision(
                seq, row._replace(erased=0), link=link, restored="`erased` was put back"
            )
        return EventDecision(seq, row, "its body is not what was stored", link)

    def _restore_column(
        self, seq: int, row: EventRow, sound: bool, follower: EventRow | None
    ) -> EventDecision | None:
        """The row with its link or its hash put back, where that makes it fit."""
        link = _link_or_empty(row.chain)
        data = self._read_body(row)
        digest = hash_chain.body_hash(data) if data is not None else b""
        if self._next_link(row, digest) == link:
            return EventDecision(
                seq, row._replace(body_hash=digest), link=link, restored="its hash was put back"
            )
        expected = self._next_link(row, row.body_hash)
        if sound and expected is not None and self._is_followed(seq, expected, follower):
            return EventDecision(
                seq, row._replace(chain=expected), link=expected, restored="its link was put back"
            )
        return None

    def _is_followed(self, seq: int, link: bytes, follower: EventRow | None) -> bool:
        """Whether the end, or the event behind, fits to `link`."""
        if self._end and self._end[0] == seq:
            return self._end[1] == link
        return follower is not None and bool(
            follower.chain == _chain_link(link, follower, follower.body_hash)
        )

    def _next_link(self, row: EventRow, digest: object) -> bytes | None:
        return None if self._link is None else _chain_link(self._link, row, digest)

    def _is_body_sound(self, row: EventRow) -> bool:
        if row.erased == 1 and row.blob is None and row.body is not None:
            # Whether it is what the erasing event vouches for, `verify` knows.
            return bool(hash_chain.body_hash(row.body) != row.body_hash)
        if row.erased != 0 or (row.body is None) == (row.blob is None):
            return False
        return self._has_stored_body(row)

    def _has_stored_body(self, row: EventRow) -> bool:
        data = self._read_body(row)
        return data is not None and hash_chain.body_hash(data) == row.body_hash


def _chain_link(before: bytes, row: EventRow, digest: object) -> bytes | None:
    try:
        return hash_chain.chain_value(before, row.header, digest)  # type: ignore[arg-type]
    except (TypeError, UnicodeEncodeError, HoustonError, OverflowError):
        return None


def _link_or_empty(value: object) -> bytes:
    return value if isinstance(value, bytes) and len(value) == 32 else b""


STEP_KINDS = frozenset({"head", "sample", "intent", "result", "observation", "delivery", "fork"})
"""Kinds that make up the steps of a rollout."""
HARMLESS_KINDS = frozenset(
    {"assigned", "state", "clock", "cancel", "bookmark", "withdraw", "cleaned"}
    | {"reorder", "verdict", "process-reward", "claim", "note-read"}
    | {"draft", "draft-decision", "review-cost", "job"}
)
"""Kinds whose loss changes no step."""


@dataclass(slots=True)
class RolloutDamage:
    """What is known of one rollout."""

    state: str = "queued"
    closed: list[tuple[int, int]] = field(default_factory=list)
    """(seq, step) of its sound observations."""
    first_bad: int = 0
    bad_step: int = 2**62
    """The first step that an unsound event belonged to."""
    has_spec: bool = False
    """Whether what it was started with is there."""
    loses_steps: bool = False
    first_still_aside: int = 0
    """The first event that stays aside from an earlier repair."""
    work_returned: bool = False
    """Whether work that such a repair had set aside came back."""
    has_sound_event: bool = False
    """Whether any sound event is its own: else its name is part of the damage."""

    @property
    def ended(self) -> bool:
        """Whether nothing goes on in it."""
        return self.state in ENDED_STATES

    @property
    def last_step(self) -> int:
        """The last step that is closed and followed nothing unsound."""
        end = self.first_bad or (self.first_still_aside if self.work_returned else 0) or 2**62
        sound = [step for seq, step in self.closed if seq < end and step < self.bad_step]
        return max(sound, default=0)


class DamageByRollout:
    """All rollouts of one journal; `note` every event in order, then ask."""

    def __init__(self) -> None:
        self.rollouts: dict[str, RolloutDamage] = {}
        self.first_of_unknown_owner = 0
        """The first event that is lost and may have been anybody's; 0 for none."""

    def note(self, decision: EventDecision, owner: str, state: str) -> None:
        """Take note of one event. owner: its rollout; state: what a `state` event moved to."""
        row = decision.row
        if not decision.aside_reason:
            assert row is not None
            if owner:
                damage = self.rollouts.setdefault(owner, RolloutDamage())
                _note_sound_event(damage, row, state)
                damage.work_returned |= decision.returned and row.kind in STEP_KINDS
            return
        kind = str(row.kind) if row is not None else ""
        if row is not None and (not owner or kind == QUARANTINED_KIND):
            return
        if not owner:
            self.first_of_unknown_owner = self.first_of_unknown_owner or decision.seq
            return
        damage = self.rollouts.setdefault(owner, RolloutDamage())
        damage.first_bad = damage.first_bad or decision.seq
        if kind not in HARMLESS_KINDS:
            damage.loses_steps = True
            if row is not None and kind in STEP_KINDS and isinstance(row.step, int):
                damage.bad_step = min(damage.bad_step, row.step)

    def spread_unknown(self) -> None:
        """Count an event of an unknown rollout against every rollout that had not ended."""
        for damage in self.rollouts.values():
            if not damage.has_sound_event:
                self.first_of_unknown_owner = min(
                    self.first_of_unknown_owner or damage.first_bad, damage.first_bad
                )
        first = self.first_of_unknown_owner
        for damage in self.rollouts.values():
            if first and not damage.ended and damage.has_spec:
                damage.first_bad = min(damage.first_bad or first, first)
                damage.loses_steps = True

    def aside_reason(self, decision: EventDecision, owner: str) -> str:
        """Why a sound event is set aside all the same; empty when it stays."""
        damage, row = self.rollouts.get(owner), decision.row
        if damage is None or row is None or row.kind == QUARANTINED_KIND:
            return ""
        is_step, first_aside = row.kind in STEP_KINDS, damage.first_still_aside
        if decision.returned and is_step and not damage.ended and 0 < first_aside < decision.seq:
            return f"it follows event {first_aside}, which no backup gave back"
        if not damage.first_bad:
            return ""
        if not damage.has_spec and damage.has_sound_event:
            return "what its rollout was started with is lost"
        if damage.ended or not damage.loses_steps or not is_step or row.step <= damage.last_step:
            return ""
        return f"it follows event {damage.first_bad}, which is unsound"


def _note_sound_event(damage: RolloutDamage, row: EventRow, state: str) -> None:
    damage.has_sound_event = True
    if row.kind == QUARANTINED_KIND:
        damage.first_still_aside = damage.first_still_aside or row.seq
    elif row.kind == "spec":
        damage.has_spec = True
    elif row.kind == "observation":
        damage.closed.append((row.seq, row.step))
    elif state:
        damage.state = state


_CONTRADICTED_KINDS = STEP_KINDS | {"edit", "withdraw"}
"""Kinds that would contradict what people and a worker have done since."""


class EarlierRepairs:
    """What earlier repairs did, read once; damaged events are ignored."""

    def __init__(self, rows: Iterable[EventRow]) -> None:
        self._set_aside_seqs: set[int] = set()
        self._repaired: dict[int, int] = {}
        """Event that was set aside → the first event that says so."""
        self._newest_activity: dict[str, int] = {}
        """Rollout → its newest event of `_CONTRADICTED_KINDS`."""
        self._erased: set[int] = set()
        self._newest_erasure: dict[str, int] = {}
        """Rollout → the newest event that erased some of its bodies."""
        self.kept_aside: dict[int, tuple[str, str]] = {}
        """Events that a backup has and that stay aside all the same: rollout, and why."""
        for row in rows:
            self._note(row)

    def allows(self, seq: int, spare: EventRow) -> bool:
        """Whether a backup's row may stand in the place of event `seq`."""
        if seq in self._erased and not spare.erased:
            return False
        if seq not in self._set_aside_seqs:
            return True
        rollout = str(spare.rollout)
        objection = self._objection(seq, rollout, str(spare.kind))
        if objection:
            self.kept_aside[seq] = rollout, objection
        return not objection

    def _objection(self, seq: int, rollout: str, kind: str) -> str:
        since = self._repaired.get(seq, 0)
        if self._newest_erasure.get(rollout, 0) > since:
            return "texts of its rollout were erased since"
        if kind in _CONTRADICTED_KINDS and self._newest_activity.get(rollout, 0) > since:
            return "its rollout has continued without it"
        return ""

    def _note(self, row: EventRow) -> None:
        if row.kind == QUARANTINED_KIND:
            self._set_aside_seqs.add(row.seq)
        elif row.kind in _CONTRADICTED_KINDS:
            self._newest_activity[row.rollout] = row.seq
        elif row.kind in VOUCHING_KINDS and _is_row_sound(row):
            match msgspec.msgpack.decode(row.body, type=event_bodies.BODY_TYPES[row.kind]):
                case event_bodies.BodiesErased(seqs=seqs):
                    self._newest_erasure[row.rollout] = row.seq
                    self._erased.update(seqs)
                case event_bodies.JournalRepaired(seqs=seqs):
                    for seq in seqs:
                        self._repaired.setdefault(seq, row.seq)


def _is_row_sound(row: EventRow) -> bool:
    return isinstance(row.body, bytes) and hash_chain.body_hash(row.body) == row.body_hash
