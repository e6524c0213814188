"""Ends terminals that rollouts of a test left: they outlive whoever drove them."""

import subprocess
import sys
from pathlib import Path

from houston_daemon.service.leftovers import has_left


def end_terminals(root: Path) -> None:
    """End what any rollout under `root` left, in a process of its own."""
    folders = sorted((root / "rollouts").glob("*"))
    left = [folder.name for folder in folders if has_left(root, folder.name)]
    if left:
        command = [sys.executable, "-m", "houston_daemon.service.leftovers", str(root), *left]
        subprocess.run(command, check=True, timeout=60)
