"""Whether texts or ids of a rollout are gone: it was archived, or something of it was erased."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from houston_shared.store.bodies import Erased
from houston_shared.store.in_order import ASIDE
from houston_shared.store.plan import Ask, Plan
from houston_shared.store.queries import archived, lineage

_READ = ("head", "sample", "result", "observation", "fork", "guidance", "edit")
"""Kinds of events whose texts or ids stand in what a policy was sent and what it did."""
_CHUNK = 500


class Gone(NamedTuple):
    """What is not there any more."""

    cause: str
    """In a sentence."""
    read: str
    """The command that shows it all the same; empty where nothing was kept."""


def gone(rollout: str) -> Plan[Gone | None]:
    """What of a rollout (a whole id) is gone, also of a past that it shares; None for nothing."""
    for part in (yield from lineage.stretches(rollout)):
        if said := (yield from archived.sentence(part.rollout)):
            cause, _, read = said.partition(" next: ")
            return Gone(cause, read)
        rows = yield Ask(
            f"SELECT body FROM events WHERE rollout = ? AND {ASIDE} AND kind = 'erased'"
            " AND body IS NOT NULL",
            (part.rollout,),
        )
        seqs = [seq for (body,) in rows for seq in msgspec.msgpack.decode(body, type=Erased).seqs]
        step = yield from _first(seqs, part.last)
        if step is not None:
            what = f"Step {step} of" if step else "Something of"
            return Gone(f"{what} rollout {part.rollout} was erased from the journal.", "")
    return None


def _first(seqs: Sequence[int], last: int) -> Plan[int | None]:
    """The first step up to `last` of which something was erased; 0 for the head or guidance."""
    kinds = ",".join(f"'{kind}'" for kind in _READ)
    for start in range(0, len(seqs), _CHUNK):
        chunk = tuple(seqs[start : start + _CHUNK])
        rows = yield Ask(
            f"SELECT min(step) FROM events WHERE seq IN ({','.join('?' * len(chunk))})"
            f" AND kind IN ({kinds}) AND step <= ?",
            (*chunk, last),
        )
        if rows[0][0] is not None:
            return int(rows[0][0])
    return None
