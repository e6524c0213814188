"""Active time: how long a rollout has really worked.

Monotonic; without downtime (it starts from what was stored), pauses, a missing engine and waiting
for an evaluation slot. It knows nothing of budgets.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ActiveClock:
    """Microseconds of active time, going on from `start_us`."""

    def __init__(self, start_us: int, monotonic_ns: Callable[[], int] | None = None) -> None:
        self._now = monotonic_ns or time.monotonic_ns
        self._counted_us = start_us
        self._since = self._now()
        self._holds = 0

    def us(self) -> int:
        """Active time so far, microseconds; never less than it was before."""
        running = 0 if self._holds else (self._now() - self._since) // 1000
        return self._counted_us + running

    @property
    def seconds(self) -> float:
        """Active time so far, seconds."""
        return self.us() / 1_000_000

    def hold(self, waiting: bool) -> None:
        """Stop counting (True) or go on (False); every hold needs its own end."""
        if waiting and not self._holds:
            self._counted_us = self.us()
        self._holds += 1 if waiting else -1
        if not self._holds:
            self._since = self._now()

    @contextmanager
    def excluded(self) -> Iterator[None]:
        """Time inside is not active time; may be nested and may overlap between tasks."""
        self.hold(True)
        try:
            yield
        finally:
            self.hold(False)
