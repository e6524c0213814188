"""Reads as plans; events of the journal and their bodies; a rollout's events in their order.

A plan is a generator that asks for rows and blobs and returns records. So one query, written once,
serves the commands (synchronous) and the console (asynchronous); the readers only answer what a
plan asks. A plan runs in one short read transaction and sees one state of the journal. A body is
read from the row, from a blob, or as the mark that it was erased. A rollout's events are merged in
stored order from two indexes: what a worker stores of its steps rises step by step; everything else
is rare and has its own index. A third index, on every event of a rollout, would be used by fewer
reads and written with each event: it was a third of the WAL. It knows no connections, and not what
kinds of events mean.
"""

from collections.abc import Collection, Generator, Iterator, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from houston_shared.errors import HoustonError

T = TypeVar("T")
R = TypeVar("R", bound=msgspec.Struct)
S = TypeVar("S")

Row: TypeAlias = tuple[Any, ...]

OPEN_END = 2**62
"""A step number after every step: the open end of a range."""


class RunSql(NamedTuple):
    """A statement to run; answered with all its rows."""

    sql: str
    parameters: tuple[Any, ...] = ()
    where: Literal["journal", "search"] = "journal"
    """Which of the home's two databases."""


class FetchBlob(NamedTuple):
    """A body that lies in `blobs/`; answered with its bytes, decompressed."""

    sha256: str
    """Name of the blob, hex."""


ReadPlan: TypeAlias = Generator[RunSql | FetchBlob, Any, T]


class RowRecord(msgspec.Struct, frozen=True):
    """Base of records read straight from a table: field names are column names, in order."""


def column_list(kind: type[msgspec.Struct], table: str = "") -> str:
    """The column list that `rows_to_records` expects for `kind`."""
    prefix = f"{table}." if table else ""
    return ", ".join(f"{prefix}{name}" for name in kind.__struct_fields__)


def rows_to_records(kind: type[R], rows: list[Row]) -> list[R]:
    """Rows selected with `column_list(kind)`, as records."""
    return [kind(*row) for row in rows]


def select_records(
    kind: type[R], source: str, parameters: tuple[Any, ...] = ()
) -> ReadPlan[list[R]]:
    """Records of a table; source: the SQL behind FROM, with conditions and order."""
    rows = yield RunSql(f"SELECT {column_list(kind)} FROM {source}", parameters)
    return rows_to_records(kind, rows)


def select_first_record(
    kind: type[R], source: str, parameters: tuple[Any, ...] = ()
) -> ReadPlan[R | None]:
    """The first record that `select_records` would give; None where there is none."""
    return next(iter((yield from select_records(kind, source, parameters))), None)


ERASED_TEXT = "[erased from the journal]"
"""Stands for every text whose body was erased."""
_VALUES_PER_STATEMENT = 500
"""Values named in one statement (SQLite allows 32,766 parameters)."""


def split_for_in(values: Sequence[T]) -> Iterator[tuple[str, tuple[T, ...]]]:
    """A long list for SQL's IN, in parts: the placeholders and the values of each."""
    for start in range(0, len(values), _VALUES_PER_STATEMENT):
        part = tuple(values[start : start + _VALUES_PER_STATEMENT])
        yield placeholders(part), part


def placeholders(values: Collection[object]) -> str:
    """A question mark for each value, for SQL's IN."""
    return ", ".join("?" * len(values))


class JournalEvent(RowRecord, frozen=True):
    """One row of `events`, without its hashes."""

    seq: int
    rollout: str
    """Empty for events of the daemon itself."""
    step: int
    attempt: int
    part: str | None
    kind: str
    at: int
    body: bytes | None
    """None when it is in a blob, or erased."""
    blob: str | None
    erased: int


class JournalEventHeader(RowRecord, frozen=True):
    """An event without its body: what following and listing need."""

    seq: int
    rollout: str
    step: int
    attempt: int
    part: str | None
    kind: str
    at: int
    erased: int


def select_events(condition: str, parameters: tuple[Any, ...]) -> ReadPlan[list[JournalEvent]]:
    """Events that meet an SQL condition (with its ORDER BY), bodies not yet fetched."""
    return (yield from select_records(JournalEvent, f"events WHERE {condition}", parameters))


def events_by_seq(seqs: Sequence[int]) -> ReadPlan[dict[int, JournalEvent]]:
    """Events with these sequences; those that are not there are left out."""
    events: dict[int, JournalEvent] = {}
    for marks, part in split_for_in(seqs):
        for event in (yield from select_events(f"seq IN ({marks})", part)):
            events[event.seq] = event
    return events


def read_event_body(event: JournalEvent) -> ReadPlan[bytes | None]:
    """The body's bytes, or what is left of them; None when nothing is."""
    if event.body is not None:
        return event.body
    if event.erased:
        return None
    body: bytes = yield FetchBlob(event.blob or "")
    return body


