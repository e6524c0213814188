"""What /proc says about processes: their parents, foreground or not, still alive or not.

Pids are reused, so a process is remembered by pid and start time together. This module signals
processes and finds those that carry a token in their environment; it does not know their purpose.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessKey:
    """One process, uniquely: a later process with the same pid has another start time."""

    pid: int
    started: int
    """Field 22 of /proc/<pid>/stat, clock ticks since boot; 0 stands for no process."""


NO_PROCESS = ProcessKey(0, 0)
_MIN_TOKEN_LENGTH = 16
MARK_VARIABLE = "HOUSTON_ROLLOUT"
"""Environment variable of everything that runs for a rollout."""


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The fields of /proc/<pid>/stat that matter here (proc(5))."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    foreground: int
    """Foreground process group of the controlling terminal, -1 without one."""
    started: int

    @property
    def ended(self) -> bool:
        """Whether the process has ended, and waits for its parent to ask for its exit status."""
        return self.state in "ZX"


def read_process_stat(pid: int) -> ProcessStat | None:
    """Read one process; None when there is none (any more)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    head, _, tail = text.rpartition(")")
    state, *numbers = tail.split()
    parent, group, session, _, foreground = map(int, numbers[:5])
    name = head.partition("(")[2]
    return ProcessStat(pid, name, state, parent, group, session, foreground, int(numbers[18]))


def process_key(pid: int) -> ProcessKey:
    """The lasting name of a running process; NO_PROCESS when there is none."""
    stat = read_process_stat(pid)
    return ProcessKey(pid, stat.started) if stat else NO_PROCESS


def is_alive(key: ProcessKey) -> bool:
    """Whether this very process still runs (a zombie does not)."""
    stat = read_process_stat(key.pid) if key.pid > 0 else None
    return stat is not None and stat.started == key.started and not stat.ended


def list_processes() -> dict[int, ProcessStat]:
    """All processes that this user can see, by pid."""
    stats = (read_process_stat(int(name)) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208
    return {stat.pid: stat for stat in stats if stat}


def read_environment(pid: int) -> bytes:
    """The environment that a process was started with, its parts ended by NUL bytes.

    Empty when the process is gone or another user's.
    """
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def descendants(root: int, processes: dict[int, ProcessStat]) -> list[ProcessStat]:
    """Children of `root` and theirs, parents first."""
    children: dict[int, list[ProcessStat]] = {}
    for entry in processes.values():
        children.setdefault(entry.parent, []).append(entry)
    below: list[ProcessStat] = []
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(0), ()):
            below.append(child)
            waiting.append(child.pid)
    return below


def inner_pid(pid: int) -> int:
    """The pid of a process as it sees itself in its own pid namespace; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_bytes().split(b"\n")
    except OSError:
        return 0
    for line in lines:  # the first is a name, in which `\r` may stand
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return pid


def children(pid: int) -> list[ProcessStat]:
    """The running processes whose parent is `pid`, as its first thread started or adopted them."""
    try:
        pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    stats = (read_process_stat(int(child)) for child in pids)
    return [stat for stat in stats if stat is not None and not stat.ended]


def command_line(pid: int) -> str:
    """How a process was called, its arguments parted by spaces; empty when it is gone."""
    try:
        data = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return data.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")


def age_seconds(started: int) -> float:
    """Seconds since a process started, whatever the wall clock did. started: as in `ProcessKey`."""
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return uptime - started / os.sysconf("SC_CLK_TCK")


def send_signal(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal processes; those that have ended meanwhile are passed over."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_all_marked(token: str) -> None:
    """Kill the processes that carry `token` until none is left: one that was forking may leave a
    child.

    Raises ValueError for a token that is too short: every process would carry it.
    """
    for _ in range(20):
        if not kill_marked(token):
            return
        time.sleep(0.01)


def kill_marked(token: str) -> int:
    """Kill every process whose environment carries `token`; returns how many there were.

    Finds what left its process group and session, which no group signal reaches.
    Raises ValueError for a token that is too short to be one: every process would carry it.
    """
    if len(token) < _MIN_TOKEN_LENGTH:
        raise ValueError(f"{token!r} names no process")
    needle = token.encode()
    killed = 0
    for name in os.listdir("/proc"):  # noqa: PTH208
        if not name.isdigit() or int(name) == os.getpid():
            continue
        if needle in read_environment(int(name)):
            send_signal([int(name)], signal.SIGKILL)
            killed += 1
    return killed
