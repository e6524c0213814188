"""A branch's workspace: a snapshot of its parent on the same host, made once.

What could not be brought back is noted beside the workspace before it stands, so that the agent is
told of it however often its worker dies meanwhile.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

from houston_daemon.hosts.snapshots.reading import bring_back
from houston_shared.faults import point
from houston_shared.terminal_folder import rollout_folder

_NOTE = "branch.json"


@dataclass(frozen=True, slots=True)
class Past:
    """Where a branch comes from."""

    rollout: str
    commit: str
    """A commit of that rollout's shadow repository."""


def fill(past: Past, root: Path, workspace: Path) -> None:
    """Make `workspace` as `past` was; half of one is never a workspace. Raises HoustonError.

    root: the host's root, which both rollouts share.
    """
    parent = rollout_folder(root, past.rollout)
    beside = workspace.with_name("workspace.new")
    shutil.rmtree(beside, ignore_errors=True)
    lost = bring_back(parent / "shadow", past.commit, beside, parent / "workspace")
    note = workspace.with_name(_NOTE)
    note.with_suffix(".new").write_bytes(msgspec.json.encode(lost))
    note.with_suffix(".new").replace(note)
    point("worker.branch.noted")
    beside.rename(workspace)


def not_brought_back(workspace: Path) -> tuple[str, ...]:
    """Paths that `fill` could not bring back."""
    try:
        return msgspec.json.decode(workspace.with_name(_NOTE).read_bytes(), type=tuple[str, ...])
    except FileNotFoundError:
        return ()
