"""Ends terminals that rollouts of a test left: they outlive whoever drove them."""

import subprocess
import sys
from pathlib import Path

from houston_daemon.service.orphaned_terminals import may_have_orphans


def end_terminals(root: Path) -> None:
    """End what any rollout under `root` left, in a process of its own."""
    folders = sorted((root / "rollouts").glob("*"))
    left = [folder.name for folder in folders if may_have_orphans(root, folder.name)]
    if left:
        command = [
            sys.executable,
            "-m",
            "houston_daemon.service.orphaned_terminals",
            str(root),
            *left,
        ]
        subprocess.run(command, check=True, timeout=60)
