"""How the daemon stands, as a message, and what every message of `wire` is made of."""

from typing import Literal

import msgspec


class Wire(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, kw_only=True):
    """Base of every message; the tag is the class name."""


class Status(Wire, frozen=True, kw_only=True):
    """How the daemon stands: the JSON of `daemon status --json`."""

    pid: int
    state: Literal["starting", "running", "draining"]
    uptime: float
    """Seconds."""
    epoch: int
    version: str
    home: str
    rollouts: dict[str, int]
    """Rollouts by state."""
    workers: int = 0
    queue: int = 0
    """Messages waiting for the writer."""
    commits: int = 0
    """Transactions of this daemon that stored something."""
    commit_p99_ms: float = 0.0
    wal_mb: float = 0.0
    disk_free_mb: float = 0.0
    consoles: int = 0
    limits: str = ""
    """What limits processes and memory of rollouts here: `cgroup2`, `cgroup1` or `watchdog`."""
    engines: dict[str, str] = {}
    """Engine name → `ready`, `starting`, `down: <reason>`, or `failing: <reason>`: it is
    there, and workers wait for its answers."""
    last_error: str = ""
    search_lag: int = 0
    """Events that search.db has not seen yet."""
    longest_silence: float = 0.0
    """Longest time between two messages of one worker, seconds; each beats every second."""
    restarts: dict[str, int] = {}
    """`workers`, `engines`, `nursery` → how many were started again since the daemon's start."""
    troubles: dict[str, str] = {}
    """What keeps ending → how often, when it is tried again, what it said last."""
    acked: int = 0
    """Messages of workers answered since the daemon's start; each answer means on disk."""
    ack_p99_ms: float = 0.0
    """99th percentile of recent times from receipt to answer."""
    backup_age: float | None = None
    """Seconds since the newest backup of the home's own; None where there is none."""
    backup_event: int = 0
    """The newest event that it holds."""
    gpus: dict[str, str] = {}
    """Host → how many of its GPUs are leased and by whom; `waiting` → who waits for what."""
    training: dict[str, str] = {}
    """Training run → how far it has come, in words."""
    policies: dict[str, str] = {}
    """Engine → the policy that its new rollouts sample with; engines' own models are left out."""
