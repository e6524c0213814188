"""What SQLite's WAL files show: transactions after a damaged frame, and who holds the WAL back.

Reads the file formats of sqlite.org/fileformat2.html §4 and sqlite.org/walformat.html: frames after
the last one that SQLite accepts, and readers by their locks on the -shm file, identified by
/proc/locks. Can end such a reader. `wal_checkpoints` copies the WAL into the database.
"""

import logging
import os
import signal
import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

from houston_shared.safe_text import safe

LOGGER = logging.getLogger("houston.recorder")

PROC_LOCKS = Path("/proc/locks")
READ_LOCK_BYTES = range(123, 128)
"""Bytes of -shm whose locks are read transactions."""
COMMAND_LIMIT = 80
"""Characters of a command line that are shown."""
_HOUSTON_PROGRAMS = ("houston_shared.command", "houston_daemon.", "houston_console.")


class WalReader(NamedTuple):
    """One process that reads."""

    pid: int
    command: str
    """Its command line, safe to show; empty where it cannot be read."""
    is_houston: bool
    """Whether it is a `houston` command of this user, and not this process."""
    may_end: bool = False
    """Whether this process may end it: one of this user, or any where this user is root."""

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.command[:COMMAND_LIMIT] or 'unknown'})"


def find_wal_readers(database: Path) -> list[WalReader]:
    """Processes that have a read transaction open now."""
    try:
        inode = database.with_name(database.name + "-shm").stat().st_ino
        lines = PROC_LOCKS.read_text(encoding="ascii").splitlines()
    except OSError as problem:
        LOGGER.debug("readers cannot be named: %s", problem)
        return []
    pids = {int(words[4]) for words in map(str.split, lines) if _is_read_lock(words, inode)}
    return [_describe_process(pid) for pid in sorted(pids)]


def end_wal_reader(holder: WalReader, hard: bool) -> None:
    """Ask a reader to end. hard: kill it instead (it may be stopped)."""
    number = signal.SIGKILL if hard else signal.SIGTERM
    LOGGER.warning("ending %s (%s): its read transaction holds up rollouts", holder, number.name)
    try:
        os.kill(holder.pid, number)
    except (ProcessLookupError, PermissionError) as problem:
        LOGGER.info("%s: %s", holder, problem)


def _is_read_lock(words: list[str], inode: int) -> bool:
    """`1: POSIX ADVISORY READ 4711 fe:01:1234 123 123`, see proc_locks(5); `->` marks a waiter."""
    if len(words) != 8 or words[1] not in ("POSIX", "OFDLCK") or words[3] != "READ":
        return False
    first, last = words[6:]
    is_same_file = int(words[5].rpartition(":")[2]) == inode
    return (
        is_same_file
        and last != "EOF"
        and any(int(first) <= n <= int(last) for n in READ_LOCK_BYTES)
    )


def _describe_process(pid: int) -> WalReader:
    process = Path(f"/proc/{pid}")
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        me, uid = os.geteuid(), process.stat().st_uid
    except OSError:
        return WalReader(pid, "", False)
    is_houston = any(
        word.startswith(_HOUSTON_PROGRAMS) or word.endswith("/houston") for word in words
    )
    is_other = pid != os.getpid()
    is_own, may_end = is_other and uid == me, is_other and me in (0, uid)
    return WalReader(pid, safe(" ".join(words).strip()), is_own and is_houston, may_end)


_WAL_HEADER = struct.Struct(">8I")
_FRAME_HEADER = struct.Struct(">6I")
_BIG_ENDIAN_MAGIC = 0x377F0683
_LITTLE_ENDIAN_MAGIC = 0x377F0682
_INDEX_FRAMES = slice(16, 20)
"""Where the shared-memory file says how many frames are valid (native byte order)."""


class WalState(NamedTuple):
    """The log of a database that nobody writes."""

    unread_commits: int
    """Complete transactions behind the frame at which SQLite stops; 1 may be a torn last write."""
    header_damaged: bool


def inspect_wal(database: Path) -> WalState:
    """Look at the WAL beside `database`, which a connection must have open; raises OSError."""
    path = database.with_name(database.name + "-wal")
    try:
        with path.open("rb") as file:
            head = file.read(_WAL_HEADER.size)
            if len(head) < _WAL_HEADER.size or not any(head):
                return WalState(0, False)
            if not _is_header_sound(head):
                return WalState(0, True)
            fields = _WAL_HEADER.unpack(head)
            return WalState(
                _count_unread_commits(file, fields[2], fields[4:6], _count_valid_frames(database)),
                False,
            )
    except FileNotFoundError:
        return WalState(0, False)


def _count_valid_frames(database: Path) -> int:
    """How many frames SQLite's recovery has taken."""
    index = database.with_name(database.name + "-shm").read_bytes()[: _INDEX_FRAMES.stop]
    return int(struct.unpack("=I", index[_INDEX_FRAMES])[0]) if len(index) == 20 else 0


def _count_unread_commits(file: BinaryIO, page: int, salts: tuple[int, int], valid: int) -> int:
    """Frames that end a transaction, with this log's salts, behind frame number `valid`."""
    commits, offset = 0, _WAL_HEADER.size + valid * (_FRAME_HEADER.size + page)
    while True:
        file.seek(offset)
        frame = file.read(_FRAME_HEADER.size)
        if len(frame) < _FRAME_HEADER.size:
            return commits
        _, pages, *rest = _FRAME_HEADER.unpack(frame)
        if tuple(rest[:2]) == salts and pages:
            commits += 1
        offset += _FRAME_HEADER.size + page


def _is_header_sound(head: bytes) -> bool:
    """Whether the header's own checksum holds."""
    magic = struct.unpack(">I", head[:4])[0]
    if magic not in (_BIG_ENDIAN_MAGIC, _LITTLE_ENDIAN_MAGIC):
        return False
    words = struct.unpack(f"{'>' if magic == _BIG_ENDIAN_MAGIC else '<'}6I", head[:24])
    sum_1 = sum_2 = 0
    for index in range(0, 6, 2):
        sum_1 = (sum_1 + words[index] + sum_2) & 0xFFFFFFFF
        sum_2 = (sum_2 + words[index + 1] + sum_1) & 0xFFFFFFFF
    return (sum_1, sum_2) == struct.unpack(">2I", head[24:32])
