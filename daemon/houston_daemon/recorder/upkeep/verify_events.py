"""The journal, event by event: sequence, chain, body and blob, and what was erased or set aside.

What an event means for the derived tables is `verify_replay`'s.
"""

import hashlib
import sqlite3
from typing import Any

import msgspec

from houston_daemon.recorder.derived.rules import Event
from houston_daemon.recorder.upkeep.verify_findings import Findings
from houston_daemon.recorder.upkeep.verify_open import fetch
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import blobs, bodies, chain
from houston_shared.store.queries import aside

COLUMNS = "seq, rollout, step, attempt, part, kind, at, body, blob, erased, body_hash, chain"
_SELECT = f"SELECT {COLUMNS} FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
Row = tuple[Any, ...]


class EventCheck:
    """Walks through the journal once, in pages; `end` says what only the whole could."""

    def __init__(self, home: Home, connection: sqlite3.Connection, findings: Findings) -> None:
        """connection: the home's database, read only."""
        self._home = home
        self._connection = connection
        self._findings = findings
        self._chain: Any = chain.GENESIS
        self._doubts: dict[int, tuple[Row, str]] = {}
        """Rows that do not fit the chain; a repair may vouch for them later in the journal."""
        self._left: dict[int, tuple[bytes, str]] = {}
        """What is left of erased bodies (SHA-256), and whose they are."""
        self._told: dict[int, bytes] = {}
        self._repaired: dict[int, tuple[bytes, str]] = {}
        """Hash of a row that a repair vouches for, and which repair it was."""
        self._holes: list[tuple[str, aside.Hole]] = []
        self.seq = 0
        """The last event that was read."""
        self.count = 0
        self.bytes = 0
        self.erased = 0
        self.blobs: set[str] = set()
        """Blobs that are named and sound."""

    def page(self, size: int) -> bool:
        """Check the next events; whether there may be more. Raises sqlite3.DatabaseError."""
        rows = fetch(self._connection, _SELECT, self.seq, size)
        for row in rows:
            self._one(row)
        return len(rows) == size

    def end(self) -> None:
        """Say what no later event has vouched for."""
        for seq, (row, why) in self._doubts.items():
            vouched, repair = self._repaired.get(seq, (b"", ""))
            if vouched != _row_hash(row):
                self._say("chain", row, why)
            elif row[5] == bodies.ASIDE:
                self._holes.append((row[1], aside.Hole(seq, row[2], repair, 0)))
        for seq, (digest, rollout) in self._left.items():
            if self._told.get(seq) != digest:
                text = f"Event {seq} was erased otherwise than the journal says."
                self._findings.add("body", text, seq, rollout)

    @property
    def aside(self) -> tuple[aside.Loss, ...]:
        """What repairs set aside, of each rollout; known, and no damage. After `end`."""
        by: dict[str, list[aside.Hole]] = {}
        for rollout, hole in self._holes:
            by.setdefault(rollout, []).append(hole)
        return tuple(loss for rollout, holes in by.items() for loss in aside.losses(holes, rollout))

    def _one(self, row: Row) -> None:
        seq, kind, digest, link = row[0], row[5], row[10], row[11]
        if seq != self.seq + 1:
            self._findings.add(
                "missing", f"Events {self.seq + 1} to {seq - 1} are missing.", self.seq + 1
            )
        if kind == bodies.ASIDE:
            self._doubts[seq] = row, "is set aside, and no repair says so"
        elif not self._linked(row, digest, link):
            self._doubts[seq] = row, "does not fit the chain"
        self.seq, self._chain = seq, link
        self.count += 1
        if kind != bodies.ASIDE:
            self._body(row, digest)

    def _linked(self, row: Row, digest: Any, link: Any) -> bool:
        try:
            return bool(chain.link(self._chain, *Event(*row[:7]), digest) == link)
        except (TypeError, UnicodeEncodeError):  # a column holds what was never written
            return False

    def _body(self, row: Row, digest: Any) -> None:
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
        if not isinstance(data, bytes) or chain.body_hash(data) != digest:
            self._say("body", row, "has another body than was stored")
            return
        self.bytes += len(data)
        self._vouches(row[5], data)

    def _vouches(self, kind: str, data: bytes) -> None:
        """What a sound event says about earlier ones."""
        if kind not in ("erased", "repaired"):
            return
        match msgspec.msgpack.decode(data, type=bodies.TYPES[kind]):
            case bodies.Erased(seqs=seqs, remainders=digests):
                self._told.update(zip(seqs, digests, strict=True))
            case bodies.Repaired(seqs=seqs, rows=rows, copies=copies):
                for seq, digest in zip(seqs, rows, strict=True):
                    _, first = self._repaired.get(seq, (b"", aside.name(copies)))
                    self._repaired[seq] = digest, first

    def _blob(self, row: Row, name: str) -> bytes | None:
        try:
            packed = blobs.place(self._home, name).read_bytes()
            sound = hashlib.sha256(packed).hexdigest() == name
            data = blobs.unpack(self._home, name, packed)
        except (OSError, HoustonError, TypeError, ValueError) as problem:
            self._say("blob", row, f"names a blob that cannot be read ({problem})")
            return None
        if sound:
            self.blobs.add(name)
        else:
            self._say("blob", row, f"names the blob {name}, whose file was changed")
        return data

    def _say(self, what: Any, row: Row, text: str) -> None:
        self._findings.add(what, f"Event {row[0]} {text}.", row[0], str(row[1]))


def _row_hash(row: Row) -> bytes:
    try:
        return chain.row_hash(row)
    except UnicodeEncodeError:  # text of damaged bytes, which no repair has left
        return b""
