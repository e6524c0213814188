"""What a rollout uses: processes and memory by sandbox, bytes on disk; and all rollouts' sum.

Read from /proc; a sandbox is identified by its pid namespace. Disk use is counted in slices, so
that nothing has to wait for it. Where the kernel does not add up the rollouts of one machine, each
writes its figure next to the note of its control groups. This module measures, and kills on
request; it decides nothing.
"""

import contextlib
import itertools
import os
import signal
import stat
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from houston_daemon.hosts import process_table, untrusted_files
from houston_daemon.hosts.untrusted_files import FOLDER_FLAGS

_KILL_ROUNDS = 200
_KILL_PAUSE = 0.01


@dataclass(slots=True)
class SandboxUsage:
    """What one sandbox uses."""

    pids: list[int] = field(default_factory=list)
    tasks: int = 0
    memory: int = 0
    """Bytes, resident and of no file on a disk; what processes share counts for each."""
    shared: int = 0
    """Bytes of files in the sandbox' own /dev/shm, which stay when who wrote them has ended."""
    written: int = 0
    """Bytes that its living processes have sent to disks."""


def usage_by_sandbox(pids: Iterable[int]) -> dict[str, SandboxUsage]:
    """Use by pid namespace; processes that end meanwhile are passed over."""
    usage: dict[str, SandboxUsage] = {}
    for pid in pids:
        try:
            space = pid_namespace(pid)
            lines = _read_lines(pid, "status")
        except OSError:
            continue
        used = usage.setdefault(space, SandboxUsage())
        used.pids.append(pid)
        used.tasks += _sum_figures(lines, b"Threads:")
        used.memory += _sum_figures(lines, b"RssAnon:", b"RssShmem:") << 10
        used.written += _written_bytes(pid)
    for used in usage.values():
        used.shared = next(
            (size for pid in used.pids if (size := _shared_memory_bytes(pid)) >= 0), 0
        )
    return usage


def _read_lines(pid: int, file: str) -> list[bytes]:
    """Lines of a file of /proc, in which names may hold any end of a line but `\\n`."""
    return Path(f"/proc/{pid}/{file}").read_bytes().split(b"\n")


def _sum_figures(lines: Iterable[bytes], *names: bytes) -> int:
    return sum(int(line.split()[1]) for line in lines if line.startswith(names))


def pid_namespace(pid: int) -> str:
    """The pid namespace of a process; empty when it has ended."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115
    except OSError:
        return ""


def own_pid_namespace() -> str:
    """The pid namespace of this process: bubblewrap's outer half runs in it."""
    return pid_namespace(os.getpid())


_MEMORY_FILES = (b"/memfd:", b"/dev/zero (deleted)", b"/SYSV")
"""What mappings of shared memory are called that lies in no folder: memfd_create(2), anonymous
memory that processes share, shmget(2)."""


def memory_file_sizes(pids: Iterable[int]) -> dict[int, int]:
    """Bytes in open files of memfd_create(2) by inode, even if no process has them mapped."""
    return {
        opened.st_ino: opened.st_blocks * 512
        for pid in pids
        for target, opened in _open_files(pid)
        if os.fsencode(target).startswith(_MEMORY_FILES[0])
    }


def exact_memory(pids: Collection[int]) -> int:
    """Bytes of memory without /dev/shm, with what several processes share counted once; slow."""
    counted = memory_file_sizes(pids)
    total = sum(counted.values())
    for pid in pids:
        try:
            lines = _read_lines(pid, "smaps_rollup")
            total += _sum_figures(lines, b"Pss_Anon:") << 10
            if _sum_figures(lines, b"Pss_Shmem:"):
                total += _shared_memory_without_folder(pid, counted)
        except OSError:
            continue
    return total


def _shared_memory_without_folder(pid: int, counted: Container[int]) -> int:
    total, counts = 0, False
    for words in (line.split(None, 5) for line in _read_lines(pid, "smaps") if line):
        if words[0].endswith(b":"):
            total += int(words[1]) << 10 if counts and words[0] == b"Pss:" else 0
        else:  # the next mapping: addresses, rights, offset, device, inode, path
            counts = words[-1].startswith(_MEMORY_FILES) and int(words[4]) not in counted
    return total


def unlinked_bytes(pids: Iterable[int], device: int) -> int:
    """Bytes of files on `device` that have no name any more but are held open, or mapped."""
    sizes: dict[int, int] = {}
    parts: dict[tuple[int, bytes], int] = {}
    for pid in pids:
        for _, opened in _open_files(pid):
            if opened.st_dev == device and opened.st_nlink == 0:
                sizes[opened.st_ino] = opened.st_blocks * 512
        for start, end, words in _deleted_mappings(pid):
            try:
                mapped = os.stat(f"/proc/{pid}/map_files/{start:x}-{end:x}")  # noqa: PTH116
            except PermissionError:  # for root alone; others see what of the file is mapped
                major, _, minor = words[3].partition(b":")
                if os.makedev(int(major, 16), int(minor, 16)) == device:
                    parts[int(words[4]), words[2]] = end - start
            except OSError:
                continue
            else:
                if mapped.st_dev == device and mapped.st_nlink == 0:
                    sizes[mapped.st_ino] = mapped.st_blocks * 512
    more = sum(part for (inode, _), part in parts.items() if inode not in sizes)
    return sum(sizes.values()) + more


