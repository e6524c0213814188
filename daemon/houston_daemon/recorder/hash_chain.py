"""The journal's hash chain: what each event's `chain` is made of.

chain = SHA-256(previous chain ‖ header ‖ body_hash), so a body can be erased without breaking it.
Only the recorder and what maintains its home make or check it.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

GENESIS = bytes(32)
"""The chain before the first event."""

_encode_header = msgspec.msgpack.Encoder().encode


def body_hash(body: bytes) -> bytes:
    """SHA-256 of an event's body."""
    return hashlib.sha256(body).digest()


def chain_value(
    previous: bytes,
    seq: int,
    rollout: str,
    step: int,
    attempt: int,
    part: str | None,
    kind: str,
    at: int,
    digest: bytes,
) -> bytes:
    """The chain value of one event.

    previous: chain of the event before (`GENESIS` for the first); digest: its `body_hash`.
    """
    header = _encode_header((seq, rollout, step, attempt, part, kind, at))
    return hashlib.sha256(previous + header + digest).digest()


def row_hash(row: Sequence[Any]) -> bytes:
    """SHA-256 over a whole row of `events`, in the order of its columns."""
    return hashlib.sha256(_encode_header(tuple(row))).digest()
