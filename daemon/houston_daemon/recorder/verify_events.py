"""The journal, event by event: sequence, chain, body, blob, and the replay of derived rows."""

import hashlib
import sqlite3
from typing import Any

import msgspec

from houston_daemon.recorder.derive import Event, apply
from houston_daemon.recorder.verify_findings import Findings
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import blobs, bodies, chain

_SELECT = (
    "SELECT seq, rollout, step, attempt, part, kind, at, body, blob, erased, body_hash, chain"
    " FROM home.events WHERE seq > ? ORDER BY seq LIMIT ?"
)


_UNREPLAYABLE = (
    msgspec.MsgspecError,
    sqlite3.Error,
    TypeError,
    ValueError,
    KeyError,
    OverflowError,
    RecursionError,
)
"""What a rule may raise over a header or body that was changed; nothing else is expected here."""


class EventCheck:
    """Walks through the journal once, in pages."""

    def __init__(self, home: Home, connection: sqlite3.Connection, findings: Findings) -> None:
        """connection: tables to replay into as `main`, the home as `home`."""
        self._home = home
        self._connection = connection
        self._findings = findings
        self._chain: Any = chain.GENESIS
        self._types = {kind: msgspec.msgpack.Decoder(type) for kind, type in bodies.TYPES.items()}
        self.seq = 0
        """The last event that was read."""
        self.count = 0
        self.bytes = 0
        self.erased = 0
        self.unreplayed: set[str] = set()
        """Rollouts with erased events: their derived rows cannot be known from the events."""

    def page(self, size: int) -> bool:
        """Check the next events; whether there may be more. Raises sqlite3.DatabaseError."""
        rows = self._connection.execute(_SELECT, (self.seq, size)).fetchall()
        for row in rows:
            self._one(Event(*row[:7]), *row[7:])
        return len(rows) == size

    def _one(self, event: Event, body: Any, blob: Any, erased: Any, digest: Any, link: Any) -> None:
        if event.seq != self.seq + 1:
            self._findings.add(
                "missing", f"Events {self.seq + 1} to {event.seq - 1} are missing.", self.seq + 1
            )
        if not self._linked(event, digest, link):
            self._say("chain", event, "does not fit the chain")
        self.seq, self._chain = event.seq, link
        self.count += 1
        data = self._body(event, body, blob, erased)
        if data is None:
            return
        self.bytes += len(data)
        if chain.body_hash(data) != digest:
            self._say("body", event, "has another body than was stored")
        self._replay(event, data)

    def _linked(self, event: Event, digest: Any, link: Any) -> bool:
        try:
            return bool(chain.link(self._chain, *event, digest) == link)
        except (TypeError, UnicodeEncodeError):  # a column holds what was never written
            return False

    def _body(self, event: Event, body: Any, blob: Any, erased: Any) -> bytes | None:
        """The body's bytes; None when it was erased or is lost."""
        places = (body is not None) + (blob is not None)
        if erased not in (0, 1) or places != (0 if erased else 1):
            self._say("body", event, "has a body where it should have none, or none at all")
        if erased or not places:
            self.erased += 1
            self.unreplayed.add(event.rollout)
            return None
        if blob is not None:
            return self._blob(event, blob)
        if isinstance(body, bytes):
            return body
        self._say("body", event, "has a body that is no bytes")
        return None

    def _blob(self, event: Event, name: str) -> bytes | None:
        try:
            packed = blobs.place(self._home, name).read_bytes()
            if hashlib.sha256(packed).hexdigest() != name:
                self._say("blob", event, f"names the blob {name}, whose file was changed")
            return blobs.read(self._home, name)
        except (OSError, HoustonError, TypeError, ValueError) as problem:
            self._say("blob", event, f"names a blob that cannot be read ({problem})")
            return None

    def _replay(self, event: Event, data: bytes) -> None:
        """Write the derived rows as they should be."""
        decoder = self._types.get(event.kind)
        if decoder is None:
            self._say("chain", event, f"is of a kind that there is not: {event.kind!r}")
            return
        try:
            apply(self._connection, event, decoder.decode(data))
        except _UNREPLAYABLE as problem:
            self._say("body", event, f"cannot be replayed ({problem})")

    def _say(self, what: Any, event: Event, text: str) -> None:
        self._findings.add(what, f"Event {event.seq} {text}.", event.seq, str(event.rollout))
