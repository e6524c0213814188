"""Removes what a finished rollout left on the machine where this runs; one entry point.

`clean_rollout` serves rollouts that ended, were cancelled without a worker, or are freed by a
person. For this machine, `maintenance.host_cleanup_child` of the daemon calls it; on another one
the far end, a child of the SSH connection, calls it. `CleanupExtent` says how much is removed:

| extent | removed |
|---|---|
| processes | terminals, the tmux server and its socket, what left its session, control groups |
| files | also workspace, terminals' logs, the sandbox's own folders, and what notes them |
| snapshots | also the snapshots, from which any step's files can be brought back |

What another home holds is left alone.
"""

import asyncio
from pathlib import Path

from houston_daemon.hosts import untrusted_files
from houston_daemon.hosts.folder_lock import RolloutFolderLock, holder_note
from houston_daemon.hosts.guard import resource_usage
from houston_daemon.hosts.host_protocol import CleanupExtent, FreedSpace, RolloutHeldElsewhere
from houston_daemon.hosts.local_host import LocalHost
from houston_shared.terminal_log_files import rollout_folder

SNAPSHOT_FOLDER = "shadow"
"""Folder of the snapshots in a rollout's own."""


async def clean_rollout(root: Path, rollout: str, owner: str, extent: CleanupExtent) -> FreedSpace:
    """Clean up one rollout's part of this machine. owner: whose it is; see `folder_lock`."""
    if extent == "processes":
        await _end_processes(root, rollout)
        return FreedSpace(0)
    folder = rollout_folder(root, rollout)
    if not folder.is_dir():
        return FreedSpace(0)
    tenancy = RolloutFolderLock(folder, owner)
    try:  # no name is noted: a full disk, which is why people do this, has no room for one
        await asyncio.to_thread(tenancy.acquire)
        return await _free_folder(root, rollout, folder, extent == "snapshots")
    except RolloutHeldElsewhere as lock_problem:
        return FreedSpace(0, lock_problem.cause)
    except OSError as problem:
        return FreedSpace(0, str(problem))
    finally:
        tenancy.release(ended=True)


async def _free_folder(root: Path, rollout: str, folder: Path, snapshots: bool) -> FreedSpace:
    """Free the disk, once nobody else has the folder. Raises OSError."""
    await _end_processes(root, rollout)
    before = await asyncio.to_thread(resource_usage.count_disk_bytes, [folder])
    left_reason = await asyncio.to_thread(_remove_contents, folder, snapshots)
    (root / "prepared" / rollout).unlink(missing_ok=True)
    bytes_left = await asyncio.to_thread(resource_usage.count_disk_bytes, [folder])
    freed = max(0, before - bytes_left)
    if snapshots:
        _remove_empty_folder(folder)
    return FreedSpace(freed, left_reason)


async def _end_processes(root: Path, rollout: str) -> None:
    """End every terminal of a rollout, and what runs in them or was started from them."""
    host = LocalHost(root, rollout, sandbox="none", network=False, hidden=())
    await host.destroy_terminals()
    await host.close()


def _remove_contents(folder: Path, snapshots: bool) -> str:
    """Remove all but the snapshots and the holder's note; the first trouble met, empty for none."""
    kept_names = {holder_note(folder).name, *(() if snapshots else (SNAPSHOT_FOLDER,))}
    trouble = ""
    for path in sorted(folder.iterdir()):
        if path.name in kept_names:
            continue
        try:
            if path.is_dir() and not path.is_symlink():
                untrusted_files.remove_folder(path)
            else:
                path.unlink()
        except OSError as problem:
            trouble = trouble or f"{path.name}: {problem.strerror}"
    return trouble


def _remove_empty_folder(folder: Path) -> None:
    """Remove the folder itself where only the note of its holder is left in it."""
    if list(folder.iterdir()) == [note := holder_note(folder)]:
        note.unlink()
        folder.rmdir()
