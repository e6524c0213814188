"""Files over a rollout, and every change of one of them: by which step, with what, when.

The author of every change is the agent: snapshots see what its calls did, and what it left running.
A branch has the changes of the past that it shares, too.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from houston_shared.clock import iso
from houston_shared.records import FileChange
from houston_shared.store.plan import END, Ask, Plan, RowRecord, from_rows
from houston_shared.store.queries import lineage, world
from houston_shared.store.queries.world import ChangedFile, Search

FILES = 500
"""Files listed at most; those changed last are kept."""
DIFFS = 40
"""Diffs of one step that are read at once."""


class FileRow(RowRecord, frozen=True):
    """One file over the whole rollout."""

    path: str
    changes: int
    """Steps that changed it."""
    added: int
    removed: int
    last_step: int
    kind: str
    """What the last of them did: added, changed, removed."""


class Made(RowRecord, frozen=True):
    """One change of a file; its diff is in the observation at `seq`."""

    step: int
    attempt: int
    path: str
    kind: str
    added: int
    removed: int
    seq: int
    tools: str
    """Names of the step's calls, comma separated."""
    at: int
    """When the step was closed."""


class StepChange(NamedTuple):
    """One change of one file with its diff, and the step that made it."""

    step: int
    change: FileChange


_MADE = (
    "SELECT c.step, c.attempt, c.path, c.kind, c.added, c.removed, c.seq, s.tools,"
    " coalesce(s.closed_at, s.started_at) FROM file_changes c JOIN steps s"
    " USING (rollout, step, attempt) WHERE c.rollout = ?1 AND s.current = 1"
    " AND c.step BETWEEN ?2 AND ?3"
)


def files(rollout: str) -> Plan[list[FileRow]]:
    """Files that steps of `rollout` changed, the newest change first."""
    found: dict[str, FileRow] = {}
    for part in (yield from lineage.stretches(rollout)):
        rows = yield Ask(
            "SELECT c.path, count(*), sum(c.added), sum(c.removed), max(c.step), c.kind"
            " FROM file_changes c JOIN steps s USING (rollout, step, attempt)"
            " WHERE c.rollout = ? AND s.current = 1 AND c.step BETWEEN ? AND ? GROUP BY c.path",
            part,
        )
        for row in from_rows(FileRow, rows):
            found[row.path] = _joined(found.get(row.path), row)
    return sorted(found.values(), key=lambda one: (-one.last_step, one.path))[:FILES]


def _joined(before: FileRow | None, row: FileRow) -> FileRow:
    if before is None:
        return row
    numbers = (before.changes + row.changes, before.added + row.added, before.removed + row.removed)
    return FileRow(row.path, *numbers, row.last_step, row.kind)


def history(rollout: str, path: str = "", first: int = 1, last: int = END) -> Plan[list[Made]]:
    """Changes, the newest first: of one file when it is named, of some steps."""
    found: list[Made] = []
    for part in (yield from lineage.stretches(rollout, first, last)):
        rows = yield Ask(
            f"{_MADE} AND (?4 = '' OR c.path = ?4) ORDER BY c.step, c.path DESC", (*part, path)
        )
        found += from_rows(Made, rows)
    return found[::-1]


def of_step(rollout: str, step: int) -> Plan[list[Made]]:
    """Changes that the newest step up to `step` made that made any."""
    for part in reversed((yield from lineage.stretches(rollout, 1, step))):
        rows = yield Ask(
            f"{_MADE} AND c.step = (SELECT max(step) FROM file_changes WHERE rollout = ?1"
            " AND step BETWEEN ?2 AND ?3) ORDER BY c.path",
            part,
        )
        if rows:
            return from_rows(Made, rows)
    return []


def diffs(made: Iterable[Made]) -> Plan[list[StepChange]]:
    """Changes with their diffs, in the order that they are given in."""
    found: list[StepChange] = []
    for one in made:
        key = ChangedFile(
            one.step, one.attempt, one.path, one.kind, one.added, one.removed, one.seq
        )
        found.append(StepChange(one.step, (yield from world.diff(key))))
    return found


def searches(rollout: str) -> Plan[list[Search]]:
    """Searches and pages of a rollout, the newest first."""
    found: list[Search] = []
    for owner, first, last in (yield from lineage.stretches(rollout)):
        mine = yield from world.searches(owner)
        found += [one for one in mine if first <= one.step <= (last or END)]
    return found[::-1]


def as_json(change: StepChange, made: Made) -> dict[str, Any]:
    """One change, for programs."""
    one = change.change
    return {
        "step": made.step,
        "path": made.path,
        "kind": made.kind,
        "added": made.added,
        "removed": made.removed,
        "author": "agent",
        "tools": [name for name in made.tools.split(",") if name],
        "at": iso(made.at),
        "diff": one.diff,
        "note": one.note,
    }
