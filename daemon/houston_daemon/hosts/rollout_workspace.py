"""How a rollout's workspace is made, once: a copy of the task's folder, or of a parent's snapshot.

A note next to the rollouts' folders says that it was made. If the note exists and the workspace
does not, the agent's work is lost, and an error says so: a fresh copy would look like the agent's
own work. The note holds a mark that the rollout's processes carry in their environment. Files that
a branch could not restore are noted before the workspace appears. `folder_lock` has the owner.
"""

import contextlib
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from houston_daemon.hosts import untrusted_files
from houston_daemon.hosts.host_protocol import WorkspaceGone
from houston_daemon.hosts.snapshots.snapshot_restore import restore_snapshot
from houston_shared import atomic_file
from houston_shared.errors import HoustonError
from houston_shared.faults import point
from houston_shared.terminal_log_files import rollout_folder

log = logging.getLogger(__name__)

_MAX_NAMED_FILES = 3
_MAX_TROUBLE_CHARACTERS = 250
"""Characters of one file's trouble in a message."""


def make_workspace(
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
            _refuse_source_around(source, workspace)
            _copy_workspace(source, workspace)
    if not read_mark(note):  # none, or a power cut left it empty
        point("worker.workspace.placed")
        note.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write_atomically(note, secrets.token_hex(16).encode(), durable=False)


def read_mark(note: Path) -> str:
    """What the rollout's processes carry in their environment; empty before `make_workspace`."""
    try:
        return note.read_text()
    except FileNotFoundError:
        return ""


def _refuse_source_around(source: Path, workspace: Path) -> None:
    """A folder that holds the place of its copy would be copied into itself."""
    if workspace.resolve().is_relative_to(source.resolve()):
        raise HoustonError(
            f"The workspace source {source} contains {workspace.parent}, where its copy would "
            "be stored.",
            "Nothing was copied: every copy would contain all others.",
            "Name a smaller folder as [workspace] source, or set hosts.root to another place.",
        )


def _copy_workspace(source: Path, workspace: Path) -> None:
    """Copy beside the workspace's place and move it there: half a copy is never a workspace."""
    staging_folder = workspace.with_name("workspace.new")
    _remove_partial_copy(staging_folder)
    special: list[str] = []

    def leave_out(folder: str, names: list[str]) -> list[str]:
        special_names = [name for name in names if not _is_plain_file(Path(folder, name))]
        special.extend(os.path.relpath(Path(folder, name), source) for name in special_names)
        return special_names

    try:
        shutil.copytree(
            source, staging_folder, symlinks=True, ignore=leave_out, copy_function=_copy_file
        )
    except (OSError, shutil.Error, RecursionError) as error:
        _remove_partial_copy(staging_folder)
        raise HoustonError(
            f"The workspace {source} could not be copied: {_shorten_error(error)}.",
            "The rollout has no workspace.",
        ) from error
    if special:
        log.warning("left out of the workspace, not regular files: %s", _join_first(special, 20))
    point("worker.workspace.copied")
    staging_folder.rename(workspace)


def _remove_partial_copy(beside: Path) -> None:
    """Remove what an earlier try left, however deep; what will not go, the copy says."""
    with contextlib.suppress(OSError):
        untrusted_files.remove_folder(beside)


def _copy_file(source: str, target: str) -> str:
    if Path(source).is_symlink():
        shutil.copy2(source, target, follow_symlinks=False)
        return target
    with Path(source).open("rb") as old, Path(target).open("wb") as new:
        untrusted_files.copy_sparse(old.fileno(), new.fileno())
    shutil.copystat(source, target)
    return target


def _is_plain_file(path: Path) -> bool:
    mode = path.lstat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _shorten_error(error: OSError | shutil.Error | RecursionError) -> str:
    """The first few troubles of a copy, in a few hundred characters."""
    if isinstance(error, RecursionError):
        return "its folders are nested too deeply"
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        return _join_first([f"{entry[0]}: {entry[2]}" for entry in error.args[0]], _MAX_NAMED_FILES)
    return _join_first([str(error)], 1)


def _join_first(texts: Sequence[str], most: int) -> str:
    shown_texts = "; ".join(
        text if len(text) <= _MAX_TROUBLE_CHARACTERS else text[:_MAX_TROUBLE_CHARACTERS] + "…"
        for text in texts[:most]
    )
    return shown_texts if len(texts) <= most else f"{shown_texts}; and {len(texts) - most} more"


_BRANCH_NOTE = "branch.json"
_FETCH_NOTE = "fetched.json"


class FetchedWorkspace(msgspec.Struct, frozen=True):
    """What is noted beside a workspace that came from a store."""

    step: int
    """The step after which it was so; what was done in it since is lost."""
    lost: tuple[str, ...]
    """Paths that could not be brought back."""


def write_fetch_note(workspace: Path, note: FetchedWorkspace) -> None:
    """Note it, before the workspace has its place. Raises OSError."""
    file = workspace.with_name(_FETCH_NOTE)
    atomic_file.write_atomically(file, msgspec.json.encode(note))


def read_fetch_note(workspace: Path) -> FetchedWorkspace | None:
    """The note; None of a workspace that came from no store."""
    try:
        data = workspace.with_name(_FETCH_NOTE).read_bytes()
    except FileNotFoundError:
        return None
    return msgspec.json.decode(data, type=FetchedWorkspace)


@dataclass(frozen=True, slots=True)
class BranchSnapshot:
    """Where a branch comes from."""

    rollout: str
    commit: str
    """A commit of that rollout's shadow repository."""


def fill_branch_workspace(branch_snapshot: BranchSnapshot, root: Path, workspace: Path) -> None:
    """Make `workspace` as `branch_snapshot` was, wholly or not at all. Raises HoustonError.

    root: the host's root, which both rollouts share.
    """
    parent = rollout_folder(root, branch_snapshot.rollout)
    staging_folder = workspace.with_name("workspace.new")
    _remove_partial_copy(staging_folder)
    lost = restore_snapshot(
        parent / "shadow", branch_snapshot.commit, staging_folder, parent / "workspace"
    )
    atomic_file.write_atomically(workspace.with_name(_BRANCH_NOTE), msgspec.json.encode(lost))
    point("worker.branch.noted")
    staging_folder.rename(workspace)


def paths_not_restored(workspace: Path) -> tuple[str, ...]:
    """Paths that could not be brought back as the workspace was made, or fetched from a store."""
    if fetched := read_fetch_note(workspace):
        return fetched.lost
    try:
        return msgspec.json.decode(
            workspace.with_name(_BRANCH_NOTE).read_bytes(), type=tuple[str, ...]
        )
    except FileNotFoundError:
        return ()
