"""Which data of a rollout is gone: archived and where to, erased from the journal, freed on its
host.

Also for the past that a branch shares, and when rollouts ended. `step_queries` has what repairs set
aside.
"""

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from houston_shared.errors import HoustonError
from houston_shared.records import ENDED_STATES
from houston_shared.store import rollout_queries
from houston_shared.store.event_bodies import BodiesErased, RolloutCleaned
from houston_shared.store.journal_events import (
    OUT_OF_STEP_EVENTS,
    ReadPlan,
    RunSql,
    decode_body,
    placeholders,
    read_out_of_step_records,
    split_for_in,
)


def find_archive_file(rollout: str) -> ReadPlan[str]:
    """The file that holds the rollout as it was; empty when it was not archived to the end."""
    erasures = yield from _read_erasures(rollout)
    return next((erasure.archive for erasure in erasures if _ends_archive(erasure)), "")


def list_archive_files() -> ReadPlan[dict[str, str]]:
    """The files of all rollouts that were archived to the end, by rollout. An event that is damaged
    keeps nobody from the list: who looks at its rollout is told."""
    # In no order and `>`: else SQLite looks at every event of the home instead of the few aside.
    rows = yield RunSql(
        f"SELECT seq, rollout, body FROM events WHERE {OUT_OF_STEP_EVENTS} AND kind = 'erased'"
        " AND rollout > '' AND body IS NOT NULL"
    )
    files: dict[str, str] = {}
    for seq, rollout, body in sorted(rows):
        with contextlib.suppress(HoustonError):
            erasure = decode_body(seq, "erased", body, BodiesErased)
            if _ends_archive(erasure):
                files[rollout] = erasure.archive
    return files


def find_begun_archive_file(rollout: str) -> ReadPlan[str]:
    """The newest file of the rollout for which texts were taken out, also where some remain."""
    erasures = yield from _read_erasures(rollout)
    return next((erasure.archive for erasure in erasures if erasure.archive), "")


def _ends_archive(erasure: BodiesErased) -> bool:
    """Whether the rollout was archived, and this took the last of its texts out."""
    return bool(erasure.archive) and not erasure.more


def _read_erasures(rollout: str) -> ReadPlan[list[BodiesErased]]:
    """Newest first."""
    erasures = yield from read_out_of_step_records(rollout, "erased", BodiesErased)
    return [erasure.body for erasure in reversed(erasures)]


def describe_archived(rollout: str) -> ReadPlan[str]:
    """What is said where texts of an archived rollout would stand; empty for all others."""
    where = yield from find_archive_file(rollout)
    if not where:
        return ""
    command = f"houston rollout archive --read {where}"
    return f"{rollout} was archived: its texts are in {where}. next: {command}"


_POLICY_EVENT_KINDS = ("head", "sample", "result", "observation", "fork", "guidance", "edit")
"""Kinds of events whose texts or ids stand in what a policy was sent and what it did."""


class MissingData(NamedTuple):
    """What is not there any more."""

    cause: str
    """In a sentence."""
    command: str
    """The command that shows it all the same; empty where nothing was kept."""


def find_missing_data(rollout: str) -> ReadPlan[MissingData | None]:
    """What of a rollout (a whole id) is gone, also of a past that it shares; None for nothing."""
    for part in (yield from rollout_queries.step_ranges(rollout)):
        if sentence := (yield from describe_archived(part.rollout)):
            cause, _, command = sentence.partition(" next: ")
            return MissingData(cause, command)
        erasures = yield from _read_erasures(part.rollout)
        seqs = [seq for erasure in reversed(erasures) for seq in erasure.seqs]
        step = yield from _first_erased_step(seqs, part.last)
        if step is not None:
            subject = f"Step {step} of" if step else "Something of"
            return MissingData(f"{subject} rollout {part.rollout} was erased from the journal.", "")
    return None


def _first_erased_step(seqs: Sequence[int], last: int) -> ReadPlan[int | None]:
    """The first step up to `last` of which something was erased; 0 for the head or guidance."""
    kinds = ",".join(f"'{kind}'" for kind in _POLICY_EVENT_KINDS)
    for marks, part in split_for_in(seqs):
        rows = yield RunSql(
            f"SELECT min(step) FROM events WHERE seq IN ({marks})"
            f" AND kind IN ({kinds}) AND step <= ?",
            (*part, last),
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
    cleanings = yield from read_out_of_step_records(rollout, "cleaned", RolloutCleaned)
    if not cleanings:
        return None
    newest = cleanings[-1]
    return HostCleaning(newest.seq, newest.at, newest.body)


def list_rollouts_ended_before(at: int) -> ReadPlan[list[str]]:
    """Rollouts that ended before a time (UTC microseconds), the oldest first."""
    rows = yield RunSql(
        f"SELECT id FROM rollouts r WHERE state IN ({placeholders(ENDED_STATES)}) AND"
        f" (SELECT max(at) FROM events WHERE rollout = r.id AND {OUT_OF_STEP_EVENTS}"
        " AND kind = 'state') < ? ORDER BY created_at, id",
        (*sorted(ENDED_STATES), at),
    )
    return [id for (id,) in rows]


def describe_cleaning(cleaning: HostCleaning) -> str:
    """What was freed, in words."""
    body = cleaning.body
    freed = f"{format_bytes(body.bytes)} freed"
    if body.left:
        return f"{freed}, but not all: {body.left}"
    if body.snapshots:
        return f"{freed}, its snapshots too: none of its files can be brought back"
    if not body.bytes:  # it had a world without files, never began, or somebody else removed them
        return "there was nothing to free"
    return f"{freed}; its snapshots stay, and any step's files can be brought back from them"


def format_bytes(count: int) -> str:
    """Bytes for people."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} bytes"
