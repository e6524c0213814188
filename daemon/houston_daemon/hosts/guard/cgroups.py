"""The control groups of one rollout: made, joined, asked what they refused, emptied, removed.

A note outside the rollout's folder names them before they are made, so that whoever comes after a
crash finds them. Names of files differ between the versions; see cgroups(7), the kernel's
cgroup-v2.rst, and cgroup-v1/{pids,memory}.rst.
"""

import contextlib
import errno
import hashlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from houston_daemon.hosts import processes
from houston_daemon.hosts.guard import cgroup_places
from houston_daemon.hosts.limits import Limits, Mechanism

_END_SECONDS = 2.0


class Noted(msgspec.Struct):
    """What the note holds."""

    mechanism: Mechanism = "watchdog"
    folders: dict[str, str] = {}
    told_processes: int = 0
    """How many refusals of the kernel were told to the agent already."""
    told_memory: int = 0
    around: str = ""
    """The folder that holds the memory of all rollouts; empty where each stands by itself."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """What the kernel counted since a group was made."""

    processes: int = 0
    """Forks that were refused."""
    memory: int = 0
    """Processes that were ended for memory."""


class Groups:
    """A rollout's groups: one folder in version 2, one for each controller in version 1."""

    def __init__(self, note: Path, noted: Noted) -> None:
        self._note = note
        self.noted = noted
        self._folders = {name: Path(path) for name, path in noted.folders.items()}

    @property
    def mechanism(self) -> Mechanism:
        """How processes and memory are limited."""
        return self.noted.mechanism

    @property
    def together(self) -> bool:
        """Whether the kernel adds up the memory of all rollouts."""
        return bool(self.noted.around)

    @property
    def doors(self) -> list[Path]:
        """Files into which a process writes its number to join."""
        return [folder / "cgroup.procs" for folder in self._folders.values()]

    def limit(self, limits: Limits) -> None:
        """Make the groups where they are not there, and set their limits."""
        if self.noted.around:
            self._make_around(Path(self.noted.around), limits.together)
        for folder in self._folders.values():
            folder.mkdir(exist_ok=True)
        self._limit_processes(limits.processes)
        if memory := self._of("memory"):
            self._limit_memory(memory, limits.memory)

    def _make_around(self, around: Path, most: int) -> None:
        """Make the folder around the rollouts' own, with the limit of all of them."""
        around.mkdir(exist_ok=True)
        if self.mechanism == "cgroup2":
            names = " ".join(f"+{name}" for name in cgroup_places.NEEDED)
            _write(around / "cgroup.subtree_control", names)
        else:
            _try_write(around / "memory.use_hierarchy", "1")  # or the root's own says so already
        self._limit_memory(around, most)

    def _limit_memory(self, memory: Path, most_bytes: int) -> None:
        if self.mechanism == "cgroup2":
            _write(memory / "memory.max", str(most_bytes) if most_bytes else "max")
            _try_write(memory / "memory.swap.max", "0" if most_bytes else "max")
            return
        most = str(most_bytes or -1)
        # The limit with swap may never be below the one without; which comes first depends.
        _try_write(memory / "memory.memsw.limit_in_bytes", most)
        _write(memory / "memory.limit_in_bytes", most)
        _try_write(memory / "memory.memsw.limit_in_bytes", most)

    def pids(self) -> set[int]:
        """Every process of the rollout, zombies too."""
        found: set[int] = set()
        for door in self.doors:
            with contextlib.suppress(OSError):
                found.update(map(int, door.read_text().split()))
        return found

    def tasks(self) -> int:
        """Processes and threads, as the limit counts them."""
        folder = self._of("pids")
        try:
            return int((folder / "pids.current").read_text()) if folder else 0
        except FileNotFoundError:
            return 0

    def refusals(self) -> Refusals:
        """What the kernel has refused so far."""
        pids, memory = self._of("pids"), self._of("memory")
        events = "memory.events" if self.mechanism == "cgroup2" else "memory.oom_control"
        return Refusals(
            _counter(pids / "pids.events", "max") if pids else 0,
            _counter(memory / events, "oom_kill") if memory else 0,
        )

    def freeze_number(self, limits: Limits | None) -> None:
        """Let no process fork while others are ended; with `limits`, as before again."""
        self._limit_processes(limits.processes if limits else 1)

    def end_processes(self) -> None:
        """End every process; a sandbox's first takes all others along.

        None can fork meanwhile. Some may still be going when this returns, after two seconds.
        """
        deadline = time.monotonic() + _END_SECONDS
        with contextlib.suppress(OSError):
            self._limit_processes(1)
        while (found := self.pids() - {os.getpid()}) and time.monotonic() < deadline:
            processes.send(sorted(found), signal.SIGKILL)  # the first of a sandbox is the oldest
            time.sleep(0.01)

    def end(self) -> bool:
        """End every process and remove the groups and the note; False when some would not go."""
        deadline = time.monotonic() + _END_SECONDS
        self.end_processes()
        left = list(self._folders.values())
        while (left := [folder for folder in left if not _remove(folder)]) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.01)
        if not left:
            self._note.unlink(missing_ok=True)
            if self.noted.around:
                _remove(Path(self.noted.around))  # stays while another rollout is in it
        return not left

    def save(self) -> None:
        """Write the note, in one move."""
        self._note.parent.mkdir(parents=True, exist_ok=True)
        beside = self._note.with_name(f"{self._note.name}.new")
        beside.write_bytes(msgspec.json.encode(self.noted))
        beside.replace(self._note)

    def _limit_processes(self, most: int) -> None:
        if folder := self._of("pids"):
            _write(folder / "pids.max", str(most or "max"))

    def _of(self, controller: str) -> Path | None:
        return self._folders.get("all") or self._folders.get(controller)


