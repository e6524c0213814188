"""Files missing on this machine, fetched from the store: snapshots, rollouts' workspaces, adapters.

A worker asks before it opens the rollout's world, a command before it writes an earlier workspace,
an activation before it loads a policy. Only missing files are fetched; existing ones are never
replaced.
"""

from pathlib import Path

from houston_daemon.artifacts.artifact_store import (
    ArtifactStore,
    disk_failure,
    open_folder_atomically,
)
from houston_daemon.artifacts.snapshot_bundles import fetch_shadow, lacks_snapshot, read_head
from houston_daemon.artifacts.store_head import file_object, find_head
from houston_daemon.hosts.host_protocol import NeedsPerson
from houston_daemon.hosts.rollout_workspace import FetchedWorkspace, write_fetch_note
from houston_daemon.hosts.snapshots.snapshot_restore import restore_snapshot
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.policy_and_run_files import policies_folder
from houston_shared.terminal_log_files import rollout_folder


class WorkspaceNotFetched(NeedsPerson):
    """The store could not give a workspace."""

    def __init__(self, rollout: str, problem: HoustonError) -> None:
        super().__init__(
            f"The workspace of {rollout} is not on this machine, and could not be fetched:"
            f" {problem.cause}",
            "The rollout waits: a fresh copy would not have the agent's work.",
            f"Fix that, then: houston rollout resume {rollout}; or give it up: houston rollout "
            f"cancel {rollout}",
            problem.code,
        )


def fetch_missing_shadow(url: str, host_root: Path, rollout: str, *commits: str) -> bool:
    """Fetch a rollout's snapshots where there are none here; whether they were fetched.

    commits: those that are wanted, the best first. Raises HoustonError as `fetch_shadow` does.
    """
    shadow = rollout_folder(host_root, rollout) / "shadow"
    if not url or read_head(shadow):
        return False
    shadow.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fetch_shadow(ArtifactStore(url), rollout, shadow, *commits)
    return True


def fetch_parent_shadow(url: str, host_root: Path, parent: str, commit: str, branch: str) -> None:
    """Fetch the snapshots that a branch begins from. Raises WorkspaceNotFetched."""
    try:
        fetch_missing_shadow(url, host_root, parent, commit)
    except HoustonError as problem:
        raise WorkspaceNotFetched(branch, problem) from problem
    except OSError as problem:
        raise WorkspaceNotFetched(branch, disk_failure(host_root, problem)) from problem


def set_old_workspace_aside(host_root: Path, rollout: str, commit: str) -> bool:
    """Move away a workspace from before the rollout continued elsewhere; whether there was one.

    A lost node may come back with its disk. commit: the snapshot of the rollout's last closed step;
    an up-to-date workspace has it among its snapshots. Raises WorkspaceNotFetched.
    """
    folder = rollout_folder(host_root, rollout)
    workspace, shadow = folder / "workspace", folder / "shadow"
    if not lacks_snapshot(shadow, commit):
        return False
    try:
        for path in (workspace, shadow):  # the snapshots last: killed between, it is done again
            if path.exists():
                path.rename(path.with_name(f"{path.name}.before-{commit[:12]}"))
    except OSError as problem:
        raise WorkspaceNotFetched(rollout, disk_failure(folder, problem)) from problem
    return True


def fetch_missing_workspace(
    url: str, host_root: Path, rollout: str, *snapshots: tuple[str, int]
) -> bool:
    """Fetch the workspace of a rollout that has started, if it is missing here; whether it was
    fetched.

    snapshots: commit and step of acceptable ones, the newest first: the first that the store has is
    used. None: the newest of the store, as it was before the first step.
    Raises WorkspaceNotFetched.
    """
    folder = rollout_folder(host_root, rollout)
    workspace = folder / "workspace"
    if not url or workspace.exists():
        return False
    temp_folder = folder / "workspace.new"
    try:
        commits = [commit for commit, _ in snapshots]
        was_fetched = fetch_missing_shadow(url, host_root, rollout, *commits)
        head = read_head(folder / "shadow")
        commit = head if was_fetched or not commits else commits[0]
        lost = restore_snapshot(folder / "shadow", commit, temp_folder)
        write_fetch_note(workspace, FetchedWorkspace(dict(snapshots).get(commit, 0), tuple(lost)))
        temp_folder.rename(workspace)
    except HoustonError as problem:
        raise WorkspaceNotFetched(rollout, problem) from problem
    except OSError as problem:
        raise WorkspaceNotFetched(rollout, disk_failure(workspace, problem)) from problem
    return True


def fetch_missing_adapter(url: str, home: Home, folder: str) -> bool:
    """Fetch a policy's adapter where its folder is not here; whether it was fetched.

    folder: its name in `policies/`. Nothing is done without a store, or where the store does not
    have it. Raises HoustonError.
    """
    target = policies_folder(home) / folder
    if not url or not folder or target.exists():
        return False
    store = ArtifactStore(url)
    head = find_head(store)
    prefix = f"policies/{folder}/"
    head_files = head.files if head else {}
    files = {path: digest for path, digest in head_files.items() if path.startswith(prefix)}
    if not files:
        return False
    with open_folder_atomically(target) as temp_folder:
        for path, digest in files.items():
            store.read_file(file_object(digest), temp_folder / Path(path).name, digest)
    return True
