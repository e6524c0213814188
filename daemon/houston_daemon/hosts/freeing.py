"""Frees what an ended rollout keeps on this machine.

Goes: workspace, terminals' logs and state, the sandbox's own folders, and what notes them. The
snapshots stay unless they are named: from them any step's files can be brought back. What another
home holds is left alone.
"""

import asyncio
from pathlib import Path

import msgspec

from houston_daemon.hosts import emptying
from houston_daemon.hosts.errors import HeldElsewhere
from houston_daemon.hosts.guard import disk_use
from houston_daemon.hosts.local import LocalHost
from houston_daemon.hosts.workspace.tenancy import Tenancy
from houston_shared.terminal_folder import rollout_folder

SNAPSHOTS = "shadow"
"""Folder of the snapshots in a rollout's own."""
HOLDER = "holder"
"""The note of whose the folder is: the last to go."""


class Freed(msgspec.Struct, frozen=True):
    """What became of it."""

    bytes: int
    """That were freed."""
    left: str = ""
    """Why something is left that should have gone; empty when nothing is."""


async def free(root: Path, rollout: str, owner: str, snapshots: bool) -> Freed:
    """Free one rollout's part of this machine. owner: whose rollout it is; see `tenancy`."""
    folder = rollout_folder(root, rollout)
    if not folder.is_dir():
        return Freed(0)
    tenancy = Tenancy(folder, owner)
    try:  # no name is noted: a full disk, which is why people do this, has no room for one
        await asyncio.to_thread(tenancy.take, named=False)
        return await _free(root, rollout, folder, snapshots)
    except HeldElsewhere as held:
        return Freed(0, held.cause)
    except OSError as problem:
        return Freed(0, str(problem))
    finally:
        tenancy.release(ended=True)


async def _free(root: Path, rollout: str, folder: Path, snapshots: bool) -> Freed:
    """The same, once nobody else has the folder. Raises OSError."""
    await _end_terminals(root, rollout)
    before = disk_use.held([folder])
    left = await asyncio.to_thread(_remove, folder, snapshots)
    (root / "prepared" / rollout).unlink(missing_ok=True)
    freed = max(0, before - disk_use.held([folder]))
    if snapshots:
        _remove_emptied(folder)
    return Freed(freed, left)


async def _end_terminals(root: Path, rollout: str) -> None:
    host = LocalHost(root, rollout, sandbox="none", network=False, hidden=())
    await host.destroy_terminals()
    await host.close()


def _remove(folder: Path, snapshots: bool) -> str:
    """Remove all but the snapshots and the holder's note; the first trouble met, empty for none."""
    kept = {HOLDER} if snapshots else {HOLDER, SNAPSHOTS}
    trouble = ""
    for path in sorted(folder.iterdir()):
        if path.name in kept:
            continue
        try:
            if path.is_dir() and not path.is_symlink():
                emptying.remove(path)
            else:
                path.unlink()
        except OSError as problem:
            trouble = trouble or f"{path.name}: {problem.strerror}"
    return trouble


def _remove_emptied(folder: Path) -> None:
    """Remove the folder itself where only the note of its holder is left in it."""
    if [path.name for path in folder.iterdir()] == [HOLDER]:
        (folder / HOLDER).unlink()
        folder.rmdir()
