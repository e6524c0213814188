"""What was freed of rollouts' parts of their hosts, and when rollouts ended."""

from typing import NamedTuple

import msgspec

from houston_shared.records import ENDED
from houston_shared.store.bodies import Cleaned
from houston_shared.store.in_order import ASIDE
from houston_shared.store.plan import Ask, Plan


class Cleaning(NamedTuple):
    """The newest time that a rollout's part of its host was freed."""

    seq: int
    at: int
    """UTC microseconds."""
    body: Cleaned

    @property
    def whole(self) -> bool:
        """Whether everything went that was meant to."""
        return not self.body.left


def of(rollout: str) -> Plan[Cleaning | None]:
    """The newest; None where nothing was ever freed."""
    rows = yield Ask(
        f"SELECT seq, at, body FROM events WHERE rollout = ? AND {ASIDE} AND kind = 'cleaned'"
        " AND body IS NOT NULL ORDER BY seq DESC LIMIT 1",
        (rollout,),
    )
    return next(
        (Cleaning(s, at, msgspec.msgpack.decode(b, type=Cleaned)) for s, at, b in rows), None
    )


def ended_before(at: int) -> Plan[list[str]]:
    """Rollouts that ended before a time (UTC microseconds), the oldest first."""
    marks = ", ".join("?" * len(ENDED))
    rows = yield Ask(
        "SELECT id FROM rollouts r WHERE state IN"
        f" ({marks}) AND (SELECT max(at) FROM events WHERE rollout = r.id AND {ASIDE}"
        " AND kind = 'state') < ? ORDER BY created_at, id",
        (*sorted(ENDED), at),
    )
    return [id for (id,) in rows]


def said(one: Cleaning) -> str:
    """What was freed, in words."""
    body = one.body
    freed = f"{size(body.bytes)} freed"
    if body.left:
        return f"{freed}, but not all: {body.left}"
    if body.snapshots:
        return f"{freed}, its snapshots too: none of its files can be brought back"
    if not body.bytes:  # it had a world without files, never began, or somebody else removed them
        return "nothing was there to free"
    return f"{freed}; its snapshots stay, and any step's files can be brought back from them"


def size(count: int) -> str:
    """Bytes for people."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"
