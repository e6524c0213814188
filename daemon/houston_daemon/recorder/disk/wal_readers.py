"""Who holds the WAL back: processes with a read transaction open on the database.

SQLite marks a reader by a shared lock on one of five bytes of the -shm file (sqlite.org/walformat,
"WAL locks": 120 + 3 to 120 + 7); the kernel lists who holds them in /proc/locks. A process of
another container may be listed as 0, and a kernel without that file names nobody.
"""

import logging
import os
import signal
from pathlib import Path
from typing import NamedTuple

from houston_shared.safe_text import safe

LOGGER = logging.getLogger("houston.recorder")

LOCKS = Path("/proc/locks")
READ_MARKS = range(123, 128)
"""Bytes of -shm whose locks are read transactions."""
SHOWN = 80
"""Characters of a command line that are shown."""
_OWN = ("houston_shared.command", "houston_daemon.", "houston_console.")


class Holder(NamedTuple):
    """One process that reads."""

    pid: int
    command: str
    """Its command line, safe to show; empty where it cannot be read."""
    ours: bool
    """Whether it is a `houston` command of this user, and not this process."""
    endable: bool = False
    """Whether this process may end it: one of this user, or any where this user is root."""

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.command[:SHOWN] or 'unknown'})"


def holders(database: Path) -> list[Holder]:
    """Processes that have a read transaction open now."""
    try:
        inode = database.with_name(database.name + "-shm").stat().st_ino
        lines = LOCKS.read_text(encoding="ascii").splitlines()
    except OSError as problem:
        LOGGER.debug("readers cannot be named: %s", problem)
        return []
    pids = {int(words[4]) for words in map(str.split, lines) if _marks(words, inode)}
    return [_holder(pid) for pid in sorted(pids)]


def end(holder: Holder, hard: bool) -> None:
    """Ask a reader to end; `hard`: whether it wants or not (it may be stopped)."""
    number = signal.SIGKILL if hard else signal.SIGTERM
    LOGGER.warning("%s is ended (%s): its read transaction holds rollouts up", holder, number.name)
    try:
        os.kill(holder.pid, number)
    except (ProcessLookupError, PermissionError) as problem:
        LOGGER.info("%s: %s", holder, problem)


def _marks(words: list[str], inode: int) -> bool:
    """`1: POSIX ADVISORY READ 4711 fe:01:1234 123 123`, see proc_locks(5); `->` marks a waiter."""
    if len(words) != 8 or words[1] not in ("POSIX", "OFDLCK") or words[3] != "READ":
        return False
    first, last = words[6:]
    found = int(words[5].rpartition(":")[2]) == inode
    return found and last != "EOF" and any(int(first) <= n <= int(last) for n in READ_MARKS)


def _holder(pid: int) -> Holder:
    place = Path(f"/proc/{pid}")
    try:
        words = (place / "cmdline").read_bytes().decode(errors="replace").split("\0")
        me, uid = os.geteuid(), place.stat().st_uid
    except OSError:
        return Holder(pid, "", False)
    own = any(word.startswith(_OWN) or word.endswith("/houston") for word in words)
    other = pid != os.getpid()
    mine, may = other and uid == me, other and me in (0, uid)
    return Holder(pid, safe(" ".join(words).strip()), mine and own, may)
