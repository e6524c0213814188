"""What the processes of one rollout may use together, and how a limit that was met is put in words.

Numbers and sentences only; `guard` holds rollouts to them.
"""

import os
from dataclasses import dataclass
from typing import Literal

Kind = Literal["processes", "memory", "file size", "workspace", "disk"]
Mechanism = Literal["cgroup2", "cgroup1", "watchdog"]

MEBIBYTE = 1 << 20
_SHARE = 0.9
"""Of the machine's memory, where a task names no limit: what is left keeps the daemon alive."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one rollout over all that it runs, evaluators too; 0 is none."""

    processes: int = 4_096
    """Processes and threads."""
    memory: int = 0
    """Bytes."""
    file: int = 0
    """Bytes of one file."""
    workspace: int = 0
    """Bytes of workspace, home and /tmp; a file counts as 4 KiB at least."""


def limits(processes: int, memory_mb: int, file_mb: int, workspace_mb: int) -> Limits:
    """Limits as a task file states them: 0 MB of memory is nine tenths of the machine's, and 0 MB
    of one file as much as the workspace may hold.
    """
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Limits(
        processes=processes,
        memory=memory_mb * MEBIBYTE if memory_mb else int(whole * _SHARE),
        file=(file_mb or workspace_mb) * MEBIBYTE,
        workspace=workspace_mb * MEBIBYTE,
    )


@dataclass(frozen=True, slots=True)
class Hit:
    """A limit was met."""

    kind: Kind
    said: str
    """What happened, one sentence, for the agent."""

    @property
    def words(self) -> str:
        """The line that an observation carries."""
        return f"resource limit: {self.kind}. {self.said}"


def size(count: int) -> str:
    """Bytes as a person reads them."""
    return f"{count / MEBIBYTE:,.0f} MB"
