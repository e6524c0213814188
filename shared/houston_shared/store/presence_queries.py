"""Presence, claims and cost: who looks at or after which rollout, since when, and for how long.

The recorder keeps the rows of `looks` from what consoles report: they are some seconds old. The
clock decides here whether a visit is over, because nobody writes its end. It also says who uses
this process, by the daemon's name for them, and what attention cost: minutes at a rollout and words
said to it, by person.
"""

import os
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from houston_shared.errors import close_matches
from houston_shared.store import journal_events, rollout_queries
from houston_shared.store.journal_events import (
    ReadPlan,
    RowRecord,
    RunSql,
    select_first_record,
    select_records,
    split_for_in,
)
from houston_shared.times_and_counts import count_words, now_us

PERSON_NAME_LIMIT = 64
"""Characters of a claimed name that are kept."""


class Person(NamedTuple):
    """A user of this machine under one name; several may share a login."""

    name: str
    uid: int


def current_person(claimed: str = "") -> Person:
    """Whose presence and claims are one's own. claimed: as in `wire.FromPerson`."""
    uid = os.getuid()
    return Person(claimed.strip()[:PERSON_NAME_LIMIT] or login_name(uid), uid)


def login_name(uid: int) -> str:
    """Of a user of this machine; the number where there is no name."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


LOOK_COLUMNS = (
    "rollout, name, uid, verified, first, last, here, visits, visit_at, seq, step, seen_at,"
    " before_seq, before_step, before_at, looked_us, active_us"
)
"""In the order of the table: two texts, then whole numbers."""

SILENCE_US = 30_000_000
"""Microseconds without a word of the console after which its person has gone."""
IDLE_US = 600_000_000
"""Microseconds without a key after which a person at an open console has gone."""
WRITTEN_US = 5_000_000
"""How old presence in the database may be while its person is there."""


class PresenceRow(RowRecord, frozen=True):
    """A row of `looks`: one person and one rollout. Times are UTC microseconds."""

    rollout: str
    name: str
    uid: int
    verified: int
    """0 where a shared login claimed the name."""
    first: int
    last: int
    here: int
    """0 once they turned to something else."""
    visits: int
    visit_at: int
    """When the newest visit began."""
    seq: int
    """Newest event of the rollout when a key had last been pressed; 0 for none."""
    step: int
    """Where they were then."""
    seen_at: int
    """When that was; 0 for never."""
    before_seq: int
    before_step: int
    before_at: int
    """The same three as the newest visit began."""
    looked_us: int
    active_us: int
    """Of `looked_us`, with a key pressed in the last minute."""

    def is_over(self, now: int) -> bool:
        """Whether the newest visit is over."""
        return now - self.last > SILENCE_US + WRITTEN_US

    def looks(self, now: int) -> bool:
        """Whether they look right now."""
        return bool(self.here) and not self.is_over(now)


class LastSeen(NamedTuple):
    """Up to where a person knew a rollout before the visit that they are on."""

    seq: int
    step: int
    at: int
    """UTC microseconds."""


def find_presence(rollout: str, person: Person) -> ReadPlan[PresenceRow | None]:
    """One person's looks at one rollout; None where there were none."""
    condition = "looks WHERE rollout = ? AND uid = ? AND name = ?"
    values = (rollout, person.uid, person.name)
    return (yield from select_first_record(PresenceRow, condition, values))


def list_presence(rollout: str = "") -> ReadPlan[list[PresenceRow]]:
    """All who ever looked, of one rollout when named, the latest first."""
    condition = "looks WHERE ?1 = '' OR rollout = ?1 ORDER BY last DESC, name"
    return (yield from select_records(PresenceRow, condition, (rollout,)))


def group_presence_by_rollout(rows: list[PresenceRow]) -> dict[str, list[PresenceRow]]:
    """The same, by rollout."""
    by_rollout: dict[str, list[PresenceRow]] = {}
    for row in rows:
        by_rollout.setdefault(row.rollout, []).append(row)
    return by_rollout


