"""Enforces the limits of one rollout, and records what it did until the agent is told.

The kernel limits processes and memory where control groups can be made; otherwise this module
counts once a second. It always measures the workspace itself. Processes over a limit are ended by
sandbox: in the one that uses most, all but the shell, so that the session survives.
"""

import asyncio
import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from houston_daemon.hosts import process_table
from houston_daemon.hosts.guard import resource_usage
from houston_daemon.hosts.guard.control_groups import CgroupRefusals, ControlGroups
from houston_daemon.hosts.guard.resource_usage import (
    OtherFigures,
    SandboxUsage,
    SharedMemoryFigures,
)
from houston_daemon.hosts.resource_limits import (
    LimitHit,
    LimitKind,
    ResourceLimits,
    format_megabytes,
)

log = logging.getLogger(__name__)

_EVERY = 1.0
_REST = 10.0
"""Seconds between measurements of a workspace while the disk shows no growth."""
_COST = 20
"""A measurement may take one part in this many of a processor's time."""
_SLACK = 16 << 20
"""Bytes above a size that was told already before it is told again."""
_SPARE = 1 << 30
"""Bytes of the disk that no rollout may take."""
_STUBBORN = 5
"""After so many seconds over a limit in a row the sandbox's first process is ended too."""
_MAX_HITS = 20
_ENDED: dict[LimitKind, str] = {
    "processes": "what the session with most of them ran",
    "memory": "what the largest session ran",
    "workspace": "what was writing",
}


@dataclass(frozen=True, slots=True)
class TerminalShell:
    """A terminal's processes that are spared: its session needs them."""

    spared: frozenset[int]
    shell: int
    running: bool


FindShells = Callable[[], list[TerminalShell]]
FindMembers = Callable[[], set[int]]


