"""Frees what ended rollouts keep on hosts: a process of its own, because trees are large.

`python -m houston_daemon.maintenance.host_cleanup_child PARENT HOME` reads orders as JSON from
stdin and prints a `CleanupReport` a line. What goes is said in `hosts`; other machines are asked
for it.
"""

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from houston_daemon.hosts.rollout_folder_cleanup import free_rollout
from houston_daemon.hosts.ssh import remote_part
from houston_daemon.hosts.ssh.remote_access import RemoteCleaner
from houston_daemon.maintenance.host_cleanup import CleanupOrder, CleanupReport
from houston_daemon.service.parent_death import end_with_parent

NICENESS = 15


async def carry_out_order(order: CleanupOrder, home: str, machines: RemoteCleaner) -> CleanupReport:
    """Free one rollout's part of its hosts. home: whose rollout it is."""
    reports = [await free_rollout(Path(order.root), order.rollout, home, order.snapshots)]
    for part in order.elsewhere:
        freed = await machines.free(part, order.rollout, home, order.snapshots)
        if not freed.left:  # nothing of it runs there, so nobody has to look for it
            remote_part.leftover_path(Path(order.root), order.rollout, part.host).unlink(
                missing_ok=True
            )
        reports.append(freed)
    why = "; ".join(report.left for report in reports if report.left)
    return CleanupReport(order.rollout, sum(report.bytes for report in reports), why)


async def _main(home: str) -> None:
    machines = RemoteCleaner()
    for order in msgspec.json.decode(sys.stdin.buffer.read(), type=list[CleanupOrder]):
        report = await carry_out_order(order, home, machines)
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    if end_with_parent(int(sys.argv[1])):
        os.nice(NICENESS)
        asyncio.run(_main(sys.argv[2]))
