"""What steps did to the world: files and every change of them, searches, terminals, evaluations.

The author of every change of a file is the agent: snapshots see what its calls did, and what it
left running. A branch has the changes of the past that it shares, too. Diffs are read from the
observations that recorded them.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from houston_shared.records import FileChange, ObservationBody
from houston_shared.store import journal_events, rollout_queries
from houston_shared.store.journal_events import (
    OPEN_END,
    ReadPlan,
    RowRecord,
    RunSql,
    column_list,
    rows_to_records,
)
from houston_shared.times_and_counts import iso_time


class FileChangeRow(RowRecord, frozen=True):
    """A row of `file_changes`; its diff is in the observation at `seq`."""

    step: int
    attempt: int
    path: str
    kind: str
    added: int
    removed: int
    seq: int


class SearchRow(RowRecord, frozen=True):
    """A row of `searches`: a query of the agent on the web or in the workspace."""

    step: int
    attempt: int
    idx: int
    """Index of the call within the step."""
    kind: str
    query: str
    """First 200 characters."""
    results: int
    seq: int
    """The result's event, which holds the whole text."""


class TerminalRow(RowRecord, frozen=True):
    """A row of `terminals`."""

    host: str
    name: str
    end: int
    """Bytes of its log at the last step that touched it."""
    last_seq: int


class TerminalSpanRow(RowRecord, frozen=True):
    """A row of `terminal_spans`: the bytes that a terminal printed during a step."""

    step: int
    attempt: int
    host: str
    terminal: str
    start: int
    end: int
    seq: int


class EvaluationRow(RowRecord, frozen=True):
    """A row of `evaluations`."""

    rollout: str
    """Whose submission it is: the parent's, where a branch shares it."""
    number: int
    step: int
    score: float | None
    """None when the evaluator failed or the format was wrong."""
    state: str
    """`scored`, `format` or `failed`."""
    seconds: float
    seq: int
    at: int


def list_file_changes(
    rollout: str, path: str = "", step: int | None = None
) -> ReadPlan[list[FileChangeRow]]:
    """Changes to files, in order; of one path or one step when named. Replaced attempts are not."""
    rows = yield RunSql(
        f"SELECT {column_list(FileChangeRow, 'c')} FROM file_changes c JOIN steps USING"
        " (rollout, step, attempt) WHERE rollout = ?1 AND current = 1"
        " AND (?2 = '' OR path = ?2) AND (?3 IS NULL OR step = ?3) ORDER BY step, path",
        (rollout, path, step),
    )
    return rows_to_records(FileChangeRow, rows)


def read_file_change(change: FileChangeRow) -> ReadPlan[FileChange]:
    """One change with its unified diff, from the observation that recorded it."""
    event = (yield from journal_events.events_by_seq([change.seq]))[change.seq]
    erased = ObservationBody(tail=journal_events.ERASED_TEXT)
    observation = yield from journal_events.read_event_record(event, ObservationBody, erased)
    for one in observation.files:
        if one.path == change.path:
            return one
    return FileChange(
        path=change.path,
        kind=change.kind,  # type: ignore[arg-type]  # the table's CHECK allows only these
        added=change.added,
        removed=change.removed,
        note=journal_events.ERASED_TEXT if event.erased else "the diff was not recorded",
    )


def list_searches(rollout: str) -> ReadPlan[list[SearchRow]]:
    """Searches of a rollout, in order. Replaced attempts are not."""
    rows = yield RunSql(
        f"SELECT {column_list(SearchRow, 's')} FROM searches s"
        " JOIN steps USING (rollout, step, attempt)"
        " WHERE rollout = ? AND current = 1 ORDER BY step, idx",
        (rollout,),
    )
    return rows_to_records(SearchRow, rows)


def list_terminals(rollout: str) -> ReadPlan[list[TerminalRow]]:
    """Terminals that a rollout has used, by host and name."""
    rows = yield RunSql(
        f"SELECT {column_list(TerminalRow)} FROM terminals WHERE rollout = ? ORDER BY host, name",
        (rollout,),
    )
    return rows_to_records(TerminalRow, rows)


def list_terminal_spans(
    rollout: str, host: str = "", terminal: str = ""
) -> ReadPlan[list[TerminalSpanRow]]:
    """What terminals printed in which step, in order; of one terminal when named."""
    rows = yield RunSql(
        f"SELECT {column_list(TerminalSpanRow)} FROM terminal_spans WHERE rollout = ?1"
        " AND (?2 = '' OR host = ?2) AND (?3 = '' OR terminal = ?3)"
        " ORDER BY step, attempt, host, terminal",
        (rollout, host, terminal),
    )
    return rows_to_records(TerminalSpanRow, rows)


def list_evaluations(rollout: str) -> ReadPlan[list[EvaluationRow]]:
    """Submissions to the evaluator, in order: the score over hours.

    A branch has those of the past that it shares, too.
    """
    found: list[EvaluationRow] = []
    for part in (yield from rollout_queries.step_ranges(rollout)):
        rows = yield RunSql(
            f"SELECT {column_list(EvaluationRow)} FROM evaluations WHERE rollout = ?"
            " AND step BETWEEN ? AND ? ORDER BY number",
            part,
        )
        found += rows_to_records(EvaluationRow, rows)
    return found


