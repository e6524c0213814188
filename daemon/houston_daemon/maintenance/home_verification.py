"""`houston verify`: reads every byte of the store and reports what is unsound. Changes nothing.

It checks SQLite's own structure and indexes, the WAL after what SQLite takes from it, the chain
over all events, every body and blob against its hash, what remains of erased bodies against the
event that erased them, every derived row against a replay, and the end against the head file. It
cannot notice the loss of events stored after the head file was last written (at most a second
before a crash, nothing after a clean stop): they leave no trace elsewhere. Presence and `search.db`
are not checked, because they decide nothing.

The home may be live: events are read in short transactions, the tables in one at the end.
"""

import hashlib
import sqlite3
import time
from typing import Any

import msgspec

from houston_daemon.maintenance import projection_replay
from houston_daemon.maintenance.damage_report import (
    FindingKind,
    IntegrityFinding,
    IntegrityFindings,
)
from houston_daemon.recorder import hash_chain
from houston_daemon.recorder.disk import home_files, wal_inspection
from houston_daemon.recorder.hash_chain import EventRow
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.home_lock import find_running_daemon
from houston_shared.store import event_bodies, step_queries, store_reader
from houston_shared.store.step_queries import LossFromRepair


class EventChecker:
    """Walks through the journal once, in pages; `finish` says what only the whole could."""

    def __init__(
        self, home: Home, connection: sqlite3.Connection, findings: IntegrityFindings
    ) -> None:
        """connection: the home's database, read only."""
        self._home = home
        self._connection = connection
        self._findings = findings
        self._chain: Any = hash_chain.GENESIS
        self._unlinked_rows: dict[int, tuple[EventRow, str]] = {}
        """Rows that do not fit the chain; a repair may vouch for them later in the journal."""
        self._remainders: dict[int, tuple[bytes, str]] = {}
        """What is left of erased bodies (SHA-256), and whose they are."""
        self._erasure_digests: dict[int, bytes] = {}
        """What erasing events say is left (SHA-256)."""
        self._repaired: dict[int, tuple[bytes, str]] = {}
        """Hash of a row that a repair vouches for, and which repair it was."""
        self._quarantined: list[tuple[str, step_queries.QuarantinedEvent]] = []
        self.seq = 0
        """The last event that was read."""
        self.count = 0
        self.bytes = 0
        self.erased = 0
        self.blobs: set[str] = set()
        """Blobs that are named and sound."""

    def check_page(self, size: int) -> bool:
        """Check the next events; returns whether there were any. Call it until there are none: an
        event that erased another meanwhile comes at the end. Raises sqlite3.DatabaseError."""
        before = self.seq
        for row in projection_replay.fetch_events(self._connection, before, size):
            self._check_event(row)
        return self.seq > before

    def finish(self) -> None:
        """Say what no later event has vouched for."""
        for seq, (row, why) in self._unlinked_rows.items():
            vouched, repair = self._repaired.get(seq, (b"", ""))
            if vouched != _hash_row(row):
                self._add("chain", row, why)
            elif row.kind == event_bodies.QUARANTINED_KIND:
                event = step_queries.QuarantinedEvent(seq, row.step, repair, 0)
                self._quarantined.append((row.rollout, event))
        for seq, (digest, rollout) in self._remainders.items():
            if self._erasure_digests.get(seq) != digest:
                text = f"Event {seq} was not erased in the way that the journal says."
                self._findings.add("body", text, seq, rollout)

    @property
    def repair_losses(self) -> tuple[LossFromRepair, ...]:
        """What repairs set aside, of each rollout; known, and no damage. After `finish`."""
        by_rollout: dict[str, list[step_queries.QuarantinedEvent]] = {}
        for rollout, event in self._quarantined:
            by_rollout.setdefault(rollout, []).append(event)
        return tuple(
            loss
            for rollout, events in by_rollout.items()
            for loss in step_queries.group_repair_losses(events, rollout)
        )

    def _check_event(self, row: EventRow) -> None:
        seq = row.seq
        if seq > self.seq + 1:
            self._findings.add(
                "missing", f"Events {self.seq + 1} to {seq - 1} are missing.", self.seq + 1
            )
        quarantined = row.kind == event_bodies.QUARANTINED_KIND
        if quarantined:
            self._unlinked_rows[seq] = row, "is set aside, but no repair recorded it"
        elif not self._is_linked(row):
            self._unlinked_rows[seq] = row, "does not fit the chain"
        self.seq = max(self.seq, seq)  # a damaged tree may lead back
        self._chain = row.chain
        self.count += 1
        if not quarantined:
            self._check_body(row)

    def _is_linked(self, row: EventRow) -> bool:
        try:
            link = hash_chain.chain_value(self._chain, row.header, row.body_hash)
        except (TypeError, UnicodeEncodeError):  # a column holds what was never written
            return False
        return bool(link == row.chain)

    def _check_body(self, row: EventRow) -> None:
        if row.erased == 1 and row.blob is None:
            self.erased += 1
            self._remainders[row.seq] = (
                hashlib.sha256(row.body or b"").digest(),
                str(row.rollout),
            )
            return
        if row.erased != 0 or (row.body is None) == (row.blob is None):
            self._add("body", row, "has a body where it should have none, or none at all")
            return
        data = row.body if row.blob is None else self._read_blob(row)
        if data is None:
            return
        if not isinstance(data, bytes) or hash_chain.body_hash(data) != row.body_hash:
            self._add("body", row, "has a different body than was stored")
            return
        self.bytes += len(data)
        self._note_vouchers(row.kind, data)

    def _note_vouchers(self, kind: str, data: bytes) -> None:
        """What a sound event says about earlier ones."""
        if kind not in event_bodies.VOUCHING_KINDS:
            return
        match msgspec.msgpack.decode(data, type=event_bodies.BODY_TYPES[kind]):
            case event_bodies.BodiesErased(seqs=seqs, remainders=digests):
                self._erasure_digests.update(zip(seqs, digests, strict=True))
            case event_bodies.JournalRepaired(seqs=seqs, rows=rows, copies=copies):
                for seq, digest in zip(seqs, rows, strict=True):
                    _, first = self._repaired.get(seq, (b"", step_queries.repair_name(copies)))
                    self._repaired[seq] = digest, first

    def _read_blob(self, row: EventRow) -> bytes | None:
        name = row.blob
        try:
            packed = store_reader.blob_path(self._home, name).read_bytes()
            sound = hashlib.sha256(packed).hexdigest() == name
            data = store_reader.unpack_blob(self._home, name, packed)
        except (OSError, HoustonError, TypeError, ValueError) as problem:
            now = projection_replay.fetch_events(self._connection, row.seq - 1, 1, row.seq)
            if now and now[0].erased == 1:  # meanwhile: its file goes after that is committed
                self._check_body(now[0])
                return None
            self._add("blob", row, f"names a blob that cannot be read ({problem})")
            return None
        if sound:
            self.blobs.add(name)
        else:
            self._add("blob", row, f"names the blob {name}, whose file was changed")
        return data

    def _add(self, kind: FindingKind, row: EventRow, text: str) -> None:
        self._findings.add(kind, f"Event {row.seq} {text}.", row.seq, str(row.rollout))


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
    # Before the events: the journal may only be further than the head.
    head = _check_chain_head(home, findings)
    connection = projection_replay.open_home(home)
    process = None
    try:
        if home.database.stat().st_size > SEPARATE_REPLAY_BYTES:
            process = projection_replay.ReplayProcess(home)
        events = EventChecker(home, connection, findings)
        _check_structure_and_events(connection, events, findings)
        _check_wal_end(home, findings)
        _check_journal_end(connection, head, events, findings)
        findings.join(
            process.findings() if process else projection_replay.check_projections_guarded(home)
        )
    finally:
        connection.close()
        if process:
            process.end()
    return VerificationReport(
        sound=not findings.findings,
        events=events.count,
        bytes=events.bytes,
        vouched=head.seq if head else 0,
        erased=events.erased,
        seconds=round(time.monotonic() - began, 3),
        findings=tuple(findings.findings),
        aside=sum(loss.events for loss in events.repair_losses),
        losses=events.repair_losses,
        blobs=tuple(sorted(events.blobs)),
    )


