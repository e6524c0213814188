"""Reads of the files that a rollout changed, and of what its calls returned."""

from typing import NamedTuple

import msgspec

from houston_shared.records import FileChange
from houston_shared.store import journal
from houston_shared.store.plan import Ask, Plan, RowRecord, from_rows
from houston_shared.store.queries import world

FILES = 500
"""Files listed at most; those changed last are kept."""
DIFFS = 40
"""Changes of one file whose diffs are read at once; the newest are kept."""


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


class StepChange(NamedTuple):
    """One change of one file and the step that made it."""

    step: int
    change: FileChange


def files(rollout: str) -> Plan[list[FileRow]]:
    """Files that steps of `rollout` changed, the newest change first."""
    rows = yield Ask(
        "SELECT path, count(*), sum(added), sum(removed), max(step), kind FROM file_changes"
        " WHERE rollout = ? GROUP BY path ORDER BY max(step) DESC, path LIMIT ?",
        (rollout, FILES),
    )
    return from_rows(FileRow, rows)


def diffs(rollout: str, *, path: str = "", step: int | None = None) -> Plan[list[StepChange]]:
    """Changes with their diffs: of one file (newest first), or of one step."""
    changed = yield from world.files(rollout, path, step)
    found: list[StepChange] = []
    for one in changed[::-1][:DIFFS] if path else changed[:DIFFS]:
        found.append(StepChange(one.step, (yield from world.diff(one))))
    return found


def step_diffs(rollout: str, step: int) -> Plan[list[StepChange]]:
    """Changes that the newest step up to `step` made that made any."""
    rows = yield Ask(
        "SELECT coalesce(max(step), 0) FROM file_changes WHERE rollout = ? AND step <= ?",
        (rollout, step),
    )
    latest: int = rows[0][0]
    return (yield from diffs(rollout, step=latest)) if latest else []


class _Text(msgspec.Struct, frozen=True):
    text: str = ""


def result_text(seq: int) -> Plan[str]:
    """What one call returned, as the model saw it."""
    event = (yield from journal.by_seq([seq])).get(seq)
    if event is None:
        return ""
    erased = _Text(journal.ERASED)
    return (yield from journal.record(event, _Text, erased)).text