def read_last_seen(rollout: str, person: Person, at: int = 0) -> ReadPlan[LastSeen | None]:
    """Where "since you were here" begins; None for somebody who was never there before this visit.

    The answer is the same before and after the visit's first message to the daemon.
    """
    return last_seen_before_visit((yield from find_presence(rollout, person)), at)


def last_seen_now(look: PresenceRow) -> LastSeen | None:
    """Up to where a person knows a rollout now; None if they never pressed a key there."""
    return LastSeen(look.seq, look.step, look.seen_at) if look.seen_at else None


def last_seen_before_visit(look: PresenceRow | None, at: int = 0) -> LastSeen | None:
    """As `last_seen`, of a row that was read already."""
    if look is None:
        return None
    if look.is_over(at or now_us()):
        return last_seen_now(look)
    before = LastSeen(look.before_seq, look.before_step, look.before_at)
    return before if before.at else None


class ClaimStatus(NamedTuple):
    """How a rollout is held, or what was left when it was released."""

    rollout: str
    holder: str
    """Empty when nobody holds it."""
    uid: int | None
    verified: bool
    since: int
    """When it was claimed or released, UTC microseconds."""
    seq: int
    note: str = ""
    note_by: str = ""
    note_at: int = 0
    note_seq: int = 0
    """The event that left the note; 0 for none."""
    note_to: str = ""
    """Who the note is for; empty for anybody."""
    read_by: str = ""
    """Who of those it is for read it first; empty while nobody has."""
    read_at: int = 0

    @property
    def is_handed_over(self) -> bool:
        """Whether it was let go with a note, and nobody has taken it since."""
        return not self.holder and bool(self.note) and self.note_seq == self.seq

    def is_note_for(self, person: str) -> bool:
        """Whether its note is for this person to read."""
        return bool(self.note) and self.note_by != person and self.note_to in ("", person)


def find_claim(rollout: str) -> ReadPlan[ClaimStatus | None]:
    """Of one rollout; None where nobody ever claimed it."""
    return (yield from _read_claims("WHERE rollout = ?", (rollout,))).get(rollout)


def list_claims() -> ReadPlan[dict[str, ClaimStatus]]:
    """Of every rollout that was ever claimed."""
    return (yield from _read_claims("", ()))


def _read_claims(condition: str, parameters: tuple[str, ...]) -> ReadPlan[dict[str, ClaimStatus]]:
    rows = yield RunSql(
        "SELECT rollout, holder, uid, verified, since, seq, note_seq, note_to, read_by, read_at"
        f" FROM claims {condition}",
        parameters,
    )
    notes = yield from journal_events.events_by_seq([row[6] for row in rows if row[6]])
    claims: dict[str, ClaimStatus] = {}
    for rollout, holder, uid, verified, since, seq, note_seq, note_to, read_by, read_at in rows:
        claim = ClaimStatus(rollout, holder, uid, bool(verified), since, seq)
        if event := notes.get(note_seq):
            fields = yield from journal_events.read_event_fields(event)
            claim = claim._replace(
                note=str(fields.get("note", journal_events.ERASED_TEXT)),
                note_by=str(fields.get("by", "")),
                note_at=event.at,
                note_seq=note_seq,
                note_to=note_to,
                read_by=read_by,
                read_at=read_at or 0,
            )
        claims[rollout] = claim
    return claims


def list_known_names() -> ReadPlan[list[str]]:
    """Everybody who had a console open, looked, held a rollout, was handed one, or spoke."""
    rows = yield RunSql(
        "SELECT name FROM annotators UNION SELECT name FROM looks UNION SELECT holder FROM claims"
        " UNION SELECT note_to FROM claims UNION SELECT author FROM guidance ORDER BY 1"
    )
    return [name for (name,) in rows if name]


MIN_NAME_SIMILARITY = 0.6
"""From which a name may be meant for another: names are short, and two letters of `ben` change
places."""


def find_meant_name(name: str, known: Sequence[str]) -> str:
    """The known name that `name` may be a slip of; empty where it is known, or like none."""
    if name in known:
        return ""
    by_lower = {each.lower(): each for each in known}
    near = close_matches(name.lower(), by_lower, 1, MIN_NAME_SIMILARITY)
    return by_lower[near[0]] if near else ""