def read_event_record(event: JournalEvent, kind: type[S], erased: S) -> ReadPlan[S]:
    """The body, or what is left of it, as a record; `erased` when nothing is.

    Raises HoustonError when it is damaged.
    """
    raw = yield from read_event_body(event)
    return erased if raw is None else decode_body(event.seq, event.kind, raw, kind)


def decode_body(seq: int, kind: str, raw: bytes, body: type[S]) -> S:
    """The bytes of a body as a record. seq, kind: of its event. Raises HoustonError, naming it,
    when they are damaged."""
    try:
        return msgspec.msgpack.decode(raw, type=body)
    except msgspec.MsgspecError as problem:
        raise HoustonError(
            f"Event {seq} of the journal ({kind}) cannot be read: {problem}.",
            "What it holds cannot be shown.",
            "houston verify",
        ) from None


def read_event_fields(event: JournalEvent) -> ReadPlan[dict[str, Any]]:
    """The body of any kind as plain fields, `erased` among them when it was."""
    raw = yield from read_event_body(event)
    if raw is None:
        return {"erased": True}
    try:
        value = msgspec.msgpack.decode(raw)
    except msgspec.MsgspecError:
        return {"unreadable": True}
    plain = value if isinstance(value, dict) else {"value": value}
    return {**plain, "erased": True} if event.erased else plain


def read_record_at(seq: int, kind: type[S], erased: S) -> ReadPlan[S]:
    """The body of one event as a record; `erased` when nothing is left of it, or it is not there.

    Raises HoustonError when it is damaged.
    """
    return (yield from read_records_at([seq], kind, erased)).get(seq, erased)


def read_records_at(seqs: Sequence[int], kind: type[S], erased: S) -> ReadPlan[dict[int, S]]:
    """The same of several events, by sequence; those that are not there are left out."""
    records: dict[int, S] = {}
    for seq, event in (yield from events_by_seq(seqs)).items():
        records[seq] = yield from read_event_record(event, kind, erased)
    return records


def read_fields_at(seqs: Sequence[int]) -> ReadPlan[dict[int, dict[str, Any]]]:
    """Bodies as plain fields, by sequence; of events that are not there only `erased`."""
    fields: dict[int, dict[str, Any]] = {seq: {"erased": True} for seq in seqs}
    for seq, event in (yield from events_by_seq(seqs)).items():
        fields[seq] = yield from read_event_fields(event)
    return fields


OUT_OF_STEP_EVENTS = (
    "kind <> 'intent' AND kind <> 'result' AND kind <> 'observation' AND part IS NOT 'sample'"
)
"""Events that need not come in the order of steps: what the index `events_aside` holds."""
EVENTS_OF_ROLLOUT = (
    "seq IN (SELECT seq FROM events WHERE rollout = ?1 AND part IS NOT NULL"
    f" UNION ALL SELECT seq FROM events WHERE rollout = ?1 AND {OUT_OF_STEP_EVENTS})"
)
"""Condition for all events of the rollout `?1`."""


class OutOfStepRecord(NamedTuple, Generic[S]):
    """The decoded body of an event that belongs to no step's run."""

    seq: int
    step: int
    at: int
    """UTC microseconds."""
    body: S


def read_out_of_step_records(
    rollout: str, kind: str, body: type[S]
) -> ReadPlan[list[OutOfStepRecord[S]]]:
    """A rollout's events of one kind of `OUT_OF_STEP_EVENTS` that have a body, oldest first.

    rollout: empty for the home's own. body: the record that the kind has. Raises HoustonError when
    one is damaged.
    """
    rows = yield RunSql(
        f"SELECT seq, step, at, body FROM events WHERE rollout = ? AND {OUT_OF_STEP_EVENTS}"
        " AND kind = ? AND body IS NOT NULL ORDER BY seq",
        (rollout, kind),
    )
    return [
        OutOfStepRecord(seq, step, at, decode_body(seq, kind, raw, body))
        for seq, step, at, raw in rows
    ]


