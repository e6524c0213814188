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
    rows_to_records,
    select_records,
)
from houston_shared.times_and_counts import iso_time


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


def list_terminals(rollout: str) -> ReadPlan[list[TerminalRow]]:
    """Terminals that a rollout has used, by host and name."""
    source = "terminals WHERE rollout = ? ORDER BY host, name"
    return (yield from select_records(TerminalRow, source, (rollout,)))


def list_terminal_spans(
    rollout: str, host: str = "", terminal: str = ""
) -> ReadPlan[list[TerminalSpanRow]]:
    """What terminals printed in which step, in order; of one terminal when named."""
    source = (
        "terminal_spans WHERE rollout = ?1 AND (?2 = '' OR host = ?2)"
        " AND (?3 = '' OR terminal = ?3) ORDER BY step, attempt, host, terminal"
    )
    return (yield from select_records(TerminalSpanRow, source, (rollout, host, terminal)))


def list_evaluations(rollout: str) -> ReadPlan[list[EvaluationRow]]:
    """Submissions to the evaluator, in order: the score over hours.

    A branch has those of the past that it shares, too.
    """
    source = "evaluations WHERE rollout = ? AND step BETWEEN ? AND ? ORDER BY number"
    evaluations: list[EvaluationRow] = []
    for part in (yield from rollout_queries.step_ranges(rollout)):
        evaluations += yield from select_records(EvaluationRow, source, part)
    return evaluations


class _SubmissionFields(msgspec.Struct, frozen=True):
    snapshot: str = ""


class _ScoreFields(msgspec.Struct, frozen=True):
    fields: _SubmissionFields = _SubmissionFields()


def read_submitted_snapshot(evaluation: EvaluationRow) -> ReadPlan[str]:
    """The snapshot that an evaluation scored; empty where its environment took none."""
    body = yield from journal_events.read_record_at(evaluation.seq, _ScoreFields, _ScoreFields())
    return body.fields.snapshot


MAX_CHANGED_FILES = 500
"""Files listed at most; those changed last are kept."""
MAX_STEP_DIFFS = 40
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
    files: dict[str, FileHistoryRow] = {}
    for part in (yield from rollout_queries.step_ranges(rollout)):
        rows = yield RunSql(
            "SELECT c.path, count(*), sum(c.added), sum(c.removed), max(c.step), c.kind"
            " FROM file_changes c JOIN steps s USING (rollout, step, attempt)"
            " WHERE c.rollout = ? AND s.current = 1 AND c.step BETWEEN ? AND ? GROUP BY c.path",
            part,
        )
        for row in rows_to_records(FileHistoryRow, rows):
            files[row.path] = _merge_file_rows(files.get(row.path), row)
    return sorted(files.values(), key=lambda row: (-row.last_step, row.path))[:MAX_CHANGED_FILES]


def _merge_file_rows(before: FileHistoryRow | None, row: FileHistoryRow) -> FileHistoryRow:
    if before is None:
        return row
    numbers = (before.changes + row.changes, before.added + row.added, before.removed + row.removed)
    return FileHistoryRow(row.path, *numbers, row.last_step, row.kind)


def list_file_edits(
    rollout: str, path: str = "", first: int = 1, last: int = OPEN_END
) -> ReadPlan[list[FileEditRow]]:
    """Changes, the newest first: of one file when it is named, of some steps."""
    edits: list[FileEditRow] = []
    for part in (yield from rollout_queries.step_ranges(rollout, first, last)):
        rows = yield RunSql(
            f"{_FILE_EDITS_SQL} AND (?4 = '' OR c.path = ?4) ORDER BY c.step, c.path DESC",
            (*part, path),
        )
        edits += rows_to_records(FileEditRow, rows)
    return edits[::-1]


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


def read_file_change(change: FileEditRow) -> ReadPlan[FileChange]:
    """One change with its unified diff, from the observation that recorded it."""
    event = (yield from journal_events.events_by_seq([change.seq]))[change.seq]
    erased = ObservationBody(tail=journal_events.ERASED_TEXT)
    observation = yield from journal_events.read_event_record(event, ObservationBody, erased)
    for recorded in observation.files:
        if recorded.path == change.path:
            return recorded
    return FileChange(
        path=change.path,
        kind=change.kind,  # type: ignore[arg-type]  # the table's CHECK allows only these
        added=change.added,
        removed=change.removed,
        note=journal_events.ERASED_TEXT if event.erased else "the diff was not recorded",
    )


def read_file_diffs(edits: Iterable[FileEditRow]) -> ReadPlan[list[RecordedFileEdit]]:
    """Changes with their diffs, in the order that they are given in."""
    diffs: list[RecordedFileEdit] = []
    for edit in edits:
        diffs.append(RecordedFileEdit(edit.step, (yield from read_file_change(edit))))
    return diffs


def list_newest_searches(rollout: str) -> ReadPlan[list[SearchRow]]:
    """Searches and pages of a rollout, the newest first."""
    source = (
        "searches JOIN steps USING (rollout, step, attempt) WHERE rollout = ?"
        " AND step BETWEEN ? AND ? AND current = 1 ORDER BY step, idx"
    )
    searches: list[SearchRow] = []
    for part in (yield from rollout_queries.step_ranges(rollout)):
        searches += yield from select_records(SearchRow, source, part)
    return searches[::-1]


def file_edit_json(change: RecordedFileEdit, edit: FileEditRow) -> dict[str, Any]:
    """One change, for programs."""
    recorded = change.change
    return {
        "step": edit.step,
        "path": edit.path,
        "kind": edit.kind,
        "added": edit.added,
        "removed": edit.removed,
        "author": "agent",
        "tools": [name for name in edit.tools.split(",") if name],
        "at": iso_time(edit.at),
        "diff": recorded.diff,
        "note": recorded.note,
    }
