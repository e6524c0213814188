"""Frees what an ended rollout keeps on this host: a process of its own, because trees are large.

`python -m houston_daemon.recorder.upkeep.cleaning PARENT HOME` reads orders as JSON from stdin and
prints a `Report` a line. Goes: workspace, terminals' logs and state, the sandbox's own folders, and
what notes them. The snapshots stay unless they are named: from them any step's files can be brought
back. What another home holds is left alone.
"""

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from houston_daemon.hosts import emptying
from houston_daemon.hosts.errors import HeldElsewhere
from houston_daemon.hosts.guard import disk_use
from houston_daemon.hosts.local import LocalHost
from houston_daemon.hosts.workspace.tenancy import Tenancy
from houston_daemon.recorder.upkeep.cleaner import Order, Report
from houston_daemon.service.tether import tie

NICENESS = 15
SNAPSHOTS = "shadow"
"""Folder of the snapshots in a rollout's own."""
HOLDER = "holder"
"""The note of whose the folder is: the last to go."""


async def carry_out(order: Order, home: str) -> Report:
    """Free one rollout's part of the host. home: whose rollout it is."""
    root = Path(order.root)
    folder = root / "rollouts" / order.rollout
    if not folder.is_dir():
        return Report(order.rollout, 0)
    tenancy = Tenancy(folder, home)
    try:  # no name is noted: a full disk, which is why people do this, has no room for one
        await asyncio.to_thread(tenancy.take, named=False)
        return await _free(order, root, folder)
    except HeldElsewhere as held:
        return Report(order.rollout, 0, held.cause)
    except OSError as problem:
        return Report(order.rollout, 0, str(problem))
    finally:
        tenancy.release(ended=True)


async def _free(order: Order, root: Path, folder: Path) -> Report:
    """The same, once nobody else has the folder. Raises OSError."""
    await _end_terminals(root, order.rollout)
    before = disk_use.held([folder])
    left = _remove(folder, order.snapshots)
    (root / "prepared" / order.rollout).unlink(missing_ok=True)
    freed = max(0, before - disk_use.held([folder]))
    if order.snapshots:
        _remove_emptied(folder)
    return Report(order.rollout, freed, left)


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


async def _main(home: str) -> None:
    for order in msgspec.json.decode(sys.stdin.buffer.read(), type=list[Order]):
        report = await carry_out(order, home)
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    if tie(int(sys.argv[1])):
        os.nice(NICENESS)
        asyncio.run(_main(sys.argv[2]))
