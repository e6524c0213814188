"""`houston verify`: reads every byte of the store and says what is unsound. Changes nothing.

Checked: SQLite's own structure and indexes, the WAL behind what SQLite takes from it, the chain
over all events, every body and blob against its hash, what is left of erased bodies against the
event that erased them, every derived row against a replay of the events, and the end against the
head file. What cannot be known: events stored after the head file was last written (at most a
second before a crash, nothing after a clean stop) leave no trace elsewhere, so their loss would
not be seen. Not checked, because it decides nothing: presence (`rules.PRESENCE`, `annotators`),
`search.db`.

The home may be live: events are read in short transactions, the tables in one at the end.
"""

import sqlite3
import time

import msgspec

from houston_daemon.recorder.disk import head_file
from houston_daemon.recorder.upkeep import verify_replay, verify_wal
from houston_daemon.recorder.upkeep.verify_events import EventCheck
from houston_daemon.recorder.upkeep.verify_findings import Finding, Findings
from houston_daemon.recorder.upkeep.verify_open import open_home
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.lock import holder
from houston_shared.store.queries.aside import Loss

PAGE = 1_000
"""Events of one read."""
BESIDE_BYTES = 32 * 1024 * 1024
"""A larger database is replayed in a process of its own: starting one takes 0.1 s."""


class Report(msgspec.Struct, frozen=True):
    """What was read, and what is wrong with it; the JSON of `houston verify --json`."""

    sound: bool
    events: int
    bytes: int
    """Of bodies, uncompressed."""
    vouched: int
    """The event up to which the head file says that nothing is missing."""
    erased: int
    """Events whose bodies were erased; what is left of them was checked."""
    seconds: float
    findings: tuple[Finding, ...]
    aside: int = 0
    """Events that repairs set aside: known, and no damage."""
    losses: tuple[Loss, ...] = ()
    """The same by rollout and repair."""
    blobs: tuple[str, ...] = ()
    """Names of the sound blobs that events name."""


def verify(home: Home) -> Report:
    """Check a home; raises HoustonError when there is no database that can be opened."""
    began = time.monotonic()
    findings = Findings()
    head = _head(home, findings)  # before the events: the journal may only be further than it
    connection = open_home(home)
    beside = None
    try:
        if home.database.stat().st_size > BESIDE_BYTES:
            beside = verify_replay.Beside(home)
        events = EventCheck(home, connection, findings)
        _read(connection, events, findings)
        _wal(home, findings)
        _end(connection, head, events, findings)
        findings.join(beside.findings() if beside else verify_replay.guarded(home))
    finally:
        connection.close()
        if beside:
            beside.end()
    return Report(
        sound=not findings.all,
        events=events.count,
        bytes=events.bytes,
        vouched=head.seq if head else 0,
        erased=events.erased,
        seconds=round(time.monotonic() - began, 3),
        findings=tuple(findings.all),
        aside=sum(loss.events for loss in events.aside),
        losses=events.aside,
        blobs=tuple(sorted(events.blobs)),
    )


def _head(home: Home, findings: Findings) -> head_file.Head | None:
    try:
        head = head_file.read(home)
    except HoustonError as problem:
        findings.add("head", problem.cause)
        return None
    if head is None:
        findings.add("head", f"{home.head_file} is missing: a cut end could not be seen.")
    return head


def _read(connection: sqlite3.Connection, events: EventCheck, findings: Findings) -> None:
    """Structure and events; a damage that stops SQLite itself is one finding."""
    try:
        for (line,) in connection.execute("PRAGMA integrity_check(20)"):
            if line != "ok":
                findings.add("structure", f"SQLite: {line}.")
        while events.page(PAGE):  # each page is a read transaction of its own
            pass
    except (sqlite3.DatabaseError, UnicodeDecodeError) as problem:
        findings.add(
            "structure",
            f"SQLite cannot read on after event {events.seq}: {problem}.",
            seq=events.seq + 1,
        )
    events.end()


def _wal(home: Home, findings: Findings) -> None:
    """A WAL that somebody writes is in motion; one at rest must end where SQLite stops."""
    if holder(home) is not None:
        return
    wal = verify_wal.look(home.database)
    if wal.header_damaged:
        findings.add("end", "The head of the WAL is damaged: SQLite reads nothing of it.")
    elif wal.unread > 1:
        findings.add(
            "end", f"The WAL is damaged: {wal.unread} transactions behind the damage are lost."
        )


def _end(
    connection: sqlite3.Connection,
    head: head_file.Head | None,
    events: EventCheck,
    findings: Findings,
) -> None:
    if head is None:
        return
    if events.seq < head.seq:
        findings.add(
            "end",
            f"The end was cut: the journal ends at event {events.seq}, {head.seq} were stored.",
            seq=events.seq + 1,
        )
        return
    try:
        row = connection.execute("SELECT chain FROM events WHERE seq = ?", (head.seq,)).fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as problem:
        findings.add("structure", f"Event {head.seq} cannot be read: {problem}.", seq=head.seq)
        return
    if head.seq and (row is None or row[0] != head.value):
        findings.add("head", f"Event {head.seq} is not the one in the head file.", seq=head.seq)
