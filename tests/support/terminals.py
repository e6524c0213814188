"""Ends terminals that rollouts of a test left: they outlive whoever drove them."""

import subprocess
from pathlib import Path

from houston_daemon.maintenance.host_cleanup import CleanupOrder, has_leftovers, start_cleanup


def end_terminals(root: Path) -> None:
    """End what any rollout under `root` left, in a process of its own."""
    folders = sorted((root / "rollouts").glob("*"))
    left = [folder.name for folder in folders if has_leftovers(root, folder.name)]
    if left:
        orders = [CleanupOrder(str(root), rollout, "processes") for rollout in left]
        child = start_cleanup("", orders, subprocess.DEVNULL)
        assert child.wait(timeout=60) == 0
