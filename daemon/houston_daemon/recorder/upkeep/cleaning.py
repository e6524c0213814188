"""Frees what ended rollouts keep on hosts: a process of its own, because trees are large.

`python -m houston_daemon.recorder.upkeep.cleaning PARENT HOME` reads orders as JSON from stdin and
prints a `Report` a line. What goes is said in `hosts.freeing`; other machines are asked for it.
"""

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from houston_daemon.hosts.freeing import free
from houston_daemon.hosts.ssh import left
from houston_daemon.hosts.ssh.visit import Machines
from houston_daemon.recorder.upkeep.cleaner import Order, Report
from houston_daemon.service.tether import tie

NICENESS = 15


async def carry_out(order: Order, home: str, machines: Machines) -> Report:
    """Free one rollout's part of its hosts. home: whose rollout it is."""
    found = [await free(Path(order.root), order.rollout, home, order.snapshots)]
    for there in order.elsewhere:
        freed = await machines.free(there, order.rollout, home, order.snapshots)
        if not freed.left:  # nothing of it runs there, so nobody has to look for it
            left.place(Path(order.root), order.rollout, there.host).unlink(missing_ok=True)
        found.append(freed)
    why = "; ".join(one.left for one in found if one.left)
    return Report(order.rollout, sum(one.bytes for one in found), why)


async def _main(home: str) -> None:
    machines = Machines()
    for order in msgspec.json.decode(sys.stdin.buffer.read(), type=list[Order]):
        report = await carry_out(order, home, machines)
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    if tie(int(sys.argv[1])):
        os.nice(NICENESS)
        asyncio.run(_main(sys.argv[2]))
