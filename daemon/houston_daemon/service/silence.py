"""Which silent workers are hung or stopped, and which only wait for a processor.

The recorder says how long each has been silent while it listened. Here the time is taken off in
which the kernel had the worker ready to run and gave it no processor: a crowded machine is nobody's
hang. It knows nothing of rollouts and kills nobody.
"""

from dataclasses import dataclass
from pathlib import Path

NOTICED_PART = 0.25
"""A silence of this part of the limit is shown in the status."""
STARVED_TIMES = 10.0
"""Silent for so many times the limit, a worker is taken for hung, however crowded the machine."""


@dataclass(slots=True)
class _Quiet:
    """One silence, since it was noticed."""

    starved: float
    """Seconds that the process had waited for a processor by then."""


class Silences:
    """Silences of workers by process id, looked at now and then."""

    def __init__(self, limit: float) -> None:
        """limit: seconds after which a worker is taken for hung."""
        self.limit = limit
        self._quiet: dict[int, _Quiet] = {}

    def noticed(self, pid: int, seconds: float) -> bool:
        """Take note of a silence; whether it is long enough to be shown."""
        if seconds < self.limit * NOTICED_PART:
            self._quiet.pop(pid, None)
            return False
        if pid not in self._quiet:
            self._quiet[pid] = _Quiet(starved(pid))
        return True

    def hung(self, pid: int, seconds: float) -> bool:
        """Whether a silence that was noticed means that the process must be ended."""
        if seconds <= self.limit:
            return False
        without = starved(pid) - self._quiet[pid].starved
        return seconds - without > self.limit or seconds > self.limit * STARVED_TIMES

    def forget(self, pid: int) -> None:
        """The process has ended."""
        self._quiet.pop(pid, None)


def starved(pid: int) -> float:
    """Seconds that the main thread of `pid` has been ready to run without a processor; 0 where the
    kernel does not say. (Documentation/scheduler/sched-stats.rst: second field, nanoseconds.)"""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
