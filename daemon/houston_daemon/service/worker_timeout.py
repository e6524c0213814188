"""When a silent worker counts as dead: after `daemon.silent_seconds` (120) without a heartbeat.

Only time in which the kernel gave the process a processor counts, so a crowded machine does not
look like a hang; but nobody waits longer than ten times the limit. `worker_pool` kills workers by
this rule. The fork server has its own limits (`worker_spawner`), in the same kind of seconds.
"""

from pathlib import Path

SILENCE_WARN_FRACTION = 0.25
"""A silence of this part of the limit is shown in the status."""
STARVED_SILENCE_FACTOR = 10.0
"""Silent for so many times the limit, a worker is taken for hung, however crowded the machine."""


class SilenceWatch:
    """Silences of workers by process id, looked at now and then."""

    def __init__(self, limit: float) -> None:
        """limit: seconds after which a worker is taken for hung."""
        self.limit = limit
        self._run_delay: dict[tuple[str, int], float] = {}
        """By node and process id of those that are silent, the seconds that they had waited for a
        processor when it was noticed."""

    def noticed(self, pid: int, seconds: float, node: str = "") -> bool:
        """Take note of a silence; whether it is long enough to be shown.

        node: where it runs; empty for this machine.
        """
        if seconds < self.limit * SILENCE_WARN_FRACTION:
            self._run_delay.pop((node, pid), None)
            return False
        if (node, pid) not in self._run_delay:
            self._run_delay[node, pid] = run_delay_seconds(pid, node)
        return True

    def hung(self, pid: int, seconds: float, node: str = "") -> bool:
        """Whether a silence that was noticed means that the process must be ended."""
        if seconds <= self.limit:
            return False
        without = run_delay_seconds(pid, node) - self._run_delay[node, pid]
        return seconds - without > self.limit or seconds > self.limit * STARVED_SILENCE_FACTOR

    def forget(self, pid: int, node: str = "") -> None:
        """The process has ended."""
        self._run_delay.pop((node, pid), None)


def run_delay_seconds(pid: int, node: str = "") -> float:
    """Seconds that the main thread of `pid` has been ready to run without a processor; 0 where the
    kernel does not say, as for one on another node. (Documentation/scheduler/sched-stats.rst:
    second field, nanoseconds.)"""
    if node:
        return 0.0
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
