"""Puts a rollout's limits together on this machine: groups, filter, guard, and what each needs.

`<root>/limits/<rollout>.json` notes the groups, `<root>/filters/` holds the seccomp program. Both
lie outside the rollout's folder, because somebody may have removed that.
"""

import hashlib
import os
import secrets
from pathlib import Path

from houston_daemon.hosts import processes
from houston_daemon.hosts.guard import cgroups, usage
from houston_daemon.hosts.guard.guard import Guard, Shell
from houston_daemon.hosts.guard.together import Together
from houston_daemon.hosts.limits import Limits
from houston_daemon.hosts.sandbox import seccomp
from houston_daemon.hosts.sandbox.enclosure import Enclosure
from houston_daemon.hosts.terminals import state_file


def note_of(root: Path, rollout: str) -> Path:
    """Where the rollout's control groups are noted."""
    return root / "limits" / f"{rollout}.json"


def open_guard(
    note: Path, mark: str, limits: Limits, terminals: Path, measured: tuple[Path, ...]
) -> Guard:
    """Find or make the rollout's groups, and a guard over them.

    mark: what names the rollout on this machine; measured: folders that count as its workspace.
    """
    groups = cgroups.find_or_make(note, mark[:20] or secrets.token_hex(10), limits)
    together = Together(note.parent, note.stem)
    return Guard(
        groups, limits, measured, lambda: shells(terminals), lambda: members(terminals), together
    )


def enclosure(groups: cgroups.Groups, limits: Limits, root: Path) -> Enclosure:
    """What every process of the rollout is started through.

    Groups that somebody tidied away while they were empty are made again.
    """
    if not all(door.exists() for door in groups.doors):
        groups.limit(limits)
    tasks = 0 if groups.doors else limits.processes
    return Enclosure(tuple(groups.doors), limits.file, _filter_file(root), tasks=tasks)


def shells(terminals: Path) -> list[Shell]:
    """What each living terminal of a rollout is made of."""
    found: list[Shell] = []
    for path in terminals.glob("*/state.json"):
        state = state_file.load(path.parent)
        if state is None or state.ended or not processes.is_alive(state.shell):
            continue
        pids = {state.pane.pid, state.init.pid, *_upwards(state.shell.pid, state.pane.pid)}
        found.append(Shell(frozenset(pids), state.shell.pid, state.running))
    return found


def members(terminals: Path) -> set[int]:
    """Processes of a rollout as children of its terminals and of this process.

    Of this process' children only those in sandboxes: others are the daemon's own.
    """
    everyone = processes.table()
    found: set[int] = set()
    for path in terminals.glob("*/state.json"):
        state = state_file.load(path.parent)
        if state is not None and not state.closed and processes.is_alive(state.pane):
            found.update(entry.pid for entry in processes.descendants(state.pane.pid, everyone))
    ours = [entry.pid for entry in processes.descendants(os.getpid(), everyone)]
    outside = usage.own_space()
    for space, used in usage.by_sandbox(ours).items():
        if space != outside:
            found.update(used.pids)
    return found


def _upwards(pid: int, last: int) -> list[int]:
    found: list[int] = []
    while pid > 1 and pid != last and len(found) < 20:
        found.append(pid)
        entry = processes.stat_of(pid)
        pid = entry.parent if entry else 0
    return found


def _filter_file(root: Path) -> Path | None:
    """The program for this machine, written once; None where it has none."""
    program = seccomp.here()
    if not program:
        return None
    folder = root / "filters"
    file = folder / f"{hashlib.sha256(program).hexdigest()[:16]}.bpf"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
        beside.write_bytes(program)
        beside.replace(file)
    return file
