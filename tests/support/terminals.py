"""Ends terminals that rollouts of a test left: they outlive whoever drove them."""

import subprocess
from collections.abc import Collection
from pathlib import Path

from houston_daemon.maintenance.host_cleanup import CleanupOrder, has_leftovers, start_cleanup


def end_terminals(root: Path, rollouts: Collection[str] = ()) -> None:
    """End what rollouts under `root` left, in a process of its own. rollouts: none for all."""
    names = rollouts or [folder.name for folder in sorted((root / "rollouts").glob("*"))]
    left = [name for name in names if has_leftovers(root, name)]
    if left:
        orders = [CleanupOrder(str(root), rollout, "processes") for rollout in left]
        child = start_cleanup("", orders, subprocess.DEVNULL)
        assert child.wait(timeout=60) == 0
