"""A rollout's workspace stays one that its owner can enter, whatever the agent did to its mode.

`chmod -R 644 .` would otherwise shut the agent out of every new session, the evaluator out of the
work, and a daemon without root's rights out of its snapshots. What lies in it is the agent's own.
"""

import contextlib
import stat
from pathlib import Path


def give_back(workspace: Path) -> None:
    """Let the owner read, write and enter the folder itself; nothing where it is gone."""
    with contextlib.suppress(FileNotFoundError):
        mode = stat.S_IMODE(workspace.stat().st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            workspace.chmod(mode | stat.S_IRWXU)
