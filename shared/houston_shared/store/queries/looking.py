"""Presence: who looks at which rollout now, who did and for how long, and what they last saw.

Rows of `looks`, which the recorder keeps by what consoles say (`recorder.people.presence`): seconds
old at best. Whether a visit is over is decided here by the clock, since nobody writes that it is.
"""

from typing import NamedTuple

from houston_shared.clock import now_us
from houston_shared.person import Person
from houston_shared.store.looks import SILENCE_US, WRITTEN_US
from houston_shared.store.plan import Ask, Plan, RowRecord, columns, from_rows


class Look(RowRecord, frozen=True):
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

    def gone(self, now: int) -> bool:
        """Whether the newest visit is over."""
        return now - self.last > SILENCE_US + WRITTEN_US

    def looks(self, now: int) -> bool:
        """Whether they look right now."""
        return bool(self.here) and not self.gone(now)


class Seen(NamedTuple):
    """Up to where a person knew a rollout before the visit that they are on."""

    seq: int
    step: int
    at: int
    """UTC microseconds."""


def of(rollout: str, person: Person) -> Plan[Look | None]:
    """One person's looks at one rollout; None where there were none."""
    rows = yield Ask(
        f"SELECT {columns(Look)} FROM looks WHERE rollout = ? AND uid = ? AND name = ?",
        (rollout, person.uid, person.name),
    )
    return Look(*rows[0]) if rows else None


def everybody(rollout: str = "") -> Plan[list[Look]]:
    """All who ever looked, of one rollout when named, the latest first."""
    rows = yield Ask(
        f"SELECT {columns(Look)} FROM looks WHERE ?1 = '' OR rollout = ?1 ORDER BY last DESC, name",
        (rollout,),
    )
    return from_rows(Look, rows)


def by_rollout(found: list[Look]) -> dict[str, list[Look]]:
    """The same, by rollout."""
    by: dict[str, list[Look]] = {}
    for one in found:
        by.setdefault(one.rollout, []).append(one)
    return by


def now(at: int = 0) -> Plan[dict[str, list[Look]]]:
    """By rollout, who looks at it at this moment (`at`: UTC microseconds, the clock's when 0)."""
    moment = at or now_us()
    found = yield from everybody()
    return by_rollout([one for one in found if one.looks(moment)])


def last_seen(rollout: str, person: Person, at: int = 0) -> Plan[Seen | None]:
    """Where "since you were here" begins; None for who was never there before this visit.

    The same whether it is asked before the visit's first word to the daemon or after it.
    """
    return seen((yield from of(rollout, person)), at)


def newest(look: Look) -> Seen | None:
    """Up to where a person knows a rollout by now; None for who never had a key pressed at it."""
    return Seen(look.seq, look.step, look.seen_at) if look.seen_at else None


def seen(look: Look | None, at: int = 0) -> Seen | None:
    """As `last_seen`, of a row that was read already."""
    if look is None:
        return None
    if look.gone(at or now_us()):
        return newest(look)
    before = Seen(look.before_seq, look.before_step, look.before_at)
    return before if before.at else None
