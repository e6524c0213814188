"""Messages over a pair of pipes: four bytes of length, then msgpack.

Both ends of an SSH connection use it. It knows nothing of what the messages say.
"""

import asyncio
import struct
from collections.abc import Callable

MOST = 96 * 1024 * 1024
"""Bytes of one message; the largest honest one is a process's output of 64 MB."""
GREETING = b"\nhouston-host 1\n"
"""What the far side says first; whatever a login shell printed comes before it and is no message.
"""
_NOISE = 65_536
_PART = 1 << 18
_LENGTH = struct.Struct(">I")


class Garbled(Exception):
    """The other end does not speak this protocol; the text says what came instead."""


def packed(body: bytes) -> bytes:
    """One message, ready to be written. Raises ValueError when it is too long."""
    if len(body) > MOST:
        raise ValueError(f"a message of {len(body)} bytes is longer than {MOST}")
    return _LENGTH.pack(len(body)) + body


async def read(
    reader: asyncio.StreamReader, heard: Callable[[], None] | None = None
) -> bytes | None:
    """The next message; None when the other end has gone, also in the middle of one.

    heard: told at every part of a message that comes. Raises Garbled for a length that no message
    has.
    """
    head = await _exactly(reader, _LENGTH.size, heard)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    if length > MOST:
        raise Garbled(f"a message of {length} bytes was announced")
    return await _exactly(reader, length, heard)


async def _exactly(
    reader: asyncio.StreamReader, count: int, heard: Callable[[], None] | None
) -> bytes | None:
    parts: list[bytes] = []
    while count:
        try:
            part = await reader.read(min(count, _PART))
        except ConnectionError:
            part = b""
        if not part:
            return None
        if heard is not None:
            heard()
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


async def greeted(reader: asyncio.StreamReader) -> None:
    """Read up to and with the greeting. Raises Garbled when something else comes, or nothing."""
    seen = b""
    while GREETING not in seen:
        byte = await reader.read(1)
        if not byte or len(seen) > _NOISE:
            said = seen.decode(errors="replace").strip()[-200:]
            raise Garbled(f"it said {said!r}" if said else "it said nothing")
        seen += byte
