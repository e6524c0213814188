"""The control groups of one rollout: finding a place, making, joining, reading, emptying, removing.

Version 2 where delegated, otherwise version 1, below the daemon's own group or next to it
(cgroups(7)). A note outside the rollout's folder names the groups before they are made, so that a
later process finds them after a crash. `resource_limits` has the limits; `limit_guard` decides
which processes are ended.
"""

import contextlib
import errno
import hashlib
import logging
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from houston_daemon.hosts import process_table
from houston_daemon.hosts.resource_limits import LimitMechanism, ResourceLimits
from houston_shared import atomic_file

log = logging.getLogger(__name__)
NEEDED_CONTROLLERS = ("pids", "memory")
_WANTED_CONTROLLERS = (*NEEDED_CONTROLLERS, "cpu")
"""A group of its own for the processor gives a rollout one share, however many processes it has."""


@dataclass(frozen=True, slots=True)
class CgroupFolders:
    """Folders in which a rollout's groups can be made."""

    mechanism: LimitMechanism
    folders: dict[str, Path]
    """By controller for version 1; under `all` for version 2. None for the watchdog."""


@dataclass(frozen=True, slots=True)
class _CgroupMount:
    root: str
    point: Path
    kind: str
    options: frozenset[str]


def find_cgroup_folders(proc: Path = Path("/proc/self")) -> CgroupFolders:
    """The best folders that this process may use; `watchdog` without folders if it may use none."""
    try:
        mounts = list(_parse_mounts((proc / "mountinfo").read_text().splitlines()))
        own = dict(_parse_own_groups((proc / "cgroup").read_text().splitlines()))
    except OSError:
        return CgroupFolders("watchdog", {})
    return (
        _find_unified(mounts, own) or _find_separate(mounts, own) or CgroupFolders("watchdog", {})
    )


def _find_unified(mounts: list[_CgroupMount], own: dict[str, str]) -> CgroupFolders | None:
    mount = next((mount for mount in mounts if mount.kind == "cgroup2"), None)
    if mount is None or "" not in own:
        return None
    own_folder = _own_group_folder(mount, own[""])
    for folder in (own_folder, *own_folder.parents):
        if not folder.is_relative_to(mount.point):
            return None
        # Only the root of all may hold processes and give controllers to children at once.
        ours = folder == own_folder and (folder / "cgroup.type").exists()
        if not ours and _has_controllers(folder) and _can_make_group(folder):
            return CgroupFolders("cgroup2", {"all": folder})
    return None


def _has_controllers(folder: Path) -> bool:
    """Whether groups made in `folder` have the controllers, if need be after asking for them."""
    if not os.access(folder / "cgroup.procs", os.W_OK):
        return False
    control = folder / "cgroup.subtree_control"
    try:
        if set(NEEDED_CONTROLLERS) <= set(control.read_text().split()):
            return True
        if not set(NEEDED_CONTROLLERS) <= set((folder / "cgroup.controllers").read_text().split()):
            return False
        control.write_text(" ".join(f"+{name}" for name in NEEDED_CONTROLLERS))
    except OSError:
        return False
    return True


def _find_separate(mounts: list[_CgroupMount], own: dict[str, str]) -> CgroupFolders | None:
    folders: dict[str, Path] = {}
    for name in _WANTED_CONTROLLERS:
        mount = next((m for m in mounts if m.kind == "cgroup" and name in m.options), None)
        if mount is None or name not in own:
            continue
        folder = _own_group_folder(mount, own[name])
        if _can_make_group(folder):
            folders[name] = folder
    return CgroupFolders("cgroup1", folders) if set(NEEDED_CONTROLLERS) <= folders.keys() else None


def _can_make_group(folder: Path) -> bool:
    trial = folder / f"houston-trial-{os.getpid()}"
    try:
        trial.mkdir()
    except OSError:
        return False
    with contextlib.suppress(FileNotFoundError):
        trial.rmdir()
    return True


def _own_group_folder(mount: _CgroupMount, own: str) -> Path:
    """The own group's folder; the mount's point where only a part of the tree is mounted."""
    relative = os.path.relpath(own, mount.root)
    folder = mount.point / relative
    return folder if not relative.startswith("..") and folder.is_dir() else mount.point


def _parse_mounts(lines: Iterable[str]) -> Iterable[_CgroupMount]:
    for line in lines:
        first, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            fields = first.split()
            yield _CgroupMount(fields[3], Path(fields[4]), kind, frozenset(options.split(",")))


