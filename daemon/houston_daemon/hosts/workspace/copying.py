"""A rollout's workspace as it is given: a copy of the task's folder, made once and never again.

Beside the rollouts' folders lies a note for each workspace that was made. With the note and
without the workspace, what the agent did is lost, and that is said: a fresh copy in its place
would look like the agent's own work. The note holds a mark that the rollout's processes carry in
their environment, so that they can be found when nothing else of it is left. This module knows
neither sandbox nor snapshots.
"""

import contextlib
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from houston_daemon.hosts import emptying, sparse_copy
from houston_daemon.hosts.errors import WorkspaceGone
from houston_shared.errors import HoustonError
from houston_shared.faults import point

log = logging.getLogger(__name__)

_NAMED = 3
_LONGEST = 250
"""Characters of one file's trouble in a message."""


def make(
    source: Path | None,
    workspace: Path,
    note: Path,
    begun: bool,
    fill: Callable[[], None] | None = None,
) -> None:
    """Copy `source` to `workspace`, or find the workspace as it was left.

    note: the file that says that the workspace was made, by its mark; written here.
    begun: the caller knows that the rollout has steps already.
    fill: makes the workspace in one move, in place of a copy (a branch).
    Pipes, sockets and devices of `source` are left out; the log names them.
    Raises WorkspaceGone, and HoustonError when `source` cannot be copied.
    """
    if not workspace.exists():
        if begun or note.exists():
            raise WorkspaceGone(workspace)
        if fill is not None:
            fill()
        elif source is None:
            workspace.mkdir(parents=True)
        else:
            _refuse_around(source, workspace)
            _copy_whole(source, workspace)
    if not mark_of(note):  # none, or a power cut left it empty
        point("worker.workspace.placed")
        note.parent.mkdir(parents=True, exist_ok=True)
        beside = note.with_name(f"{note.name}.new")
        beside.write_text(secrets.token_hex(16))
        beside.replace(note)


def mark_of(note: Path) -> str:
    """What the rollout's processes carry in their environment; empty before `make`."""
    try:
        return note.read_text()
    except FileNotFoundError:
        return ""


def _refuse_around(source: Path, workspace: Path) -> None:
    """A folder that holds the place of its copy would be copied into itself."""
    if workspace.resolve().is_relative_to(source.resolve()):
        raise HoustonError(
            f"The workspace source {source} holds {workspace.parent}, where its copy would lie.",
            "Nothing was copied: every copy would hold all others.",
            "Name a smaller folder as [workspace] source, or set hosts.root to another place.",
        )


def _copy_whole(source: Path, workspace: Path) -> None:
    """Copy beside the workspace's place and move it there: half a copy is never a workspace."""
    beside = workspace.with_name("workspace.new")
    _clear(beside)
    special: list[str] = []

    def leave_out(folder: str, names: list[str]) -> list[str]:
        found = [name for name in names if not _is_plain(Path(folder, name))]
        special.extend(os.path.relpath(Path(folder, name), source) for name in found)
        return found

    try:
        shutil.copytree(source, beside, symlinks=True, ignore=leave_out, copy_function=_copy_file)
    except (OSError, shutil.Error, RecursionError) as error:
        _clear(beside)
        raise HoustonError(
            f"The workspace {source} could not be copied: {_shortly(error)}.",
            "The rollout has no workspace.",
        ) from error
    if special:
        log.warning("left out of the workspace, no plain files: %s", _some(special, 20))
    point("worker.workspace.copied")
    beside.rename(workspace)


def _clear(beside: Path) -> None:
    """Remove what an earlier try left, however deep; what will not go, the copy says."""
    with contextlib.suppress(OSError):
        emptying.remove(beside)


def _copy_file(source: str, target: str) -> str:
    if Path(source).is_symlink():
        shutil.copy2(source, target, follow_symlinks=False)
        return target
    with Path(source).open("rb") as old, Path(target).open("wb") as new:
        sparse_copy.copy(old.fileno(), new.fileno())
    shutil.copystat(source, target)
    return target


def _is_plain(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _shortly(error: OSError | shutil.Error | RecursionError) -> str:
    """The first few troubles of a copy, in a few hundred characters."""
    if isinstance(error, RecursionError):
        return "its folders are nested too deeply"
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        return _some([f"{entry[0]}: {entry[2]}" for entry in error.args[0]], _NAMED)
    return _some([str(error)], 1)


def _some(texts: Sequence[str], most: int) -> str:
    shown = "; ".join(
        text if len(text) <= _LONGEST else text[:_LONGEST] + "…" for text in texts[:most]
    )
    return shown if len(texts) <= most else f"{shown}; and {len(texts) - most} more"
