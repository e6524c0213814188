"""Cleans up what ended rollouts left on hosts, in a separate process because trees are large.

`python -m houston_daemon.maintenance.host_cleanup_child PARENT HOME` reads orders as JSON from
stdin and prints a `CleanupReport` a line. `hosts.rollout_cleanup` decides what is removed; other
machines are asked to do it. Machines are cleaned in parallel, each one rollout after another.
"""

import asyncio
import os
import sys
from collections import defaultdict
from pathlib import Path

import msgspec

from houston_daemon.hosts.folder_lock import is_claimed_elsewhere
from houston_daemon.hosts.host_protocol import FreedSpace
from houston_daemon.hosts.rollout_cleanup import clean_rollout
from houston_daemon.hosts.ssh import remote_part
from houston_daemon.hosts.ssh.remote_access import RemoteCleaner
from houston_daemon.hosts.ssh.remote_part import RemotePart
from houston_daemon.maintenance.host_cleanup import CleanupOrder, CleanupReport, has_leftovers
from houston_daemon.service.parent_death import end_with_parent
from houston_shared.terminal_log_files import rollout_folder

NICENESS = 15


class HostCleaner:
    """Carries out orders of one home."""

    def __init__(self, home: str) -> None:
        self._home = home and str(Path(home).resolve())
        self._machines = RemoteCleaner()
        self._turns: defaultdict[RemotePart | None, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By machine, None for this one."""

    async def execute_order(self, order: CleanupOrder) -> CleanupReport:
        """Clean up one rollout's part of its hosts."""
        reports = [await self._clean_here(order)]
        folder = rollout_folder(Path(order.root), order.rollout)
        is_copy = order.extent != "processes" and is_claimed_elsewhere(folder, self._home)
        # A home beside this one may be at rest: other machines would not know that it is there.
        for part in () if is_copy else order.elsewhere:
            reports.append(await self._clean_there(order, part))
        reason = "; ".join(report.left for report in reports if report.left)
        return CleanupReport(order.rollout, sum(report.bytes for report in reports), reason)

    async def _clean_here(self, order: CleanupOrder) -> FreedSpace:
        root = Path(order.root)
        async with self._turns[None]:
            if order.extent == "processes" and not has_leftovers(root, order.rollout, self._home):
                return FreedSpace(0)
            return await clean_rollout(root, order.rollout, self._home, order.extent)

    async def _clean_there(self, order: CleanupOrder, part: RemotePart) -> FreedSpace:
        async with self._turns[part]:
            freed = await self._machines.clean(part, order.rollout, self._home, order.extent)
        if not freed.left:  # nothing of it runs there, so nobody has to look for it
            note = remote_part.leftover_path(Path(order.root), order.rollout, part.host)
            note.unlink(missing_ok=True)
        return freed


async def _main(orders: list[CleanupOrder], home: str) -> None:
    cleaner = HostCleaner(home)
    for finished in asyncio.as_completed([cleaner.execute_order(order) for order in orders]):
        sys.stdout.buffer.write(msgspec.json.encode(await finished) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    parent = int(sys.argv[1])
    if not parent or end_with_parent(parent):
        todo = msgspec.json.decode(sys.stdin.buffer.read(), type=list[CleanupOrder])
        if any(order.extent != "processes" for order in todo):  # a tree is in no hurry
            os.nice(NICENESS)
        asyncio.run(_main(todo, sys.argv[2]))
