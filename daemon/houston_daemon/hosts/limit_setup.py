"""Puts a rollout's limits together on this machine: control groups, seccomp filter, guard.

`<root>/limits/<rollout>.json` notes the groups, `<root>/filters/` holds the seccomp program. Both
lie outside the rollout's folder, because somebody may have removed that. It imports no snapshots,
so that the supervisor can ask it too.
"""

import hashlib
import os
import secrets
from pathlib import Path

from houston_daemon.hosts import process_table
from houston_daemon.hosts.guard import control_groups, resource_usage
from houston_daemon.hosts.guard.limit_guard import LimitGuard, TerminalShell
from houston_daemon.hosts.guard.resource_usage import SharedMemoryFigures
from houston_daemon.hosts.resource_limits import ResourceLimits
from houston_daemon.hosts.sandbox import seccomp_filter
from houston_daemon.hosts.sandbox.process_enclosure import Enclosure
from houston_daemon.hosts.terminals import terminal_start
from houston_shared import atomic_file


def limits_note(root: Path, rollout: str) -> Path:
    """Where the rollout's control groups are noted."""
    return root / "limits" / f"{rollout}.json"


def open_guard(
    note: Path, mark: str, limits: ResourceLimits, terminals: Path, measured: tuple[Path, ...]
) -> LimitGuard:
    """Find or make the rollout's groups, and a guard over them.

    mark: what names the rollout on this machine; measured: folders that count as its workspace.
    """
    groups = control_groups.find_or_make_groups(note, mark[:20] or secrets.token_hex(10), limits)
    together = SharedMemoryFigures(note.parent, note.stem)
    return LimitGuard(
        groups,
        limits,
        measured,
        lambda: find_terminal_shells(terminals),
        lambda: find_member_pids(terminals),
        together,
    )


def make_enclosure(
    groups: control_groups.ControlGroups, limits: ResourceLimits, root: Path
) -> Enclosure:
    """The enclosure through which every process of the rollout is started.

    Groups that someone removed while they were empty are made again.
    """
    if not all(door.exists() for door in groups.procs_files):
        groups.limit(limits)
    tasks = 0 if groups.procs_files else limits.processes
    return Enclosure(
        tuple(groups.procs_files), limits.file, _write_seccomp_filter(root), tasks=tasks
    )


def find_terminal_shells(terminals: Path) -> list[TerminalShell]:
    """What each living terminal of a rollout is made of."""
    shells: list[TerminalShell] = []
    for path in terminals.glob("*/state.json"):
        state = terminal_start.load_terminal_state(path.parent)
        if state is None or state.ended or not process_table.is_alive(state.shell):
            continue
        pids = {state.pane.pid, state.init.pid, *_ancestors(state.shell.pid, state.pane.pid)}
        shells.append(TerminalShell(frozenset(pids), state.shell.pid, state.running))
    return shells


def find_member_pids(terminals: Path) -> set[int]:
    """Processes of a rollout as children of its terminals and of this process.

    Of this process' children only those in sandboxes: others are the daemon's own.
    """
    everyone = process_table.list_processes()
    pids: set[int] = set()
    for path in terminals.glob("*/state.json"):
        state = terminal_start.load_terminal_state(path.parent)
        if state is not None and not state.closed and process_table.is_alive(state.pane):
            pids.update(entry.pid for entry in process_table.descendants(state.pane.pid, everyone))
    ours = [entry.pid for entry in process_table.descendants(os.getpid(), everyone)]
    outside = resource_usage.own_pid_namespace()
    for space, used in resource_usage.usage_by_sandbox(ours).items():
        if space != outside:
            pids.update(used.pids)
    return pids


def _ancestors(pid: int, last: int) -> list[int]:
    ancestors: list[int] = []
    while pid > 1 and pid != last and len(ancestors) < 20:
        ancestors.append(pid)
        entry = process_table.read_process_stat(pid)
        pid = entry.parent if entry else 0
    return ancestors


def _write_seccomp_filter(root: Path) -> Path | None:
    """The program for this machine, written once; None where it has none."""
    program = seccomp_filter.filter_for_this_machine()
    if not program:
        return None
    folder = root / "filters"
    file = folder / f"{hashlib.sha256(program).hexdigest()[:16]}.bpf"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        temp_file = atomic_file.temporary_sibling(file)
        atomic_file.write_atomically(file, program, temporary_path=temp_file, durable=False)
    return file
