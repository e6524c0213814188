"""Where this process may make control groups: version 2 where delegated, else version 1.

Reads /proc/self/cgroup and /proc/self/mountinfo (cgroups(7)) and tries what it finds by making a
group and removing it. A group is made below the daemon's own or beside it, so that limits which
somebody set around the daemon (a batch system, a container) hold for rollouts too.
"""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from houston_daemon.hosts.limits import Mechanism

NEEDED = ("pids", "memory")
_WANTED = (*NEEDED, "cpu")
"""A group of its own for the processor gives a rollout one share, however many processes it has."""


@dataclass(frozen=True, slots=True)
class Places:
    """Folders in which a rollout's groups can be made."""

    mechanism: Mechanism
    folders: dict[str, Path]
    """By controller for version 1; under `all` for version 2. None for the watchdog."""


@dataclass(frozen=True, slots=True)
class _Mount:
    root: str
    point: Path
    kind: str
    options: frozenset[str]


def places(proc: Path = Path("/proc/self")) -> Places:
    """The best that this process may use; `watchdog` without folders when it may use none."""
    try:
        mounts = list(_mounts((proc / "mountinfo").read_text().splitlines()))
        own = dict(_own((proc / "cgroup").read_text().splitlines()))
    except OSError:
        return Places("watchdog", {})
    return _unified(mounts, own) or _separate(mounts, own) or Places("watchdog", {})


def _unified(mounts: list[_Mount], own: dict[str, str]) -> Places | None:
    mount = next((one for one in mounts if one.kind == "cgroup2"), None)
    if mount is None or "" not in own:
        return None
    here = _inside(mount, own[""])
    for folder in (here, *here.parents):
        if not folder.is_relative_to(mount.point):
            return None
        # Only the root of all may hold processes and give controllers to children at once.
        ours = folder == here and (folder / "cgroup.type").exists()
        if not ours and _gives(folder) and _can_make(folder):
            return Places("cgroup2", {"all": folder})
    return None


def _gives(folder: Path) -> bool:
    """Whether groups made in `folder` have the controllers, if need be after asking for them."""
    if not os.access(folder / "cgroup.procs", os.W_OK):
        return False
    control = folder / "cgroup.subtree_control"
    try:
        if set(NEEDED) <= set(control.read_text().split()):
            return True
        if not set(NEEDED) <= set((folder / "cgroup.controllers").read_text().split()):
            return False
        control.write_text(" ".join(f"+{name}" for name in NEEDED))
    except OSError:
        return False
    return True


def _separate(mounts: list[_Mount], own: dict[str, str]) -> Places | None:
    found: dict[str, Path] = {}
    for name in _WANTED:
        mount = next((m for m in mounts if m.kind == "cgroup" and name in m.options), None)
        if mount is None or name not in own:
            continue
        folder = _inside(mount, own[name])
        if _can_make(folder):
            found[name] = folder
    return Places("cgroup1", found) if set(NEEDED) <= found.keys() else None


def _can_make(folder: Path) -> bool:
    trial = folder / f"houston-trial-{os.getpid()}"
    try:
        trial.mkdir()
    except OSError:
        return False
    with contextlib.suppress(FileNotFoundError):
        trial.rmdir()
    return True


def _inside(mount: _Mount, own: str) -> Path:
    """The own group's folder; the mount's point where only a part of the tree is mounted."""
    relative = os.path.relpath(own, mount.root)
    folder = mount.point / relative
    return folder if not relative.startswith("..") and folder.is_dir() else mount.point


def _mounts(lines: Iterable[str]) -> Iterable[_Mount]:
    for line in lines:
        first, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            fields = first.split()
            yield _Mount(fields[3], Path(fields[4]), kind, frozenset(options.split(",")))


def _own(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    """(controller, path); version 2 has the empty name."""
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            yield name, path
