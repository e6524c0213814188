"""A row of the journal, and its hash chain: what each event's `chain` is made of.

chain = SHA-256(previous chain ‖ header ‖ body_hash), so a body can be erased without breaking it.
Only the recorder and `houston_daemon.maintenance` create or check it.
"""

import hashlib
from typing import Any, NamedTuple

import msgspec

GENESIS = bytes(32)
"""The chain before the first event."""

_encode_header = msgspec.msgpack.Encoder().encode


class EventHeader(NamedTuple):
    """The header of one event, in the order in which the chain covers it."""

    seq: int
    rollout: str
    step: int
    attempt: int
    part: str | None
    kind: str
    at: int
    """UTC microseconds."""


class EventRow(NamedTuple):
    """A whole row of `events`; in a damaged database a column may hold anything."""

    seq: int
    rollout: Any
    step: Any
    attempt: Any
    part: Any
    kind: Any
    at: Any
    body: Any
    blob: Any
    erased: Any
    body_hash: Any
    chain: Any

    @property
    def header(self) -> EventHeader:
        """What the chain covers besides the body."""
        return EventHeader(*self[:7])


EVENT_COLUMNS = ", ".join(EventRow._fields)
INSERT_EVENT = (
    f"INSERT INTO events ({EVENT_COLUMNS}) VALUES ({', '.join('?' * len(EventRow._fields))})"
)


def body_hash(body: bytes) -> bytes:
    """SHA-256 of an event's body."""
    return hashlib.sha256(body).digest()


def chain_value(previous: bytes, header: EventHeader, digest: bytes) -> bytes:
    """The chain value of one event.

    previous: chain of the event before (`GENESIS` for the first); digest: its `body_hash`.
    """
    return hashlib.sha256(previous + _encode_header(header) + digest).digest()


def row_hash(row: EventRow) -> bytes:
    """SHA-256 over a whole row of `events`, in the order of its columns."""
    return hashlib.sha256(_encode_header(row)).digest()