_MIDDLE = "(low + high + 1) / 2"
_LAST_SHARED_STEP = "coalesce((SELECT parent_step FROM rollouts WHERE id = ?1 AND parent <> ''), 0)"
"""The last step that the rollout `?1` shares with its parent; up to it, it has no rows."""
_STEP_AT_SEQ = f"""
WITH RECURSIVE near (low, high) AS (
    SELECT {_LAST_SHARED_STEP}, coalesce((SELECT max(step) FROM steps WHERE rollout = ?1), 0)
    UNION ALL
    SELECT iif(sample_seq <= ?2, {_MIDDLE}, low), iif(sample_seq <= ?2, high, {_MIDDLE} - 1)
    FROM near LEFT JOIN steps ON rollout = ?1 AND attempt = 1 AND step = (SELECT step FROM steps
        WHERE rollout = ?1 AND attempt = 1 AND step >= {_MIDDLE} ORDER BY step LIMIT 1)
    WHERE low < high
) SELECT low FROM near WHERE low >= high
"""
"""The newest step of the rollout `?1` that was begun by the sequence `?2`, by halving; else the
last that it shares, or 0. A step whose sample was lost has no row: the next one stands for it."""
CHANGED_STEPS = (
    f"SELECT step FROM events WHERE rollout = ?1 AND part IS NOT NULL AND step >= ({_STEP_AT_SEQ})"
    f" AND seq > ?2 UNION SELECT step FROM events WHERE rollout = ?1 AND {OUT_OF_STEP_EVENTS}"
    " AND seq > ?2"
)
"""Steps of the rollout `?1` with events behind the sequence `?2`, each once; 0 for its own."""
_EVENT_WINDOW = (
    "seq IN (SELECT seq FROM events WHERE rollout = ?1 AND part IS NOT NULL"
    " AND step BETWEEN ?4 AND ?5 AND seq > ?2 AND seq < ?3"
    f" UNION ALL SELECT seq FROM events WHERE rollout = ?1 AND {OUT_OF_STEP_EVENTS}"
    " AND seq > ?2 AND seq < ?3)"
)
_WINDOW_GROWTH = 4
"""A window in which too little was found is followed by one so many times as long."""


def events_forward(
    columns: str, rollout: str, after: int, limit: int, kinds: Sequence[str] = ()
) -> ReadPlan[list[Row]]:
    """Columns `columns` of the first `limit` events behind the sequence `after`, oldest first."""
    first, size = (yield from step_at_seq(rollout, after)), limit
    rows: list[Row] = []
    while len(rows) < limit and first < OPEN_END:
        behind, high = yield from _find_step(rollout, _FROM_STEP, first + size + 1)
        window = (after, high, first, behind - 1)
        rows += yield from _read_window(columns, rollout, window, limit - len(rows), kinds, "ASC")
        after, first, size = high - 1, behind, size * _WINDOW_GROWTH
    return rows


def events_backward(
    columns: str, rollout: str, before: int, limit: int, kinds: Sequence[str] = (), after: int = 0
) -> ReadPlan[list[Row]]:
    """As `events_forward`, the last ones ahead of `before` and behind `after`, newest first."""
    newest, size = (yield from step_at_seq(rollout, before - 1)), limit
    behind, _ = yield from _find_step(rollout, _FROM_STEP, newest + 1)
    rows: list[Row] = []
    while len(rows) < limit:
        first, low = yield from _find_step(rollout, _UP_TO_STEP, newest - size)
        window = (max(low - 1, after), before, first, behind - 1)
        rows += yield from _read_window(columns, rollout, window, limit - len(rows), kinds, "DESC")
        if low - 1 <= after:
            break
        before, behind, newest, size = low, first, first - 1, size * _WINDOW_GROWTH
    return rows


def _read_window(
    columns: str,
    rollout: str,
    window: tuple[int, int, int, int],
    limit: int,
    kinds: Sequence[str],
    direction: str,
) -> ReadPlan[list[Row]]:
    """window: sequences after and before which, and steps from and to which."""
    rows: list[Row] = yield RunSql(
        f"SELECT {columns} FROM events e WHERE {_EVENT_WINDOW} {kinds_condition(kinds)}"
        f" ORDER BY seq {direction} LIMIT ?",
        (rollout, *window, *kinds, limit),
    )
    return rows


def kinds_condition(kinds: Sequence[str]) -> str:
    """SQL that narrows to these kinds of events; empty where all are meant."""
    return f"AND kind IN ({placeholders(kinds)})" if kinds else ""


def step_at_seq(rollout: str, seq: int) -> ReadPlan[int]:
    """The newest step that was begun by the sequence; 0 when none was."""
    rows = yield RunSql(_STEP_AT_SEQ, (rollout, seq))
    return int(rows[0][0])


_FROM_STEP = ("step >= ? AND attempt = 1 ORDER BY step LIMIT 1", (OPEN_END, OPEN_END))
_UP_TO_STEP = ("step <= ? AND attempt = 1 ORDER BY step DESC LIMIT 1", (0, 1))


def _find_step(
    rollout: str, place: tuple[str, tuple[int, int]], step: int
) -> ReadPlan[tuple[int, int]]:
    """The nearest step that has a row, and the sequence with which it began.

    place: where to look, and what is answered where there is none.
    """
    condition, otherwise = place
    rows = yield RunSql(
        f"SELECT step, sample_seq FROM steps WHERE rollout = ? AND {condition}", (rollout, step)
    )
    return rows[0] if rows else otherwise
