"""`houston verify`: reads every byte of the store and says what is unsound. Changes nothing.

Checked: SQLite's own structure and indexes, the WAL behind what SQLite takes from it, the chain
over all events, every body and blob against its hash, what is left of erased bodies against the
event that erased them, every derived row against a replay, and the end against the head file. What
cannot be known: events stored after the head file was last written (at most a second before a
crash, nothing after a clean stop) leave no trace elsewhere. Not checked, because it decides
nothing: presence, `search.db`.

The home may be live: events are read in short transactions, the tables in one at the end.
"""

import hashlib
import sqlite3
import time
from typing import Any

import msgspec

from houston_daemon.maintenance import projection_replay
from houston_daemon.maintenance.damage_report import IntegrityFinding, IntegrityFindings
from houston_daemon.maintenance.projection_replay import fetch_rows, open_read_only
from houston_daemon.recorder import hash_chain
from houston_daemon.recorder.disk import home_files, wal_inspection
from houston_daemon.recorder.event_projections import EventHeader
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.home_lock import find_running_daemon
from houston_shared.store import event_bodies, step_queries, store_reader
from houston_shared.store.step_queries import LossFromRepair

EVENT_COLUMNS = "seq, rollout, step, attempt, part, kind, at, body, blob, erased, body_hash, chain"
_SELECT_EVENTS = f"SELECT {EVENT_COLUMNS} FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
EventRow = tuple[Any, ...]


class EventChecker:
    """Walks through the journal once, in pages; `end` says what only the whole could."""

    def __init__(
        self, home: Home, connection: sqlite3.Connection, findings: IntegrityFindings
    ) -> None:
        """connection: the home's database, read only."""
        self._home = home
        self._connection = connection
        self._findings = findings
        self._chain: Any = hash_chain.GENESIS
        self._doubts: dict[int, tuple[EventRow, str]] = {}
        """Rows that do not fit the chain; a repair may vouch for them later in the journal."""
        self._left: dict[int, tuple[bytes, str]] = {}
        """What is left of erased bodies (SHA-256), and whose they are."""
        self._told: dict[int, bytes] = {}
        self._repaired: dict[int, tuple[bytes, str]] = {}
        """Hash of a row that a repair vouches for, and which repair it was."""
        self._holes: list[tuple[str, step_queries.QuarantinedEvent]] = []
        self.seq = 0
        """The last event that was read."""
        self.count = 0
        self.bytes = 0
        self.erased = 0
        self.blobs: set[str] = set()
        """Blobs that are named and sound."""

    def page(self, size: int) -> bool:
        """Check the next events; whether there may be more. Raises sqlite3.DatabaseError."""
        rows = fetch_rows(self._connection, _SELECT_EVENTS, self.seq, size)
        for row in rows:
            self._one(row)
        return len(rows) == size

    def end(self) -> None:
        """Say what no later event has vouched for."""
        for seq, (row, why) in self._doubts.items():
            vouched, repair = self._repaired.get(seq, (b"", ""))
            if vouched != _hash_row(row):
                self._say("chain", row, why)
            elif row[5] == event_bodies.QUARANTINED_KIND:
                self._holes.append((row[1], step_queries.QuarantinedEvent(seq, row[2], repair, 0)))
        for seq, (digest, rollout) in self._left.items():
            if self._told.get(seq) != digest:
                text = f"Event {seq} was erased otherwise than the journal says."
                self._findings.add("body", text, seq, rollout)

    @property
    def aside(self) -> tuple[LossFromRepair, ...]:
        """What repairs set aside, of each rollout; known, and no damage. After `end`."""
        by: dict[str, list[step_queries.QuarantinedEvent]] = {}
        for rollout, hole in self._holes:
            by.setdefault(rollout, []).append(hole)
        return tuple(
            loss
            for rollout, holes in by.items()
            for loss in step_queries.group_repair_losses(holes, rollout)
        )

    def _one(self, row: EventRow) -> None:
        seq, kind, digest, link = row[0], row[5], row[10], row[11]
        if seq != self.seq + 1:
            self._findings.add(
                "missing", f"Events {self.seq + 1} to {seq - 1} are missing.", self.seq + 1
            )
        if kind == event_bodies.QUARANTINED_KIND:
            self._doubts[seq] = row, "is set aside, and no repair says so"
        elif not self._linked(row, digest, link):
            self._doubts[seq] = row, "does not fit the chain"
        self.seq, self._chain = seq, link
        self.count += 1
        if kind != event_bodies.QUARANTINED_KIND:
            self._body(row, digest)

    def _linked(self, row: EventRow, digest: Any, link: Any) -> bool:
        try:
            return bool(hash_chain.chain_value(self._chain, *EventHeader(*row[:7]), digest) == link)
        except (TypeError, UnicodeEncodeError):  # a column holds what was never written
            return False

    def _body(self, row: EventRow, digest: Any) -> None:
        body, blob, erased = row[7:10]
        if erased == 1 and blob is None:
            self.erased += 1
            self._left[row[0]] = hashlib.sha256(body or b"").digest(), str(row[1])
            return
        if erased != 0 or (body is None) == (blob is None):
            self._say("body", row, "has a body where it should have none, or none at all")
            return
        data = body if blob is None else self._blob(row, blob)
        if data is None:
            return
        if not isinstance(data, bytes) or hash_chain.body_hash(data) != digest:
            self._say("body", row, "has another body than was stored")
            return
        self.bytes += len(data)
        self._vouches(row[5], data)

    def _vouches(self, kind: str, data: bytes) -> None:
        """What a sound event says about earlier ones."""
        if kind not in ("erased", "repaired"):
            return
        match msgspec.msgpack.decode(data, type=event_bodies.BODY_TYPES[kind]):
            case event_bodies.BodiesErased(seqs=seqs, remainders=digests):
                self._told.update(zip(seqs, digests, strict=True))
            case event_bodies.JournalRepaired(seqs=seqs, rows=rows, copies=copies):
                for seq, digest in zip(seqs, rows, strict=True):
                    _, first = self._repaired.get(seq, (b"", step_queries.repair_name(copies)))
                    self._repaired[seq] = digest, first

    def _blob(self, row: EventRow, name: str) -> bytes | None:
        try:
            packed = store_reader.blob_path(self._home, name).read_bytes()
            sound = hashlib.sha256(packed).hexdigest() == name
            data = store_reader.unpack_blob(self._home, name, packed)
        except (OSError, HoustonError, TypeError, ValueError) as problem:
            self._say("blob", row, f"names a blob that cannot be read ({problem})")
            return None
        if sound:
            self.blobs.add(name)
        else:
            self._say("blob", row, f"names the blob {name}, whose file was changed")
        return data

    def _say(self, what: Any, row: EventRow, text: str) -> None:
        self._findings.add(what, f"Event {row[0]} {text}.", row[0], str(row[1]))


