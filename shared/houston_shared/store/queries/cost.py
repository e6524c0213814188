"""What attention cost: minutes at a rollout and words said to it, by person."""

from collections.abc import Sequence

import msgspec

from houston_shared.store import journal
from houston_shared.store.plan import Ask, Plan
from houston_shared.store.queries import lineage, looking
from houston_shared.store.queries.looking import Look
from houston_shared.word_count import words

CHUNK = 500
"""Rollouts named in one statement."""


class Spent(msgspec.Struct, frozen=True):
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


class _Said(msgspec.Struct, frozen=True):
    text: str
    words: int = 0

    @property
    def count(self) -> int:
        """Words, also of a text that was erased since."""
        return self.words or (0 if self.text == journal.ERASED else words(self.text))


_Found = dict[tuple[str, bool], Spent]
"""By name, and whether it is the kernel's word."""


def of(rollouts: Sequence[str]) -> Plan[dict[str, list[Spent]]]:
    """By rollout, everybody who looked or spoke, who spent most time first."""
    found: dict[str, _Found] = {one: {} for one in rollouts}
    for look in (yield from looking.everybody()):
        if look.rollout in found:
            _looked(found[look.rollout], look)
    for start in range(0, len(rollouts), CHUNK):
        chunk = tuple(rollouts[start : start + CHUNK])
        marks = ", ".join("?" * len(chunk))
        for rollout, said in (yield from _spoken(f"rollout IN ({marks})", chunk)):
            _said(found[rollout], said)
    return {rollout: _sorted(by) for rollout, by in found.items()}


def with_past(rollout: str) -> Plan[list[Spent]]:
    """The same of one rollout and of the past that it shares, for a branch.

    Of that past, the words that were heard in it, and all the time spent at the rollouts that had
    it: presence has no steps.
    """
    found: _Found = {}
    parts = yield from lineage.stretches(rollout)
    for part in parts:
        for look in (yield from looking.everybody(part.rollout)):
            _looked(found, look)
        mine = part.rollout == rollout
        heard = "rollout = ?" if mine else "rollout = ? AND delivered_step <= ?"
        values = (part.rollout,) if mine else (part.rollout, part.last)
        for _, said in (yield from _spoken(heard, values)):
            _said(found, said)
    return _sorted(found)


def _looked(found: _Found, look: Look) -> None:
    key = look.name, bool(look.verified)
    had = found.get(key) or Spent(*key)
    found[key] = msgspec.structs.replace(
        had,
        active_us=had.active_us + look.active_us,
        looked_us=had.looked_us + look.looked_us,
        visits=had.visits + look.visits,
    )


def _said(found: _Found, said: Spent) -> None:
    had = found.get((said.name, said.verified)) or Spent(said.name, said.verified)
    found[said.name, said.verified] = msgspec.structs.replace(
        had, messages=had.messages + said.messages, words=had.words + said.words
    )


def _spoken(condition: str, values: tuple[object, ...]) -> Plan[list[tuple[str, Spent]]]:
    """By rollout, one for each message."""
    rows = yield Ask(
        "SELECT rollout, author, verified, text_seq FROM guidance"
        f" WHERE {condition} AND state <> 'withdrawn'",
        values,
    )
    events = yield from journal.by_seq([row[3] for row in rows])
    found: list[tuple[str, Spent]] = []
    for rollout, author, verified, seq in rows:
        said = _Said("")
        if event := events.get(seq):
            said = yield from journal.record(event, _Said, said)
        found.append((rollout, Spent(author, bool(verified), messages=1, words=said.count)))
    return found


def _sorted(found: _Found) -> list[Spent]:
    return sorted(found.values(), key=lambda one: (-one.active_us, -one.words, one.name))
