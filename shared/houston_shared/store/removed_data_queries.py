"""What of a rollout is gone: archived and where to, erased from the journal, freed on its host.

Also of a past that it shares, and when rollouts ended. What repairs set aside is in `step_queries`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from houston_shared.records import ENDED_STATES
from houston_shared.store import rollout_queries
from houston_shared.store.event_bodies import BodiesErased, RolloutCleaned
from houston_shared.store.journal_events import OUT_OF_STEP_EVENTS, ReadPlan, RunSql


def find_archive_file(rollout: str) -> ReadPlan[str]:
    """The file that holds the rollout as it was; empty when it was not archived to the end."""
    told = yield from _read_erasures(rollout)
    return next((one.archive for one in told if one.archive and not one.more), "")


def list_archive_files() -> ReadPlan[dict[str, str]]:
    """The files of all rollouts that were archived to the end, by rollout."""
    # In no order and `>`: else SQLite looks at every event of the home instead of the few aside.
    rows = yield RunSql(
        f"SELECT seq, rollout, body FROM events WHERE {OUT_OF_STEP_EVENTS} AND kind = 'erased'"
        " AND rollout > '' AND body IS NOT NULL"
    )
    told = (
        (rollout, msgspec.msgpack.decode(body, type=BodiesErased))
        for _, rollout, body in sorted(rows)
    )
    return {rollout: one.archive for rollout, one in told if one.archive and not one.more}


def find_begun_archive_file(rollout: str) -> ReadPlan[str]:
    """The newest file of the rollout for which texts were taken out, also where some remain."""
    told = yield from _read_erasures(rollout)
    return next((one.archive for one in told if one.archive), "")


def _read_erasures(rollout: str) -> ReadPlan[list[BodiesErased]]:
    rows = yield RunSql(
        f"SELECT body FROM events WHERE rollout = ? AND {OUT_OF_STEP_EVENTS} AND kind = 'erased'"
        " AND body IS NOT NULL"
        " ORDER BY seq DESC",
        (rollout,),
    )
    return [msgspec.msgpack.decode(body, type=BodiesErased) for (body,) in rows]


def describe_archived(rollout: str) -> ReadPlan[str]:
    """What is said where texts of an archived rollout would stand; empty for all others."""
    where = yield from find_archive_file(rollout)
    if not where:
        return ""
    read = f"houston rollout archive --read {where}"
    return f"{rollout} was archived: its texts are in {where}. next: {read}"


_POLICY_EVENT_KINDS = ("head", "sample", "result", "observation", "fork", "guidance", "edit")
"""Kinds of events whose texts or ids stand in what a policy was sent and what it did."""
_SEQS_PER_ERASED_STATEMENT = 500


class MissingData(NamedTuple):
    """What is not there any more."""

    cause: str
    """In a sentence."""
    read: str
    """The command that shows it all the same; empty where nothing was kept."""


def find_missing_data(rollout: str) -> ReadPlan[MissingData | None]:
    """What of a rollout (a whole id) is gone, also of a past that it shares; None for nothing."""
    for part in (yield from rollout_queries.step_ranges(rollout)):
        if said := (yield from describe_archived(part.rollout)):
            cause, _, read = said.partition(" next: ")
            return MissingData(cause, read)
        rows = yield RunSql(
            f"SELECT body FROM events WHERE rollout = ? AND {OUT_OF_STEP_EVENTS}"
            " AND kind = 'erased'"
            " AND body IS NOT NULL",
            (part.rollout,),
        )
        seqs = [
            seq for (body,) in rows for seq in msgspec.msgpack.decode(body, type=BodiesErased).seqs
        ]
        step = yield from _first_erased_step(seqs, part.last)
        if step is not None:
            what = f"Step {step} of" if step else "Something of"
            return MissingData(f"{what} rollout {part.rollout} was erased from the journal.", "")
    return None


def _first_erased_step(seqs: Sequence[int], last: int) -> ReadPlan[int | None]:
    """The first step up to `last` of which something was erased; 0 for the head or guidance."""
    kinds = ",".join(f"'{kind}'" for kind in _POLICY_EVENT_KINDS)
    for start in range(0, len(seqs), _SEQS_PER_ERASED_STATEMENT):
        chunk = tuple(seqs[start : start + _SEQS_PER_ERASED_STATEMENT])
        rows = yield RunSql(
            f"SELECT min(step) FROM events WHERE seq IN ({','.join('?' * len(chunk))})"
            f" AND kind IN ({kinds}) AND step <= ?",
            (*chunk, last),
        )
        if rows[0][0] is not None:
            return int(rows[0][0])
    return None


class HostCleaning(NamedTuple):
    """The newest time that a rollout's part of its host was freed."""

    seq: int
    at: int
    """UTC microseconds."""
    body: RolloutCleaned

    @property
    def whole(self) -> bool:
        """Whether everything went that was meant to."""
        return not self.body.left


def find_last_cleaning(rollout: str) -> ReadPlan[HostCleaning | None]:
    """The newest; None where nothing was ever freed."""
    rows = yield RunSql(
        f"SELECT seq, at, body FROM events WHERE rollout = ? AND {OUT_OF_STEP_EVENTS}"
        " AND kind = 'cleaned'"
        " AND body IS NOT NULL ORDER BY seq DESC LIMIT 1",
        (rollout,),
    )
    return next(
        (HostCleaning(s, at, msgspec.msgpack.decode(b, type=RolloutCleaned)) for s, at, b in rows),
        None,
    )


def list_rollouts_ended_before(at: int) -> ReadPlan[list[str]]:
    """Rollouts that ended before a time (UTC microseconds), the oldest first."""
    marks = ", ".join("?" * len(ENDED_STATES))
    rows = yield RunSql(
        "SELECT id FROM rollouts r WHERE state IN"
        f" ({marks}) AND (SELECT max(at) FROM events WHERE rollout = r.id AND {OUT_OF_STEP_EVENTS}"
        " AND kind = 'state') < ? ORDER BY created_at, id",
        (*sorted(ENDED_STATES), at),
    )
    return [id for (id,) in rows]


def describe_cleaning(one: HostCleaning) -> str:
    """What was freed, in words."""
    body = one.body
    freed = f"{format_bytes(body.bytes)} freed"
    if body.left:
        return f"{freed}, but not all: {body.left}"
    if body.snapshots:
        return f"{freed}, its snapshots too: none of its files can be brought back"
    if not body.bytes:  # it had a world without files, never began, or somebody else removed them
        return "nothing was there to free"
    return f"{freed}; its snapshots stay, and any step's files can be brought back from them"


def format_bytes(count: int) -> str:
    """Bytes for people."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"