def _parse_own_groups(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    """(controller, path); version 2 has the empty name."""
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            yield name, path


_KILL_SECONDS = 2.0
_NO_LIMIT = 1 << 62
"""Bytes from which a limit of version 1 is none."""


class CgroupNote(msgspec.Struct):
    """What the note holds."""

    mechanism: LimitMechanism = "watchdog"
    folders: dict[str, str] = {}
    told_processes: int = 0
    """How many refusals of the kernel were told to the agent already."""
    told_memory: int = 0
    around: str = ""
    """The folder that holds the memory of all rollouts; empty where each stands by itself."""


@dataclass(frozen=True, slots=True)
class CgroupRefusals:
    """What the kernel has refused since a group was made."""

    processes: int = 0
    """Forks that were refused."""
    memory: int = 0
    """Processes that were ended for memory."""


class ControlGroups:
    """A rollout's groups: one folder in version 2, one for each controller in version 1."""

    def __init__(self, note: Path, note_content: CgroupNote) -> None:
        self._note = note
        self.noted = note_content
        self._folders = {name: Path(path) for name, path in note_content.folders.items()}

    @property
    def mechanism(self) -> LimitMechanism:
        """How processes and memory are limited."""
        return self.noted.mechanism

    @property
    def combines_memory(self) -> bool:
        """Whether the kernel adds up the memory of all rollouts."""
        return bool(self.noted.around)

    @property
    def procs_files(self) -> list[Path]:
        """Files into which a process writes its number to join."""
        return [folder / "cgroup.procs" for folder in self._folders.values()]

    def limit(self, limits: ResourceLimits) -> None:
        """Make the groups where they are not there, and set their limits."""
        if self.noted.around:
            self._make_shared_parent(Path(self.noted.around), limits.together)
        for folder in self._folders.values():
            folder.mkdir(exist_ok=True)
        self._limit_processes(limits.processes)
        if memory := self._folder_of("memory"):
            self._limit_memory(memory, limits.memory)

    def _make_shared_parent(self, around: Path, limit: int) -> None:
        """Make the folder around the rollouts' own, with the limit of all of them.

        The highest that one of them began with holds: a lower one would end what others run.
        """
        around.mkdir(exist_ok=True)
        if self.mechanism == "cgroup2":
            names = " ".join(f"+{name}" for name in NEEDED_CONTROLLERS)
            (around / "cgroup.subtree_control").write_text(names)
        else:
            # Refused where the root's own says so already.
            _try_write_setting(around / "memory.use_hierarchy", "1")
        if self._read_memory_limit(around) < (limit or _NO_LIMIT):
            self._limit_memory(around, limit)

    def _read_memory_limit(self, memory: Path) -> int:
        """Bytes; 0 where none is set, as in a group that has just been made."""
        name = "memory.max" if self.mechanism == "cgroup2" else "memory.limit_in_bytes"
        try:
            limit = int((memory / name).read_text())
        except (FileNotFoundError, ValueError):  # version 2 says `max`
            return 0
        return limit if limit < _NO_LIMIT else 0

    def _limit_memory(self, memory: Path, max_bytes: int) -> None:
        if self.mechanism == "cgroup2":
            (memory / "memory.max").write_text(str(max_bytes) if max_bytes else "max")
            _try_write_setting(memory / "memory.swap.max", "0" if max_bytes else "max")
            return
        limit = str(max_bytes or -1)
        # The limit with swap may never be below the one without; which comes first depends.
        _try_write_setting(memory / "memory.memsw.limit_in_bytes", limit)
        (memory / "memory.limit_in_bytes").write_text(limit)
        _try_write_setting(memory / "memory.memsw.limit_in_bytes", limit)

    def pids(self) -> set[int]:
        """Every process of the rollout, zombies too."""
        members: set[int] = set()
        for door in self.procs_files:
            with contextlib.suppress(OSError):
                members.update(map(int, door.read_text().split()))
        return members

    def tasks(self) -> int:
        """Processes and threads, as the limit counts them."""
        folder = self._folder_of("pids")
        try:
            return int((folder / "pids.current").read_text()) if folder else 0
        except FileNotFoundError:
            return 0

    def refusals(self) -> CgroupRefusals:
        """What the kernel has refused so far."""
        pids, memory = self._folder_of("pids"), self._folder_of("memory")
        events = "memory.events" if self.mechanism == "cgroup2" else "memory.oom_control"
        return CgroupRefusals(
            _read_counter(pids / "pids.events", "max") if pids else 0,
            _read_counter(memory / events, "oom_kill") if memory else 0,
        )

    def freeze_process_count(self, limits: ResourceLimits | None) -> None:
        """Prevent forks while processes are ended; with `limits`, allow them again as before."""
        self._limit_processes(limits.processes if limits else 1)

    def end_processes(self) -> None:
        """End every process; the first one of a sandbox takes its others with it.

        None can fork meanwhile. After two seconds this returns, even if some have not ended yet.
        """
        deadline = time.monotonic() + _KILL_SECONDS
        with contextlib.suppress(OSError):
            self._limit_processes(1)
        while (members := self.pids() - {os.getpid()}) and time.monotonic() < deadline:
            # The oldest first: a sandbox's first process takes its others along.
            process_table.send_signal(sorted(members), signal.SIGKILL)
            time.sleep(0.01)

    def end(self) -> bool:
        """End every process and remove the groups and the note; False when some would not go."""
        deadline = time.monotonic() + _KILL_SECONDS
        self.end_processes()
        folders = list(self._folders.values())
        while (folders := [folder for folder in folders if not _remove_group(folder)]) and (
            time.monotonic() < deadline
        ):
            time.sleep(0.01)
        if not folders:
            self._note.unlink(missing_ok=True)
            if self.noted.around:
                _remove_group(Path(self.noted.around))  # stays while another rollout is in it
        return not folders

    def save(self) -> None:
        """Write the note, in one move."""
        self._note.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write_atomically(self._note, msgspec.json.encode(self.noted), durable=False)

    def _limit_processes(self, limit: int) -> None:
        if folder := self._folder_of("pids"):
            (folder / "pids.max").write_text(str(limit or "max"))

    def _folder_of(self, controller: str) -> Path | None:
        return self._folders.get("all") or self._folders.get(controller)


def find_groups(note: Path) -> ControlGroups | None:
    """The groups that a note names; None without a note, or where a power cut left half of it."""
    noted = atomic_file.read_json_file(note, CgroupNote, FileNotFoundError)
    return ControlGroups(note, noted) if noted else None


def find_or_make_groups(note: Path, name: str, limits: ResourceLimits) -> ControlGroups:
    """The rollout's earlier groups, or new ones if this process may make them.

    Earlier groups keep their limits if the kernel refuses others; for new ones it falls back to
    none (the watchdog).
    """
    groups = find_groups(note)
    if (
        groups is not None
        and groups.procs_files
        and all(door.exists() for door in groups.procs_files)
    ):
        try:
            groups.limit(limits)
        except OSError as problem:  # version 1 refuses one below what is used
            log.warning("limits of %s stay as they were: %s", name, problem)
        return groups
    where = find_cgroup_folders()
    folders = {key: str(folder / f"houston-{name}") for key, folder in where.folders.items()}
    tries = [_with_shared_parent(note, where, folders)] if limits.together and folders else []
    for note_content in (*tries, CgroupNote(where.mechanism, folders)):
        groups = ControlGroups(note, note_content)
        groups.save()
        try:
            groups.limit(limits)
        except OSError:
            groups.end()
        else:
            return groups
    groups = ControlGroups(note, CgroupNote())
    groups.save()
    return groups


def _with_shared_parent(note: Path, where: CgroupFolders, folders: dict[str, str]) -> CgroupNote:
    """Groups whose memory is held together with that of all rollouts of the same folder.

    In version 1 only that of memory: in one group for processors all rollouts would share one part.
    """
    key = "all" if "all" in folders else "memory"
    all_of = hashlib.sha256(os.fsencode(note.parent.absolute())).hexdigest()[:12]
    around = where.folders[key] / f"houston-all-{all_of}"
    nested = {**folders, key: str(around / Path(folders[key]).name)}
    return CgroupNote(where.mechanism, nested, around=str(around))


def _read_counter(file: Path, name: str) -> int:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[0] == name), 0)


def _try_write_setting(file: Path, text: str) -> None:
    """For what not every kernel has: limits of swap."""
    with contextlib.suppress(OSError):
        file.write_text(text)


def _remove_group(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError as problem:
        if problem.errno in (errno.EBUSY, errno.ENOTEMPTY):
            return False
        raise
    return True