def find(note: Path) -> Groups | None:
    """The groups that a note names; None without a note, or where a power cut left half of it."""
    try:
        noted = msgspec.json.decode(note.read_bytes(), type=Noted)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return Groups(note, noted)


def find_or_make(note: Path, name: str, limits: Limits) -> Groups:
    """The rollout's groups as they were left, or new ones where this process may make them.

    Falls back to none (the watchdog) when the kernel refuses.
    """
    known = find(note)
    if known is not None and known.doors and all(door.exists() for door in known.doors):
        known.limit(limits)
        return known
    where = cgroup_places.places()
    folders = {key: str(folder / f"houston-{name}") for key, folder in where.folders.items()}
    tries = [_with_others(note, where, folders)] if limits.together and folders else []
    for noted in (*tries, Noted(where.mechanism, folders)):
        made = Groups(note, noted)
        made.save()
        try:
            made.limit(limits)
        except OSError:
            made.end()
        else:
            return made
    made = Groups(note, Noted())
    made.save()
    return made


def _with_others(note: Path, where: cgroup_places.Places, folders: dict[str, str]) -> Noted:
    """Groups whose memory is held together with that of all rollouts of the same folder.

    In version 1 only that of memory: in one group for processors all rollouts would share one part.
    """
    key = "all" if "all" in folders else "memory"
    all_of = hashlib.sha256(os.fsencode(note.parent.absolute())).hexdigest()[:12]
    around = where.folders[key] / f"houston-all-{all_of}"
    nested = {**folders, key: str(around / Path(folders[key]).name)}
    return Noted(where.mechanism, nested, around=str(around))


def _counter(file: Path, name: str) -> int:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[0] == name), 0)


def _write(file: Path, text: str) -> None:
    file.write_text(text)


def _try_write(file: Path, text: str) -> None:
    """For what not every kernel has: limits of swap."""
    with contextlib.suppress(OSError):
        _write(file, text)


def _remove(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError as problem:
        if problem.errno in (errno.EBUSY, errno.ENOTEMPTY):
            return False
        raise
    return True