class LimitGuard:
    """The limits of one rollout at work; `check_limits` and `take_hits` are for a thread."""

    def __init__(
        self, groups: ControlGroups, limits: ResourceLimits, folders: tuple[Path, ...],
        shells: FindShells,
        members: FindMembers, together: SharedMemoryFigures,
    ) -> None:  # fmt: skip
        self.groups = groups
        self._limits = limits
        self._folders = folders
        self._shells = shells
        self._members = members
        """Processes of the rollout where no group names them."""
        self._figures = together
        self._hits: list[LimitHit] = []
        self._lock = threading.Lock()
        self._exceeded_counts: dict[LimitKind, int] = {}
        """How often in a row each limit was met."""
        self._refused = groups.refusals().processes
        self._written_bytes: dict[str, int] = {}
        self._disk_bytes = self._tolerated_bytes = 0
        self._measured_at = self._measure_seconds = 0.0
        self._room_then = resource_usage.DiskSpace(0, 0)

    async def watch(self) -> None:
        """Check once a second until cancelled; a check that fails is logged, and the next one
        follows."""
        try:
            while True:
                await asyncio.sleep(_EVERY)
                try:
                    await asyncio.to_thread(self.check_limits)
                except Exception:  # a watch that ends leaves the rollout without limits
                    log.exception("the limits could not be looked at")
        finally:
            self._figures.withdraw()

    def take_hits(self) -> list[LimitHit]:
        """What happened since the last call; the kernel is asked too."""
        self._ask_kernel()
        with self._lock:
            hits, self._hits = self._hits, []
        return hits

    def check_limits(self) -> None:
        """One look at processes, memory and disk."""
        self._ask_kernel()
        usage = resource_usage.usage_by_sandbox(
            self.groups.pids() if self.groups.procs_files else self._members()
        )
        if not self._check_processes(usage):
            self._exceeded_counts.pop("processes", None)
        if not self._check_memory(usage):
            self._exceeded_counts.pop("memory", None)
        self._check_disk(usage)

    def _ask_kernel(self) -> None:
        """Turn what the kernel refused since the agent was last told into hits."""
        with self._lock:
            counted, note_content = self.groups.refusals(), self.groups.noted
            reported = CgroupRefusals(note_content.told_processes, note_content.told_memory)
            if counted == reported:
                return
            note_content.told_processes, note_content.told_memory = (
                counted.processes,
                counted.memory,
            )
            try:
                self.groups.save()
            except OSError:  # a full disk; after a restart the agent may hear of it again
                log.exception("what was told could not be noted")
        if counted.processes > reported.processes:
            self._add_hit("processes", f"{self._refusal_text()}.", again=False)
        if counted.memory > reported.memory:
            count, most = counted.memory - reported.memory, format_megabytes(self._limits.memory)
            ended = "1 process was" if count == 1 else f"{count} processes were"
            everybody = format_megabytes(self._limits.together)
            more = (
                f", and all rollouts of this machine {everybody}"
                if self.groups.combines_memory
                else ""
            )
            self._add_hit("memory", f"{ended} ended; all together may use {most}{more}.")

    def _check_processes(self, usage: dict[str, SandboxUsage]) -> bool:
        most = self._limits.processes
        if not most:
            return False
        if self.groups.procs_files:
            refused, self._refused = self._refused, self.groups.refusals().processes
            over = self._refused > refused and self.groups.tasks() * 10 >= most * 9
        else:
            over = sum(used.tasks for used in usage.values()) > most
        if over:
            counted = f"There were more than {most:,}"
            sentence = self._refusal_text() if self.groups.procs_files else counted
            self._end_most(usage, lambda _, used: used.tasks, "processes", sentence)
        return over

    def _check_memory(self, usage: dict[str, SandboxUsage]) -> bool:
        sentence = self._exceeded_memory(usage)
        if sentence:
            self._end_most(usage, lambda _, used: _exact_memory(used), "memory", sentence)
        return bool(sentence)

    def _exceeded_memory(self, usage: dict[str, SandboxUsage]) -> str:
        """Which limit of memory is met, for what the kernel does not hold; empty for none."""
        most, everybody = self._limits.memory, self._limits.together
        own = bool(most) and not self.groups.procs_files
        shares = bool(everybody) and not self.groups.combines_memory
        if not (own or shares):
            return ""
        all_used = SandboxUsage(
            [pid for used in usage.values() for pid in used.pids],
            memory=sum(used.memory for used in usage.values()),
            shared=sum(used.shared for used in usage.values()),
        )
        files = resource_usage.memory_file_sizes(all_used.pids)
        used = all_used.memory + all_used.shared + sum(files.values())
        others = self._figures.read_others() if shares else OtherFigures(0, 0, exact=False)
        is_exact = (own and used > most) or (shares and used + others.total > everybody)
        if is_exact:
            used = _exact_memory(all_used)
        if shares:
            self._figures.publish(used, is_exact)
        if own and used > most:
            return f"More than {format_megabytes(most)} were used"
        # A quick figure of another is too high, perhaps; it publishes an exact one within moments.
        if others.exact and used + others.total > everybody and used >= others.most:
            return (
                f"All rollouts of this machine used more than {format_megabytes(everybody)}, this"
                " one most"
            )
        return ""

    def _check_disk(self, usage: dict[str, SandboxUsage]) -> None:
        most = self._limits.workspace
        grown = {
            space: used.written - self._written_bytes.get(space, 0) for space, used in usage.items()
        }
        if not self._must_measure(most, sum(grown.values())):
            return
        start_time = time.thread_time()
        if most:
            pids = [pid for used in usage.values() for pid in used.pids]
            self._disk_bytes = resource_usage.count_disk_bytes(self._folders)
            self._disk_bytes += resource_usage.unlinked_bytes(pids, self._folders[0].stat().st_dev)
        self._measured_at = time.monotonic()
        self._measure_seconds = time.thread_time() - start_time
        room = self._room_then = resource_usage.free_disk_space(self._folders[0])
        self._tolerated_bytes = max(most, min(self._tolerated_bytes, self._disk_bytes))
        self._written_bytes = {space: used.written for space, used in usage.items()}
        nearly_full = room.bytes < _SPARE and max(grown.values(), default=0) > _SLACK
        within = self._disk_bytes <= self._tolerated_bytes + (
            _SLACK if self._tolerated_bytes > most else 0
        )
        if within and not nearly_full:
            self._exceeded_counts.pop("workspace", None)
            return
        sentence = f"It holds {format_megabytes(self._disk_bytes)} of {format_megabytes(most)}"
        if nearly_full:
            sentence = f"The machine has only {format_megabytes(room.bytes)} left"
        self._tolerated_bytes = max(self._disk_bytes, most)
        self._end_most(usage, lambda space, _: grown.get(space, 0), "workspace", sentence)

    def _must_measure(self, most: int, written: int) -> bool:
        """Whether so much may have been added, or so much time has passed, that it must be known.

        written: bytes that the rollout's processes have sent to disks since the last time.
        """
        rested = time.monotonic() - self._measured_at
        if not self._measured_at or rested >= max(_REST, self._measure_seconds * _COST):
            return True
        if rested < self._measure_seconds * _COST:
            return False
        room = resource_usage.free_disk_space(self._folders[0])
        names = (self._room_then.names - room.names) * resource_usage.MIN_COUNTED_BYTES
        added_bytes = max(self._room_then.bytes - room.bytes, names, written)
        return added_bytes > min(256 << 20, max(_SLACK, (most - self._disk_bytes) / 4))

    def _end_most(
        self,
        usage: dict[str, SandboxUsage],
        weight: Callable[[str, SandboxUsage], int],
        kind: LimitKind,
        sentence: str,
    ) -> None:
        """End what runs in the sandbox that weighs most; in all of them when none weighs."""
        self._exceeded_counts[kind] = self._exceeded_counts.get(kind, 0) + 1
        outer = resource_usage.own_pid_namespace()
        inner = {space: used for space, used in usage.items() if space != outer} or usage
        heaviest = max(inner, key=lambda space: weight(space, inner[space]), default="")
        chosen = {heaviest} if heaviest and weight(heaviest, inner[heaviest]) else set(inner)
        shells = [] if self._exceeded_counts[kind] >= _STUBBORN else self._shells()
        innocent = (
            self._foreground_processes(shells, chosen) if kind == "processes" else frozenset()
        )
        sentence = f"{sentence}; {'what was left behind' if innocent else _ENDED[kind]} was ended."
        self._add_hit(kind, sentence)
        log.warning("resource limit: %s; %s", kind, sentence)
        # What is in front goes on meanwhile, and may start what it needs.
        frozen = bool(self.groups.procs_files) and not innocent
        members = {pid for space in chosen for pid in inner[space].pids}
        if frozen:
            self.groups.freeze_process_count(None)
        try:
            for shell in shells:
                # Or it would go on to its next line.
                if shell.running and shell.spared & members and not innocent:
                    process_table.send_signal([shell.shell], signal.SIGINT)
            spared = innocent.union(*(shell.spared for shell in shells))
            ended = resource_usage.kill_targets(lambda: self._processes_in(chosen) - spared, frozen)
        finally:
            if frozen:
                with contextlib.suppress(FileNotFoundError):  # the rollout has ended meanwhile
                    self.groups.freeze_process_count(self._limits)
        log.warning("%d processes were ended", ended)

    def _foreground_processes(
        self, shells: list[TerminalShell], chosen: set[str]
    ) -> frozenset[int]:
        """What runs in front of shells, unless it makes up half of what may run.

        A command is not to blame for what the ones before it have left behind.
        """
        stats = [process_table.read_process_stat(shell.shell) for shell in shells if shell.running]
        groups = {
            process.foreground
            for process in stats
            if process and process.foreground != process.group
        }
        everyone = (process_table.read_process_stat(pid) for pid in self._processes_in(chosen))
        front = frozenset(
            process.pid for process in everyone if process and process.group in groups
        )
        tasks = sum(used.tasks for used in resource_usage.usage_by_sandbox(front).values())
        return front if tasks * 2 < self._limits.processes else frozenset()

    def _processes_in(self, chosen: set[str]) -> set[int]:
        """Living processes of the chosen sandboxes."""
        pids = self.groups.pids() if self.groups.procs_files else self._members()
        return {
            pid
            for pid in pids
            if resource_usage.pid_namespace(pid) in chosen and not _has_ended(pid)
        }

    def _refusal_text(self) -> str:
        return (
            f"Further ones were refused: {self._limits.processes:,} processes and threads may run"
        )

    def _add_hit(self, kind: LimitKind, sentence: str, again: bool = True) -> None:
        """Keep a hit until it is asked for; again: also in place of an older one of its kind."""
        with self._lock:
            if not again and any(hit.kind == kind for hit in self._hits):
                return
            self._hits = [hit for hit in self._hits if hit.kind != kind][-_MAX_HITS:]
            self._hits.append(LimitHit(kind, sentence))


def _exact_memory(used: SandboxUsage) -> int:
    return resource_usage.exact_memory(used.pids) + used.shared


def _has_ended(pid: int) -> bool:
    """Whether a process has ended, but for its parent's asking."""
    stat = process_table.read_process_stat(pid)
    return stat is None or stat.ended
