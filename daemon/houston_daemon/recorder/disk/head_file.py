"""The chain's head beside the database: what the journal held, said outside of it.

Written before the first event of a home, then after the commit it names, at most every second and
at a clean stop. So a journal that ends before the head was cut, for certain, and one without a head
file may have been. What was cut behind the head, in the last second before a crash, cannot be told
from what was never stored; after a clean stop there is no such second.
"""

import os

import msgspec

from houston_shared import synced_file
from houston_shared.errors import HoustonError
from houston_shared.faults import point
from houston_shared.home import Home


class Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The newest event that is vouched for."""

    seq: int
    chain: str
    """Its chain value, hex."""

    @property
    def value(self) -> bytes:
        """The chain value."""
        return bytes.fromhex(self.chain)


def read(home: Home) -> Head | None:
    """The head, None when there is no file; raises HoustonError when it is damaged."""
    try:
        data = home.head_file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise HoustonError(
            f"{home.head_file} cannot be read ({problem.strerror}).",
            "Nothing was opened.",
            "Move it away, then: houston verify",
        ) from None
    try:
        head = msgspec.json.decode(data, type=Head)
        sound = data == _bytes(head) and len(head.value) == 32 and head.value.hex() == head.chain
    except (msgspec.MsgspecError, ValueError):
        sound = False
    if not sound:
        raise HoustonError(
            f"{home.head_file} is damaged.", "Nothing was opened.", "houston verify"
        ) from None
    return head


def write(home: Home, seq: int, chain: bytes) -> None:
    """Replace the file atomically and durably; raises OSError."""
    beside = home.head_file.with_name(home.head_file.name + ".new")
    point("recorder.head.before")
    with beside.open("wb") as file:
        file.write(_bytes(Head(seq, chain.hex())))
        file.flush()
        os.fsync(file.fileno())
    point("recorder.head.synced")
    beside.replace(home.head_file)
    point("recorder.head.named")
    synced_file.sync(home.path)


def _bytes(head: Head) -> bytes:
    return msgspec.json.encode(head) + b"\n"
