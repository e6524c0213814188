"""What attention cost: minutes at a rollout and words said to it, by person."""

from collections.abc import Sequence

import msgspec

from houston_shared.store import journal
from houston_shared.store.plan import Ask, Plan
from houston_shared.store.queries import looking
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


def of(rollouts: Sequence[str]) -> Plan[dict[str, list[Spent]]]:
    """By rollout, everybody who looked or spoke, who spent most time first."""
    found: dict[str, dict[tuple[str, bool], Spent]] = {one: {} for one in rollouts}
    for look in (yield from looking.everybody()):
        if look.rollout in found:
            key = look.name, bool(look.verified)
            had = found[look.rollout].get(key) or Spent(*key)
            found[look.rollout][key] = msgspec.structs.replace(
                had,
                active_us=had.active_us + look.active_us,
                looked_us=had.looked_us + look.looked_us,
                visits=had.visits + look.visits,
            )
    for start in range(0, len(rollouts), CHUNK):
        yield from _spoken(list(rollouts[start : start + CHUNK]), found)
    return {
        rollout: sorted(by.values(), key=lambda one: (-one.active_us, -one.words, one.name))
        for rollout, by in found.items()
    }


def _spoken(rollouts: list[str], found: dict[str, dict[tuple[str, bool], Spent]]) -> Plan[None]:
    marks = ", ".join("?" * len(rollouts))
    rows = yield Ask(
        "SELECT rollout, author, verified, text_seq FROM guidance"
        f" WHERE rollout IN ({marks}) AND state <> 'withdrawn'",
        tuple(rollouts),
    )
    events = yield from journal.by_seq([row[3] for row in rows])
    for rollout, author, verified, seq in rows:
        said = _Said("")
        if event := events.get(seq):
            said = yield from journal.record(event, _Said, said)
        key = author, bool(verified)
        had = found[rollout].get(key) or Spent(*key)
        found[rollout][key] = msgspec.structs.replace(
            had, messages=had.messages + 1, words=had.words + said.count
        )
