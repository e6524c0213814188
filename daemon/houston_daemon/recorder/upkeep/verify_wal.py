"""What lies in the WAL behind the last transaction that SQLite takes from it.

SQLite reads a WAL up to its first damaged frame and calls that sound. Transactions behind it show
that it was damage: each is written only after the one before was synced, so a power cut leaves at
most one that is incomplete. The layout is SQLite's (sqlite.org/fileformat2.html, §4; the index
header is that of sqlite.org/walformat.html, §2.1). Nothing is changed, and no page is read.
"""

import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_BIG_ENDIAN = 0x377F0683
_LITTLE_ENDIAN = 0x377F0682
_INDEX_FRAMES = slice(16, 20)
"""Where the shared-memory file says how many frames are valid (native byte order)."""


class Wal(NamedTuple):
    """The log of a database that nobody writes."""

    unread: int
    """Complete transactions behind the frame at which SQLite stops; 1 may be a torn last write."""
    header_damaged: bool


def look(database: Path) -> Wal:
    """Look at the WAL beside `database`, which a connection must have open; raises OSError."""
    path = database.with_name(database.name + "-wal")
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER.size)
            if len(head) < _HEADER.size or not any(head):
                return Wal(0, False)
            if not _sound(head):
                return Wal(0, True)
            fields = _HEADER.unpack(head)
            return Wal(_commits(file, fields[2], fields[4:6], _valid(database)), False)
    except FileNotFoundError:
        return Wal(0, False)


def _valid(database: Path) -> int:
    """How many frames SQLite's recovery has taken."""
    index = database.with_name(database.name + "-shm").read_bytes()[: _INDEX_FRAMES.stop]
    return int(struct.unpack("=I", index[_INDEX_FRAMES])[0]) if len(index) == 20 else 0


def _commits(file: BinaryIO, page: int, salts: tuple[int, int], valid: int) -> int:
    """Frames that end a transaction, with this log's salts, behind frame number `valid`."""
    found, place = 0, _HEADER.size + valid * (_FRAME.size + page)
    while True:
        file.seek(place)
        frame = file.read(_FRAME.size)
        if len(frame) < _FRAME.size:
            return found
        _, pages, *rest = _FRAME.unpack(frame)
        if tuple(rest[:2]) == salts and pages:
            found += 1
        place += _FRAME.size + page


def _sound(head: bytes) -> bool:
    """Whether the header's own checksum holds."""
    magic = struct.unpack(">I", head[:4])[0]
    if magic not in (_BIG_ENDIAN, _LITTLE_ENDIAN):
        return False
    words = struct.unpack(f"{'>' if magic == _BIG_ENDIAN else '<'}6I", head[:24])
    one = two = 0
    for index in range(0, 6, 2):
        one = (one + words[index] + two) & 0xFFFFFFFF
        two = (two + words[index + 1] + one) & 0xFFFFFFFF
    return (one, two) == struct.unpack(">2I", head[24:32])
