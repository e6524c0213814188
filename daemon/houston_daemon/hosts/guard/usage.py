"""Whose processes use what, read from /proc: tasks, memory and bytes written, for each sandbox.

A sandbox is told by its pid namespace. This module ends processes when asked; it decides nothing.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from houston_daemon.hosts import processes

_PAGE = os.sysconf("SC_PAGE_SIZE")
_ROUNDS = 200
_PAUSE = 0.01


@dataclass(slots=True)
class Used:
    """What one sandbox uses."""

    pids: list[int] = field(default_factory=list)
    tasks: int = 0
    memory: int = 0
    """Bytes, resident and not shared with a file."""
    shared: int = 0
    """Bytes of files in the sandbox' own /dev/shm, which stay when who wrote them has ended."""
    written: int = 0
    """Bytes that its living processes have sent to disks."""


def by_sandbox(pids: Iterable[int]) -> dict[str, Used]:
    """Use by pid namespace; processes that end meanwhile are passed over."""
    found: dict[str, Used] = {}
    for pid in pids:
        try:
            space = space_of(pid)
            pages = Path(f"/proc/{pid}/statm").read_text().split()
            # The name in it may be any bytes.
            tasks = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[17])
        except OSError:
            continue
        used = found.setdefault(space, Used())
        used.pids.append(pid)
        used.tasks += tasks
        used.memory += (int(pages[1]) - int(pages[2])) * _PAGE
        used.written += _written(pid)
    for used in found.values():
        used.shared = next((held for pid in used.pids if (held := _shared(pid)) >= 0), 0)
    return found


def space_of(pid: int) -> str:
    """The pid namespace of a process; empty when it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
    except OSError:
        return ""


def own_space() -> str:
    """The pid namespace of this process: bubblewrap's outer half runs in it."""
    return space_of(os.getpid())


def proportional(pids: Iterable[int]) -> int:
    """Bytes of memory with pages that several processes share counted once; slow."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss_Anon:"))
    return total


def unlinked(pids: Iterable[int], device: int) -> int:
    """Bytes of files on `device` that have no name any more but are held open."""
    found: dict[int, int] = {}
    for pid in pids:
        try:
            with os.scandir(f"/proc/{pid}/fd") as entries:
                names = [entry.path for entry in entries]
        except OSError:
            continue
        for name in names:
            with contextlib.suppress(OSError):
                seen = os.stat(name)  # noqa: PTH116
                if seen.st_dev == device and seen.st_nlink == 0:
                    found[seen.st_ino] = seen.st_blocks * 512
    return sum(found.values())


def end(targets: Callable[[], set[int]], held: bool) -> int:
    """Kill what `targets` names until it names nobody; returns how many were told to end.

    held: none of them can fork meanwhile. Else all are stopped first, so that none outruns us.
    """
    told: set[int] = set()
    for _ in range(_ROUNDS):
        found = targets()
        if not found:
            break
        if not held:
            processes.send(found, signal.SIGSTOP)
            if found - told:
                told |= found
                continue
        told |= found
        processes.send(found, signal.SIGKILL)
        time.sleep(_PAUSE)
    return len(told)


def _shared(pid: int) -> int:
    """Bytes in the /dev/shm that a process sees, 0 in the machine's own; −1 when it has ended."""
    place = f"/proc/{pid}/root/dev/shm"
    try:
        if os.stat(place).st_dev == os.stat("/proc/self/root/dev/shm").st_dev:  # noqa: PTH116
            return 0
        known = os.statvfs(place)
    except OSError:
        return -1
    return (known.f_blocks - known.f_bfree) * known.f_frsize


def _written(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("write_bytes")), 0)