class _SubmissionFields(msgspec.Struct, frozen=True):
    snapshot: str = ""


class _ScoreFields(msgspec.Struct, frozen=True):
    fields: _SubmissionFields = _SubmissionFields()


def read_submitted_snapshot(one: EvaluationRow) -> ReadPlan[str]:
    """The snapshot that an evaluation scored; empty where its environment took none."""
    event = (yield from journal_events.events_by_seq([one.seq]))[one.seq]
    return (
        yield from journal_events.read_event_record(event, _ScoreFields, _ScoreFields())
    ).fields.snapshot


MOST_CHANGED_FILES = 500
"""Files listed at most; those changed last are kept."""
MOST_STEP_DIFFS = 40
"""Diffs of one step that are read at once."""


class FileHistoryRow(RowRecord, frozen=True):
    """One file over the whole rollout."""

    path: str
    changes: int
    """Steps that changed it."""
    added: int
    removed: int
    last_step: int
    kind: str
    """What the last of them did: added, changed, removed."""


class FileEditRow(RowRecord, frozen=True):
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


class RecordedFileEdit(NamedTuple):
    """One change of one file with its diff, and the step that made it."""

    step: int
    change: FileChange


_FILE_EDITS_SQL = (
    "SELECT c.step, c.attempt, c.path, c.kind, c.added, c.removed, c.seq, s.tools,"
    " coalesce(s.closed_at, s.started_at) FROM file_changes c JOIN steps s"
    " USING (rollout, step, attempt) WHERE c.rollout = ?1 AND s.current = 1"
    " AND c.step BETWEEN ?2 AND ?3"
)


def list_changed_files(rollout: str) -> ReadPlan[list[FileHistoryRow]]:
    """Files that steps of `rollout` changed, the newest change first."""
    found: dict[str, FileHistoryRow] = {}
    for part in (yield from rollout_queries.step_ranges(rollout)):
        rows = yield RunSql(
            "SELECT c.path, count(*), sum(c.added), sum(c.removed), max(c.step), c.kind"
            " FROM file_changes c JOIN steps s USING (rollout, step, attempt)"
            " WHERE c.rollout = ? AND s.current = 1 AND c.step BETWEEN ? AND ? GROUP BY c.path",
            part,
        )
        for row in rows_to_records(FileHistoryRow, rows):
            found[row.path] = _merge_file_rows(found.get(row.path), row)
    return sorted(found.values(), key=lambda one: (-one.last_step, one.path))[:MOST_CHANGED_FILES]


def _merge_file_rows(before: FileHistoryRow | None, row: FileHistoryRow) -> FileHistoryRow:
    if before is None:
        return row
    numbers = (before.changes + row.changes, before.added + row.added, before.removed + row.removed)
    return FileHistoryRow(row.path, *numbers, row.last_step, row.kind)


def list_file_edits(
    rollout: str, path: str = "", first: int = 1, last: int = OPEN_END
) -> ReadPlan[list[FileEditRow]]:
    """Changes, the newest first: of one file when it is named, of some steps."""
    found: list[FileEditRow] = []
    for part in (yield from rollout_queries.step_ranges(rollout, first, last)):
        rows = yield RunSql(
            f"{_FILE_EDITS_SQL} AND (?4 = '' OR c.path = ?4) ORDER BY c.step, c.path DESC",
            (*part, path),
        )
        found += rows_to_records(FileEditRow, rows)
    return found[::-1]


def list_file_edits_of_step(rollout: str, step: int) -> ReadPlan[list[FileEditRow]]:
    """Changes that the newest step up to `step` made that made any."""
    for part in reversed((yield from rollout_queries.step_ranges(rollout, 1, step))):
        rows = yield RunSql(
            f"{_FILE_EDITS_SQL} AND c.step = (SELECT max(step) FROM file_changes WHERE rollout = ?1"
            " AND step BETWEEN ?2 AND ?3) ORDER BY c.path",
            part,
        )
        if rows:
            return rows_to_records(FileEditRow, rows)
    return []


def read_file_diffs(made: Iterable[FileEditRow]) -> ReadPlan[list[RecordedFileEdit]]:
    """Changes with their diffs, in the order that they are given in."""
    found: list[RecordedFileEdit] = []
    for one in made:
        key = FileChangeRow(
            one.step, one.attempt, one.path, one.kind, one.added, one.removed, one.seq
        )
        found.append(RecordedFileEdit(one.step, (yield from read_file_change(key))))
    return found


def list_newest_searches(rollout: str) -> ReadPlan[list[SearchRow]]:
    """Searches and pages of a rollout, the newest first."""
    found: list[SearchRow] = []
    for owner, first, last in (yield from rollout_queries.step_ranges(rollout)):
        mine = yield from list_searches(owner)
        found += [one for one in mine if first <= one.step <= (last or OPEN_END)]
    return found[::-1]


def file_edit_json(change: RecordedFileEdit, made: FileEditRow) -> dict[str, Any]:
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
        "at": iso_time(made.at),
        "diff": one.diff,
        "note": one.note,
    }
