"""What `tail` reads: the newest events that somebody wants, and those behind a sequence, by pages.

Sequences rise with the commits of the one writer, so whoever remembers the newest that was read
misses nothing and sees nothing twice, whatever the daemon did meanwhile.
"""

from collections.abc import Sequence
from typing import NamedTuple

from houston_console.headless import entry
from houston_console.headless.entry import Entry
from houston_shared.store import in_order
from houston_shared.store.plan import END, Ask, Plan
from houston_shared.store.queries import progress, rollouts

PAGE = 200
"""Events of one read."""
LOOK_BACK = 20_000
"""Events that are looked through at most for the newest that went wrong."""


class Wanted(NamedTuple):
    """Which events."""

    rollouts: tuple[str, ...]
    """Ids; empty for all."""
    task: str
    kinds: tuple[str, ...]
    errors: bool
    """Only what went wrong."""

    @property
    def one(self) -> str:
        """The rollout, where it is one alone."""
        return self.rollouts[0] if len(self.rollouts) == 1 and not self.task else ""

    def where(self) -> tuple[str, tuple[str, ...]]:
        """The condition for rows of `events`, and its parameters."""
        parts = [f"kind IN ({_marks(self.kinds)})"]
        if self.rollouts:
            parts.append(f"rollout IN ({_marks(self.rollouts)})")
        if self.task:
            parts.append("rollout IN (SELECT id FROM rollouts WHERE task = ?)")
        values = (*self.kinds, *self.rollouts, *([self.task] if self.task else []))
        return " AND ".join(parts), values


class Page(NamedTuple):
    """What one read found."""

    found: list[Entry]
    seq: int
    """Everything up to here was looked at."""
    more: bool


def newest(wanted: Wanted, count: int) -> Plan[tuple[list[Entry], int]]:
    """The last events, oldest first, and the sequence behind which the next ones are."""
    last = yield from progress.last_seq()
    found: list[Entry] = []
    before, looked = END, 0
    while len(found) < count and looked < LOOK_BACK:
        size = PAGE if wanted.errors else count - len(found)
        seqs = yield from _before(wanted, before, size)
        if not seqs:
            break
        before, looked = seqs[0], looked + len(seqs)
        found = (yield from _entries(wanted, seqs)) + found
    if wanted.one and len(found) < count and not wanted.errors:
        found = (yield from _shared(wanted, count - len(found))) + found
    return found[-count:] if count else [], last


def since(wanted: Wanted, after: int) -> Plan[Page]:
    """The next events behind a sequence."""
    if wanted.one:
        headers = yield from progress.since(after, wanted.one, PAGE, wanted.kinds)
        seqs = [one.seq for one in headers]
    else:
        condition, values = wanted.where()
        rows = yield Ask(
            f"SELECT seq FROM events WHERE seq > ? AND {condition} ORDER BY seq LIMIT ?",
            (after, *values, PAGE),
        )
        seqs = [seq for (seq,) in rows]
    if len(seqs) == PAGE:
        return Page((yield from _entries(wanted, seqs)), seqs[-1], True)
    # The same state of the journal: what is not wanted is not looked through again.
    return Page((yield from _entries(wanted, seqs)), (yield from progress.last_seq()), False)


def _before(wanted: Wanted, before: int, count: int) -> Plan[list[int]]:
    """The last sequences ahead of one, oldest first."""
    if wanted.one:
        rows = yield from in_order.backward("seq", wanted.one, before, count, wanted.kinds)
    else:
        condition, values = wanted.where()
        rows = yield Ask(
            f"SELECT seq FROM events WHERE seq < ? AND {condition} ORDER BY seq DESC LIMIT ?",
            (before, *values, count),
        )
    return [row[0] for row in rows[::-1]]


def _shared(wanted: Wanted, count: int) -> Plan[list[Entry]]:
    """The last events of the past that a branch shares, as those of the rollouts that have it."""
    found: list[Entry] = []
    one = yield from rollouts.rollout(wanted.one)
    while one.parent and count:
        origin = (yield from rollouts.spec(one)).origin
        if origin is None:
            break
        headers = yield from progress.until(origin.seq, one.parent, count, wanted.kinds)
        found = (yield from _entries(wanted, [each.seq for each in headers])) + found
        count -= len(headers)
        one = yield from rollouts.rollout(one.parent)
    return found


def _entries(wanted: Wanted, seqs: Sequence[int]) -> Plan[list[Entry]]:
    found: list[Entry] = []
    for start in range(0, len(seqs), PAGE):
        chunk = tuple(seqs[start : start + PAGE])
        found += yield from entry.entries(f"seq IN ({_marks(chunk)}) ORDER BY seq", chunk)
    return [one for one in found if entry.wrong(one)] if wanted.errors else found


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