def _hash_row(row: EventRow) -> bytes:
    try:
        return hash_chain.row_hash(row)
    except UnicodeEncodeError:  # text of damaged bytes, which no repair has left
        return b""


VERIFY_PAGE_EVENTS = 1_000
"""Events of one read."""
SEPARATE_REPLAY_BYTES = 32 * 1024 * 1024
"""A larger database is replayed in a process of its own: starting one takes 0.1 s."""


class VerificationReport(msgspec.Struct, frozen=True):
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
    findings: tuple[IntegrityFinding, ...]
    aside: int = 0
    """Events that repairs set aside: known, and no damage."""
    losses: tuple[LossFromRepair, ...] = ()
    """The same by rollout and repair."""
    blobs: tuple[str, ...] = ()
    """Names of the sound blobs that events name."""


def verify_home(home: Home) -> VerificationReport:
    """Check a home; raises HoustonError when there is no database that can be opened."""
    began = time.monotonic()
    findings = IntegrityFindings()
    head = _check_chain_head(
        home, findings
    )  # before the events: the journal may only be further than it
    connection = open_read_only(home)
    beside = None
    try:
        if home.database.stat().st_size > SEPARATE_REPLAY_BYTES:
            beside = projection_replay.ReplayProcess(home)
        events = EventChecker(home, connection, findings)
        _check_structure_and_events(connection, events, findings)
        _check_wal_end(home, findings)
        _check_journal_end(connection, head, events, findings)
        findings.join(
            beside.findings() if beside else projection_replay.check_projections_guarded(home)
        )
    finally:
        connection.close()
        if beside:
            beside.end()
    return VerificationReport(
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


def _check_chain_head(home: Home, findings: IntegrityFindings) -> home_files.ChainHead | None:
    try:
        head = home_files.read_chain_head(home)
    except HoustonError as problem:
        findings.add("head", problem.cause)
        return None
    if head is None:
        findings.add("head", f"{home.head_file} is missing: a cut end could not be seen.")
    return head


def _check_structure_and_events(
    connection: sqlite3.Connection, events: EventChecker, findings: IntegrityFindings
) -> None:
    """Structure and events; a damage that stops SQLite itself is one finding."""
    try:
        for (line,) in connection.execute("PRAGMA integrity_check(20)"):
            if line != "ok":
                findings.add("structure", f"SQLite: {line}.")
        while events.page(VERIFY_PAGE_EVENTS):  # each page is a read transaction of its own
            pass
    except (sqlite3.DatabaseError, UnicodeDecodeError) as problem:
        findings.add(
            "structure",
            f"SQLite cannot read on after event {events.seq}: {problem}.",
            seq=events.seq + 1,
        )
    events.end()


def _check_wal_end(home: Home, findings: IntegrityFindings) -> None:
    """A WAL that somebody writes is in motion; one at rest must end where SQLite stops."""
    if find_running_daemon(home) is not None:
        return
    wal = wal_inspection.inspect_wal(home.database)
    if wal.header_damaged:
        findings.add("end", "The head of the WAL is damaged: SQLite reads nothing of it.")
    elif wal.unread > 1:
        findings.add(
            "end", f"The WAL is damaged: {wal.unread} transactions behind the damage are lost."
        )


def _check_journal_end(
    connection: sqlite3.Connection,
    head: home_files.ChainHead | None,
    events: EventChecker,
    findings: IntegrityFindings,
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