def _check_chain_head(home: Home, findings: IntegrityFindings) -> home_files.ChainHead | None:
    try:
        head = home_files.read_chain_head(home)
    except HoustonError as problem:
        findings.add("head", problem.cause)
        return None
    if head is None:
        findings.add(
            "head", f"{home.head_file} is missing: it cannot be told whether the end was cut off."
        )
    return head


def _check_structure_and_events(
    connection: sqlite3.Connection, events: EventChecker, findings: IntegrityFindings
) -> None:
    """Structure and events; a damage that stops SQLite itself is one finding."""
    try:
        for (line,) in connection.execute("PRAGMA integrity_check(20)"):
            if line != "ok":
                findings.add("structure", f"SQLite: {line}.")
        while events.check_page(VERIFY_PAGE_EVENTS):  # each page is a read transaction of its own
            pass
    except (sqlite3.DatabaseError, UnicodeDecodeError) as problem:
        findings.add(
            "structure",
            f"SQLite cannot read further after event {events.seq}: {problem}.",
            seq=events.seq + 1,
        )
    events.finish()


def _check_wal_end(home: Home, findings: IntegrityFindings) -> None:
    """A WAL that somebody writes is in motion; one at rest must end where SQLite stops."""
    if find_running_daemon(home) is not None:
        return
    wal = wal_inspection.inspect_wal(home.database)
    if wal.header_damaged:
        findings.add("end", "The head of the WAL is damaged: SQLite reads nothing of it.")
    elif wal.unread_commits > 1:
        findings.add(
            "end",
            f"The WAL is damaged: {wal.unread_commits} transactions after the damage are lost.",
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
            f"The end was cut off: the journal ends at event {events.seq}, but {head.seq} were "
            "stored.",
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