def _open_files(pid: int) -> Iterator[tuple[str, os.stat_result]]:
    """What a process holds open, as its links say it; nothing of one that has ended."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            names = [entry.path for entry in entries]
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            yield os.readlink(name), os.stat(name)  # noqa: PTH115, PTH116


def _deleted_mappings(pid: int) -> Iterator[tuple[int, int, list[bytes]]]:
    """First and last address of mappings of files without a name, and the fields of /proc/maps."""
    try:
        lines = _read_lines(pid, "maps")
    except OSError:
        return
    for line in lines:
        if line.endswith(b" (deleted)"):
            words = line.split(None, 5)
            start, _, end = words[0].partition(b"-")
            yield int(start, 16), int(end, 16), words


def kill_targets(targets: Callable[[], set[int]], held: bool) -> int:
    """Kill what `targets` returns until it returns nothing; return how many processes were
    signalled.

    held: none of them can fork meanwhile. Otherwise all are stopped first, so that none escapes.
    """
    signalled: set[int] = set()
    for _ in range(_KILL_ROUNDS):
        pids = targets()
        if not pids:
            break
        if not held:
            process_table.send_signal(pids, signal.SIGSTOP)
            if pids - signalled:
                signalled |= pids
                continue
        signalled |= pids
        process_table.send_signal(pids, signal.SIGKILL)
        time.sleep(_KILL_PAUSE)
    return len(signalled)


def _shared_memory_bytes(pid: int) -> int:
    """Bytes in the /dev/shm that a process sees, 0 in the machine's own; −1 when it has ended."""
    place = f"/proc/{pid}/root/dev/shm"
    try:
        if os.stat(place).st_dev == os.stat("/proc/self/root/dev/shm").st_dev:  # noqa: PTH116
            return 0
        stats = os.statvfs(place)
    except OSError:
        return -1
    return (stats.f_blocks - stats.f_bfree) * stats.f_frsize


def _written_bytes(pid: int) -> int:
    try:
        return _sum_figures(_read_lines(pid, "io"), b"write_bytes:")
    except OSError:
        return 0


MIN_COUNTED_BYTES = 4096
"""A file counts as a block at least: names without content fill a disk's table of files too."""
_SLICE_FILES = 4_000
_SLICE_PAUSE = 0.01
_MAX_PATH_CHARACTERS = 2_000
"""Characters of a path after which paths begin anew: beyond PATH_MAX nothing can be named from the
top, and what cannot be named would cost nothing."""


class DiskSpace(NamedTuple):
    """What a disk has left."""

    bytes: int
    """For this user."""
    names: int
    """Files that can still be made; 0 where the file system sets no such limit."""


def free_disk_space(folder: Path) -> DiskSpace:
    """What the disk of `folder` has left."""
    stats = os.statvfs(folder)
    return DiskSpace(stats.f_bavail * stats.f_frsize, stats.f_favail)


def count_disk_bytes(folders: Iterable[Path]) -> int:
    """Bytes on disk below `folders`; sleeps between slices, so call it in a thread."""
    total = counted = 0
    linked: set[tuple[int, int]] = set()
    for entry in itertools.chain.from_iterable(_walk_folders(folders)):
        counted += 1
        if counted % _SLICE_FILES == 0:
            time.sleep(_SLICE_PAUSE)
        if entry.st_nlink > 1 and not stat.S_ISDIR(entry.st_mode):
            if (entry.st_dev, entry.st_ino) in linked:
                continue
            linked.add((entry.st_dev, entry.st_ino))
        total += max(MIN_COUNTED_BYTES, entry.st_blocks * 512)
    return total


class _DeepFolder(NamedTuple):
    """A folder that paths begin at."""

    base: "_DeepFolder | None"
    path: str


class _WaitingFolder(NamedTuple):
    """A folder that is to be read, or to get its rights back once all below it was read."""

    base: _DeepFolder | None
    path: str
    rights: os.stat_result | None = None
    """As it was before its owner was given rights to count it."""


