"""Whether a rollout may go on from what is stored of it: its current context, checked byte by byte.

A worker that started from a changed body would carry the damage on and hide where it began. What
is unsound pauses its rollout, by `repair`; a person resumes it once `houston repair` has run.
"""

import logging
import sqlite3

import msgspec

from houston_daemon.recorder.derived.rules import Event
from houston_daemon.recorder.disk.damage import sentence
from houston_daemon.recorder.steps import past, rebuild, states
from houston_daemon.recorder.store import Rollout, Store
from houston_daemon.recorder.upkeep.verify_events import COLUMNS
from houston_shared.errors import HoustonError
from houston_shared.records import RolloutSpec
from houston_shared.store import blobs, bodies, chain, in_order
from houston_shared.store.queries import lineage

LOGGER = logging.getLogger("houston.recorder")
_READ = (
    f"SELECT {COLUMNS}, (SELECT chain FROM events AS last WHERE last.seq = events.seq - 1)"
    " FROM events WHERE"
)
_CONTEXT = f"{_READ} {in_order.OF_ROLLOUT} AND (step = 0 OR step >= ?2) ORDER BY seq"
_SHARED = (
    f"{_READ} rollout = ?1 AND part IS NOT NULL AND (part = 'head' OR step BETWEEN ?2 AND ?3)"
    " ORDER BY seq"
)
"""Of a rollout that a branch shares steps with: what of them is in its context."""


def pause_if_bad(store: Store, row: Rollout) -> str:
    """Pause a rollout whose context is damaged and return the sentence; empty for a sound one.

    Each is checked once while the recorder runs: what it stores later, it has seen.
    """
    if row.id in store.sound:
        return ""
    if not (said := unsound(store, row)):
        store.sound.add(row.id)
        return ""
    LOGGER.error("%s; it is paused", said)
    states.move(store, row, "paused", states.REPAIR, said)
    return said


def unsound(store: Store, row: Rollout) -> str:
    """Why a rollout cannot go on from what is stored of it; empty where it can."""
    bad = first_bad(store, row)
    return sentence(store.home, row.id, bad) if bad else _lost_past(store, row)


def first_bad(store: Store, row: Rollout) -> int:
    """The first event of the rollout's context that is not as it was stored; 0 for none."""
    for part in rebuild.run(store, lineage.stretches(row.id, row.first_step)):
        if part.rollout != row.id and (bad := _first(store, row, _SHARED, part)):
            return bad
    return _first(store, row, _CONTEXT, (row.id, row.first_step))


def _lost_past(store: Store, row: Rollout) -> str:
    """Why a branch cannot go on from its past, when a repair has changed that; else empty."""
    spec = rebuild.record(store, row.spec_seq, RolloutSpec)
    if spec is None or spec.origin is None:
        return ""
    first = max(1, row.first_step - 1)  # with oₖ, which stands in a fork
    owner = past.lost_of(store, row.id, first, spec.parent_step or 0, spec.origin.seq)
    if not owner:
        return ""
    return (
        f"Steps that {row.id} shares with {owner} were set aside by a repair:"
        " it has nothing to go on from."
    )


def _first(store: Store, row: Rollout, query: str, parameters: tuple[str | int, ...]) -> int:
    at = 0
    repaired = None
    try:
        for found in store.connection.execute(query, parameters):
            at = found[0]
            if found[5] == bodies.ASIDE or _sound(store, found):
                continue
            repaired = _repaired(store) if repaired is None else repaired
            if repaired.get(at) != chain.row_hash(found[:-1]):
                return int(at)
    except HoustonError:  # a blob of this event
        return int(at)
    except (sqlite3.DatabaseError, UnicodeDecodeError):  # the one behind it cannot be read
        return _next(store, str(parameters[0]), at) or at or row.spec_seq
    return 0


def _next(store: Store, rollout: str, seq: int) -> int:
    """The rollout's next event, from an index; 0 where that is damaged as well."""
    try:
        ((found,),) = store.connection.execute(
            "SELECT min(seq) FROM (SELECT seq FROM events WHERE rollout = ?1 AND part IS NOT NULL"
            f" UNION SELECT seq FROM events WHERE rollout = ?1 AND {in_order.ASIDE})"
            " WHERE seq > ?2",
            (rollout, seq),
        )
    except sqlite3.DatabaseError:
        found = None
    return found or 0


def _sound(store: Store, found: tuple[object, ...]) -> bool:
    header, (body, blob, _, digest, link, before) = found[:7], found[7:]
    data = blobs.read(store.home, str(blob)) if blob is not None else body
    if not isinstance(data, bytes) or chain.body_hash(data) != digest:
        return False
    start = before if before is not None else chain.GENESIS
    assert isinstance(start, bytes)
    return chain.link(start, *Event(*header), digest) == link  # type: ignore[arg-type]


def _repaired(store: Store) -> dict[int, bytes]:
    """Rows for which a repair has vouched: their place in the chain cannot be checked."""
    rows = store.connection.execute(
        "SELECT body FROM events WHERE rollout = '' AND kind = 'repaired' AND body IS NOT NULL"
    ).fetchall()
    known: dict[int, bytes] = {}
    for (body,) in rows:
        told = msgspec.msgpack.decode(body, type=bodies.Repaired)
        known.update(zip(told.seqs, told.rows, strict=True))
    return known
