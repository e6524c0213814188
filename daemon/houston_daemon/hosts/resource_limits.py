"""What the processes of one rollout may use in total, and the text for a limit that was hit.

Numbers and sentences only; `guard` enforces them.
"""

import os
from dataclasses import dataclass
from typing import Literal

from houston_shared.task import SandboxSettings

LimitKind = Literal["processes", "memory", "file size", "workspace", "disk"]
LimitMechanism = Literal["cgroup2", "cgroup1", "watchdog"]

MEBIBYTE = 1 << 20
_MEMORY_SHARE = 0.9
"""Of the machine's memory, where nobody names a limit: what is left keeps the daemon alive."""
_SHM_DIVISOR = 2
"""`/dev/shm` holds one part in this many of the rollout's memory, as Linux' own does of all."""


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Limits of one rollout over all that it runs, evaluators too; 0 is none."""

    processes: int = 4_096
    """Processes and threads."""
    memory: int = 0
    """Bytes."""
    file: int = 0
    """Bytes of one file."""
    workspace: int = 0
    """Bytes of workspace, home and /tmp; a file counts as 4 KiB at least."""
    shared: int = 0
    """Bytes of one sandbox's /dev/shm."""
    together: int = 0
    """Bytes of memory of all rollouts that keep their files in the same folder."""


def compute_resource_limits(mapped: SandboxSettings, together_mb: int) -> ResourceLimits:
    """Limits as task and configuration state them; 0 stands for what each key's text says.

    together_mb: `memory_mb` of the host.
    """
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    most = int(memory_bytes * _MEMORY_SHARE)
    together = together_mb * MEBIBYTE or most
    memory = min(mapped.memory_mb * MEBIBYTE or most, together)
    return ResourceLimits(
        processes=mapped.processes,
        memory=memory,
        file=(mapped.file_mb or mapped.workspace_mb) * MEBIBYTE,
        workspace=mapped.workspace_mb * MEBIBYTE,
        shared=mapped.shm_mb * MEBIBYTE or memory // _SHM_DIVISOR,
        together=together,
    )


@dataclass(frozen=True, slots=True)
class LimitHit:
    """A limit was hit."""

    kind: LimitKind
    said: str
    """What happened, one sentence, for the agent."""

    @property
    def words(self) -> str:
        """The line that an observation carries."""
        return f"resource limit: {self.kind}. {self.said}"


def format_megabytes(count: int) -> str:
    """Bytes as a person reads them."""
    return f"{count / MEBIBYTE:,.0f} MB"