class AttentionCost(msgspec.Struct, frozen=True):
    """One person and one rollout."""

    name: str
    verified: bool
    active_us: int = 0
    """Time at the rollout with a key pressed in the last minute, microseconds."""
    looked_us: int = 0
    """Time with it on the screen."""
    visits: int = 0
    messages: int = 0
    """Guidance that was not taken back."""
    words: int = 0
    """Of that guidance; a Chinese or Japanese character counts as one."""


class _GuidanceWords(msgspec.Struct, frozen=True):
    text: str
    words: int = 0

    @property
    def count(self) -> int:
        """Words, also of a text that was erased since."""
        return self.words or (
            0 if self.text == journal_events.ERASED_TEXT else count_words(self.text)
        )


_CostByPerson = dict[tuple[str, bool], AttentionCost]
"""By name, and whether it is the kernel's word."""


def read_attention_costs(rollouts: Sequence[str]) -> ReadPlan[dict[str, list[AttentionCost]]]:
    """By rollout, everybody who looked or spoke, who spent most time first."""
    costs: dict[str, _CostByPerson] = {rollout: {} for rollout in rollouts}
    for look in (yield from list_presence()):
        if look.rollout in costs:
            _add_presence(costs[look.rollout], look)
    for marks, part in split_for_in(rollouts):
        for rollout, message in (yield from _read_guidance_costs(f"rollout IN ({marks})", part)):
            _add_cost(costs[rollout], message)
    return {rollout: _sort_costs(by_person) for rollout, by_person in costs.items()}


def read_attention_cost_with_past(rollout: str) -> ReadPlan[list[AttentionCost]]:
    """The same of one rollout and of the past that it shares, for a branch.

    Of that past, the words that were heard in it, and all the time spent at the rollouts that had
    it: presence has no steps.
    """
    costs: _CostByPerson = {}
    for part in (yield from rollout_queries.step_ranges(rollout)):
        for look in (yield from list_presence(part.rollout)):
            _add_presence(costs, look)
        is_own = part.rollout == rollout
        condition = "rollout = ?" if is_own else "rollout = ? AND delivered_step <= ?"
        values = (part.rollout,) if is_own else (part.rollout, part.last)
        for _, message in (yield from _read_guidance_costs(condition, values)):
            _add_cost(costs, message)
    return _sort_costs(costs)


def _add_presence(costs: _CostByPerson, look: PresenceRow) -> None:
    times = (look.active_us, look.looked_us, look.visits)
    _add_cost(costs, AttentionCost(look.name, bool(look.verified), *times))


def _add_cost(costs: _CostByPerson, more: AttentionCost) -> None:
    key = more.name, more.verified
    before = costs.get(key) or AttentionCost(*key)
    costs[key] = AttentionCost(
        *key,
        active_us=before.active_us + more.active_us,
        looked_us=before.looked_us + more.looked_us,
        visits=before.visits + more.visits,
        messages=before.messages + more.messages,
        words=before.words + more.words,
    )


def _read_guidance_costs(
    condition: str, values: tuple[object, ...]
) -> ReadPlan[list[tuple[str, AttentionCost]]]:
    """By rollout, one for each message."""
    rows = yield RunSql(
        "SELECT rollout, author, verified, text_seq FROM guidance"
        f" WHERE {condition} AND state <> 'withdrawn'",
        values,
    )
    nothing = _GuidanceWords("")
    texts = yield from journal_events.read_records_at(
        [row[3] for row in rows], _GuidanceWords, nothing
    )
    return [
        (
            rollout,
            AttentionCost(author, bool(verified), messages=1, words=texts.get(seq, nothing).count),
        )
        for rollout, author, verified, seq in rows
    ]


def _sort_costs(costs: _CostByPerson) -> list[AttentionCost]:
    return sorted(costs.values(), key=lambda cost: (-cost.active_us, -cost.words, cost.name))
