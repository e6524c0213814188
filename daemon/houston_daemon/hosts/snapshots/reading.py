"""Brings back a snapshot from a shadow repository that is only read: for a branch, or a person.

The rollout may run meanwhile: objects of its repository only ever come. It writes into a folder
that is not the rollout's workspace, and says what it could not bring back.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import pygit2

from houston_daemon.hosts import emptying, sparse_copy
from houston_daemon.hosts.snapshots import restoring
from houston_daemon.hosts.snapshots.beneath import Beneath
from houston_daemon.hosts.snapshots.tree_names import shown
from houston_daemon.hosts.snapshots.trees import Beside, about_of
from houston_shared.errors import HoustonError


def bring_back(shadow: Path, commit: str, into: Path, live: Path | None = None) -> list[str]:
    """Make `into` equal to the snapshot `commit`; returns the paths that could not be brought back.

    live: the workspace itself: a large file of which there is no copy is taken from there while it
    still is what it was (size and time). Raises HoustonError when there is no such snapshot, or no
    room for it; an `into` that was not there, or empty, is so again.
    """
    before = standing(into)
    try:
        repo = pygit2.Repository(str(shadow))
        found = repo[commit]
        lost = restoring.restore(repo, found, into, shadow / "large", {})
        if lost and live is not None and live.is_dir():
            lost = _from_live(lost, about_of(found).beside, live, into)
        return lost
    except OSError as problem:
        take_away(into, before)
        raise HoustonError(
            f"{into} cannot be written: {problem.strerror}.", "No workspace was made."
        ) from problem
    except (KeyError, ValueError, pygit2.GitError) as problem:
        take_away(into, before)
        raise HoustonError(
            f"The snapshot {commit[:12]} in {shadow} cannot be brought back: {_why(problem)}.",
            "No workspace was made.",
            "Snapshots of a rollout go with: houston rollout clean --snapshots",
        ) from problem


def standing(into: Path) -> str:
    """What there is of a folder: `missing`, `empty`, or `full` for all else."""
    try:
        return "full" if any(into.iterdir()) else "empty"
    except FileNotFoundError:
        return "missing"
    except OSError:
        return "full"


def take_away(into: Path, before: str) -> None:
    """Remove what was begun, but nothing where something stood before."""
    if before == "full":
        return
    with contextlib.suppress(OSError):
        emptying.remove(into)
        if before == "empty":
            into.mkdir()


def _from_live(lost: list[str], beside: Mapping[str, Beside], live: Path, into: Path) -> list[str]:
    """Copy what still lies in the workspace as it was recorded; the rest of `lost`."""
    there = {shown(path): (path, recorded) for path, recorded in beside.items()}
    with Beneath(live) as source, Beneath(into) as target:
        return [
            path for path in lost if path not in there or not _copied(source, target, *there[path])
        ]


def _why(problem: Exception) -> str:
    return "it is not there" if isinstance(problem, KeyError) else str(problem)


def _copied(source: Beneath, target: Beneath, path: str, recorded: Beside) -> bool:
    """Copy a large file that is still as it was recorded; whether it was, to the end."""
    try:
        old = source.open(path, os.O_RDONLY)
    except OSError:
        return False
    with os.fdopen(old, "rb") as reading:
        if not _same(reading.fileno(), recorded):
            return False
        target.remove(path)
        new = target.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(new, "wb") as writing:
            sparse_copy.copy(reading.fileno(), writing.fileno())
            os.fchmod(writing.fileno(), recorded.mode & 0o777)
            os.utime(writing.fileno(), ns=(recorded.mtime_ns, recorded.mtime_ns))
        if _same(reading.fileno(), recorded):
            return True
    target.remove(path)
    return False


def _same(descriptor: int, recorded: Beside) -> bool:
    known = os.fstat(descriptor)
    return (known.st_size, known.st_mtime_ns) == (recorded.size, recorded.mtime_ns)