def _walk_folders(folders: Iterable[Path]) -> Iterator[Iterable[os.stat_result]]:
    """What is in each folder below `folders`; however they are nested, few descriptors are open."""
    waiting = [_WaitingFolder(None, os.fspath(folder)) for folder in folders]
    with _OpenBase() as opened:
        try:
            while waiting:
                base, path, rights = waiting.pop()
                if rights is not None:
                    _give_back_rights(opened, base, path, rights)
                    continue
                entries, rights = _read_folder(opened, base, path)
                if rights is not None:
                    waiting.append(_WaitingFolder(base, path, rights))
                if len(path) > _MAX_PATH_CHARACTERS:
                    base, path = _DeepFolder(base, path), "."
                waiting += [
                    _WaitingFolder(base, f"{path}/{name}")
                    for name, entry in entries.items()
                    if stat.S_ISDIR(entry.st_mode)
                ]
                yield entries.values()
        finally:
            for base, path, rights in reversed(waiting):
                if rights is not None:
                    _give_back_rights(opened, base, path, rights)


class _OpenBase:
    """The one folder that is held open, as the next path mostly begins at the same."""

    def __init__(self) -> None:
        self._base: _DeepFolder | None = None
        self._fd: int | None = None

    def __enter__(self) -> "_OpenBase":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
        self._base = self._fd = None

    def at(self, base: _DeepFolder | None) -> int | None:
        """A descriptor of a base; None where paths begin at the top. Raises OSError."""
        if base is not self._base:
            self._close()
            steps: list[_DeepFolder] = []
            while base is not None:
                steps.append(base)
                base = base.base
            for step in reversed(steps):
                inner = os.open(step.path, FOLDER_FLAGS, dir_fd=self._fd)
                self._close()
                self._base, self._fd = step, inner
        return self._fd


def _read_folder(
    opened: _OpenBase, base: _DeepFolder | None, path: str
) -> tuple[dict[str, os.stat_result], os.stat_result | None]:
    """What is in a folder by name, and its rights where its owner had to be given others: a folder
    that its owner may not read costs what it holds all the same."""
    rights = None
    try:
        above = opened.at(base)
        with contextlib.suppress(PermissionError):
            return _read_entries(os.open(path, FOLDER_FLAGS, dir_fd=above)), None
        before = os.stat(path, dir_fd=above, follow_symlinks=False)
        descriptor = untrusted_files.open_owned_folder(path, above)
        rights = before
        return _read_entries(descriptor), rights
    except OSError:
        return {}, rights


def _give_back_rights(
    opened: _OpenBase, base: _DeepFolder | None, path: str, rights: os.stat_result
) -> None:
    """Only where the folder is still the same: it may be the agent's link by now."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, FOLDER_FLAGS, dir_fd=opened.at(base))
        try:
            if os.path.samestat(os.fstat(descriptor), rights):
                os.fchmod(descriptor, stat.S_IMODE(rights.st_mode))
        finally:
            os.close(descriptor)


def _read_entries(folder: int) -> dict[str, os.stat_result]:
    """What is in an open folder, which is closed. Raises PermissionError where it may not be
    entered."""
    stats: dict[str, os.stat_result] = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # removed since it was listed
                    stats[entry.name] = entry.stat(follow_symlinks=False)
    finally:
        os.close(folder)
    return stats


FIGURE_FRESH_SECONDS = 5.0
"""A figure that is older is of a worker that has ended, or hangs: it counts no more."""
_FIGURE_SUFFIX = ".used"
_QUICK = " quick"


class OtherFigures(NamedTuple):
    """What the other rollouts of this machine use, bytes."""

    total: int
    most: int
    """What one of them uses."""
    exact: bool
    """Whether none of the figures is a quick one, which counts what processes share for each."""


class SharedMemoryFigures:
    """The figures of all rollouts, and one's own among them."""

    def __init__(self, folder: Path, rollout: str) -> None:
        """folder: of the notes of all of them."""
        self._folder = folder
        self._own = folder / f"{rollout}{_FIGURE_SUFFIX}"

    def read_others(self) -> OtherFigures:
        """What the others have published lately. Raises OSError."""
        self._own.touch()
        oldest = self._own.stat().st_mtime - FIGURE_FRESH_SECONDS
        figures = [
            figure
            for file in self._folder.glob(f"*{_FIGURE_SUFFIX}")
            if file != self._own and (figure := _read_fresh_figure(file, oldest)) is not None
        ]
        used = [figure for figure, _ in figures]
        return OtherFigures(sum(used), max(used, default=0), all(exact for _, exact in figures))

    def publish(self, used: int, exact: bool) -> None:
        """Write down what this rollout uses, bytes. Raises OSError."""
        self._own.write_text(str(used) if exact else f"{used}{_QUICK}")

    def withdraw(self) -> None:
        """Remove this rollout's figure."""
        with suppress(OSError):
            self._own.unlink(missing_ok=True)


def _read_fresh_figure(file: Path, oldest: float) -> tuple[int, bool] | None:
    try:
        text = file.read_text()
        used = int(text.removesuffix(_QUICK))
        return (used, not text.endswith(_QUICK)) if file.stat().st_mtime >= oldest else None
    except (OSError, ValueError):  # it has just been removed, or is just being written
        return None
