"""`houston verify`: reads every byte of the store and says what is unsound. Changes nothing.

Checked: SQLite's own structure and indexes, the chain over all events, every body and blob against
its hash, every derived row against a replay of the events, and the end against the head file. What
cannot be known: events stored after the head file was last written (at most a second before a
crash, nothing after a clean stop) leave no trace elsewhere, so their loss would not be seen.
Not checked, because it decides nothing: presence (`derive.PRESENCE`, `annotators`), `search.db`.

The home may be live: events are read in short transactions, the tables in one at the end.
"""

import sqlite3
import time
from urllib.parse import quote

import msgspec

from houston_daemon.recorder import head_file
from houston_daemon.recorder.verify_events import EventCheck
from houston_daemon.recorder.verify_findings import Finding, Findings
from houston_daemon.recorder.verify_tables import compare
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import opening, schema

PAGE = 500
"""Events of one read."""


class Report(msgspec.Struct, frozen=True):
    """What was read, and what is wrong with it; the JSON of `houston verify --json`."""

    sound: bool
    events: int
    bytes: int
    """Of bodies, uncompressed."""
    vouched: int
    """The event up to which the head file says that nothing is missing."""
    erased: int
    """Events whose bodies were erased; derived rows of their rollouts could not be replayed."""
    seconds: float
    findings: tuple[Finding, ...]


def verify(home: Home) -> Report:
    """Check a home; raises HoustonError when there is no database that can be opened."""
    began = time.monotonic()
    findings = Findings()
    head = _head(home, findings)  # before the events: the journal may only be further than it
    connection = _connect(home)
    try:
        events = EventCheck(home, connection, findings)
        _read(connection, events, findings)
        _end(connection, head, events, findings)
    finally:
        connection.close()
    return Report(
        sound=not findings.all,
        events=events.count,
        bytes=events.bytes,
        vouched=head.seq if head else 0,
        erased=events.erased,
        seconds=round(time.monotonic() - began, 3),
        findings=tuple(findings.all),
    )


def _connect(home: Home) -> sqlite3.Connection:
    """Empty tables to replay into (`main`, a temporary file), and the home, read only (`home`)."""
    try:
        opened = opening.open_journal(home)
    except UnicodeDecodeError as problem:  # SQLite's own words about damage quote the damage
        raise HoustonError(
            f"{home.database} is damaged: its schema cannot be read ({problem.reason}).",
            "Nothing was checked.",
            "restore a backup",
        ) from None
    opened.connection.close()
    connection = sqlite3.connect("", isolation_level=None, uri=True)
    # Damaged text must be named like any other damage, not end the reading of it.
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    schema.migrate(connection)
    connection.execute("PRAGMA synchronous = OFF")
    mode = "mode=ro&immutable=1" if opened.immutable else "mode=ro"
    connection.execute("ATTACH ? AS home", (f"file:{quote(str(home.database))}?{mode}",))
    return connection


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
    """Structure, events, tables; a damage that stops SQLite itself is one finding."""
    try:
        for (line,) in connection.execute("PRAGMA home.integrity_check(20)"):
            if line != "ok":
                findings.add("structure", f"SQLite: {line}.")
        more = True
        while more:  # one short read transaction a page
            connection.execute("BEGIN")
            more = events.page(PAGE)
            connection.execute("COMMIT")
        connection.execute("BEGIN")
        while events.page(PAGE):
            pass
        compare(connection, events.unreplayed, findings)
        connection.execute("ROLLBACK")
    except (sqlite3.DatabaseError, UnicodeDecodeError) as problem:
        findings.add("structure", f"SQLite cannot read on after event {events.seq}: {problem}.")
        if connection.in_transaction:
            connection.execute("ROLLBACK")


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
        row = connection.execute(
            "SELECT chain FROM home.events WHERE seq = ?", (head.seq,)
        ).fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as problem:
        findings.add("structure", f"Event {head.seq} cannot be read: {problem}.", seq=head.seq)
        return
    if head.seq and (row is None or row[0] != head.value):
        findings.add("head", f"Event {head.seq} is not the one in the head file.", seq=head.seq)
