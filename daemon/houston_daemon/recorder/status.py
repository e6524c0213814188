"""How the daemon stands, as `Status` says it."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

from houston_daemon.hosts.guard.cgroup_places import places
from houston_daemon.recorder.protocol import Reported
from houston_daemon.recorder.store import Store
from houston_shared.wire_status import Status

MB = 1_000_000


@dataclass(slots=True)
class Gauges:
    """What other parts of the recorder know at the moment they are asked."""

    queue: Callable[[], int]
    commits: Callable[[], int]
    p99_ms: Callable[[], float]
    wal_bytes: Callable[[], int]
    consoles: Callable[[], int]
    search_seq: Callable[[], int]
    """Newest event that search.db has seen."""
    problem: Callable[[], str]
    acked: Callable[[], int]
    """Messages of workers answered since the start."""
    ack_p99_ms: Callable[[], float]
    """99th percentile of recent times from a message's receipt to its answer, milliseconds."""


class StatusBoard:
    """Puts a `Status` together. Belongs to the recorder's thread."""

    def __init__(self, epoch: int, gauges: Gauges) -> None:
        self._epoch = epoch
        self._gauges = gauges
        self._began = time.monotonic()
        self._limits = places().mechanism
        self.reported = Reported()

    def status(self, store: Store) -> Status:
        """Now."""
        counts = store.connection.execute("SELECT state, count(*) FROM rollouts GROUP BY state")
        gauges, backup = self._gauges, self.reported.backup
        return Status(
            pid=os.getpid(),
            state="draining" if store.draining else "running",
            uptime=time.monotonic() - self._began,
            epoch=self._epoch,
            version=version("houston-agents"),
            home=str(store.home.path),
            rollouts=dict(counts.fetchall()),
            workers=self.reported.workers,
            queue=gauges.queue(),
            commits=gauges.commits(),
            commit_p99_ms=gauges.p99_ms(),
            wal_mb=gauges.wal_bytes() / MB,
            disk_free_mb=shutil.disk_usage(store.home.path).free / MB,
            consoles=gauges.consoles(),
            limits=self._limits,
            engines=dict(self.reported.engines),
            last_error=gauges.problem() or self.reported.error,
            search_lag=max(0, store.journal.seq - gauges.search_seq()),
            longest_silence=store.workers.longest_silence,
            restarts=dict(self.reported.restarts),
            troubles=dict(self.reported.troubles),
            backup_age=max(0.0, time.time() - backup[0]) if backup else None,
            backup_event=backup[1] if backup else 0,
            gpus=dict(self.reported.gpus),
            training=dict(self.reported.training),
            policies=dict(self.reported.policies),
            acked=gauges.acked(),
            ack_p99_ms=gauges.ack_p99_ms(),
        )
