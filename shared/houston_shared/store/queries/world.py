"""What steps did to the world: files, searches, terminals, evaluations."""

import msgspec

from houston_shared.records import FileChange, ObservationBody
from houston_shared.store import journal
from houston_shared.store.plan import Ask, Plan, RowRecord, columns, from_rows
from houston_shared.store.queries import lineage


class ChangedFile(RowRecord, frozen=True):
    """A row of `file_changes`; its diff is in the observation at `seq`."""

    step: int
    attempt: int
    path: str
    kind: str
    added: int
    removed: int
    seq: int


class Search(RowRecord, frozen=True):
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


class Terminal(RowRecord, frozen=True):
    """A row of `terminals`."""

    host: str
    name: str
    end: int
    """Bytes of its log at the last step that touched it."""
    last_seq: int


class Span(RowRecord, frozen=True):
    """A row of `terminal_spans`: the bytes that a terminal printed during a step."""

    step: int
    attempt: int
    host: str
    terminal: str
    start: int
    end: int
    seq: int


class Evaluation(RowRecord, frozen=True):
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


def files(rollout: str, path: str = "", step: int | None = None) -> Plan[list[ChangedFile]]:
    """Changes to files, in order; of one path or one step when named. Replaced attempts are not."""
    rows = yield Ask(
        f"SELECT {columns(ChangedFile, 'c')} FROM file_changes c JOIN steps USING"
        " (rollout, step, attempt) WHERE rollout = ?1 AND current = 1"
        " AND (?2 = '' OR path = ?2) AND (?3 IS NULL OR step = ?3) ORDER BY step, path",
        (rollout, path, step),
    )
    return from_rows(ChangedFile, rows)


def diff(change: ChangedFile) -> Plan[FileChange]:
    """One change with its unified diff, from the observation that recorded it."""
    event = (yield from journal.by_seq([change.seq]))[change.seq]
    erased = ObservationBody(tail=journal.ERASED)
    observation = yield from journal.record(event, ObservationBody, erased)
    for one in observation.files:
        if one.path == change.path:
            return one
    return FileChange(
        path=change.path,
        kind=change.kind,  # type: ignore[arg-type]  # the table's CHECK allows only these
        added=change.added,
        removed=change.removed,
        note=journal.ERASED if event.erased else "the diff was not recorded",
    )


def searches(rollout: str) -> Plan[list[Search]]:
    """Searches of a rollout, in order. Replaced attempts are not."""
    rows = yield Ask(
        f"SELECT {columns(Search, 's')} FROM searches s JOIN steps USING (rollout, step, attempt)"
        " WHERE rollout = ? AND current = 1 ORDER BY step, idx",
        (rollout,),
    )
    return from_rows(Search, rows)


def terminals(rollout: str) -> Plan[list[Terminal]]:
    """Terminals that a rollout has used, by host and name."""
    rows = yield Ask(
        f"SELECT {columns(Terminal)} FROM terminals WHERE rollout = ? ORDER BY host, name",
        (rollout,),
    )
    return from_rows(Terminal, rows)


def spans(rollout: str, host: str = "", terminal: str = "") -> Plan[list[Span]]:
    """What terminals printed in which step, in order; of one terminal when named."""
    rows = yield Ask(
        f"SELECT {columns(Span)} FROM terminal_spans WHERE rollout = ?1"
        " AND (?2 = '' OR host = ?2) AND (?3 = '' OR terminal = ?3)"
        " ORDER BY step, attempt, host, terminal",
        (rollout, host, terminal),
    )
    return from_rows(Span, rows)


def evaluations(rollout: str) -> Plan[list[Evaluation]]:
    """Submissions to the evaluator, in order: the score over hours.

    A branch has those of the past that it shares, too.
    """
    found: list[Evaluation] = []
    for part in (yield from lineage.stretches(rollout)):
        rows = yield Ask(
            f"SELECT {columns(Evaluation)} FROM evaluations WHERE rollout = ?"
            " AND step BETWEEN ? AND ? ORDER BY number",
            part,
        )
        found += from_rows(Evaluation, rows)
    return found


class _Submission(msgspec.Struct, frozen=True):
    snapshot: str = ""


class _Scored(msgspec.Struct, frozen=True):
    fields: _Submission = _Submission()


def submitted(one: Evaluation) -> Plan[str]:
    """The snapshot that an evaluation scored; empty where its environment took none."""
    event = (yield from journal.by_seq([one.seq]))[one.seq]
    return (yield from journal.record(event, _Scored, _Scored())).fields.snapshot
