"""Active time: how long a rollout has really worked.

Monotonic; without downtime (it starts from what was stored), pauses, a missing engine, waiting for
an evaluation slot or for the recorder, and without time in which this process was stopped or its
machine slept. It knows nothing of budgets.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TICK_SECONDS = 1.0
STOPPED_NS = 3_000_000_000
"""Nobody counted for longer than this although somebody should every second: nothing ran."""


class ActiveClock:
    """Microseconds of active time, going on from `start_us`."""

    def __init__(self, start_us: int, monotonic_ns: Callable[[], int] | None = None) -> None:
        self._now = monotonic_ns or time.monotonic_ns
        self._counted_ns = start_us * 1000
        self._since = self._now()
        self._used = time.process_time_ns()
        self._holds = 0
        self._watched = False

    def us(self) -> int:
        """Active time so far, microseconds; never less than it was before."""
        self._count()
        return self._counted_ns // 1000

    @property
    def seconds(self) -> float:
        """Active time so far, seconds."""
        return self.us() / 1_000_000

    async def watch(self) -> None:
        """Count every second until cancelled; from now on a long gap is a stop, not work."""
        self._count()
        self._watched = True
        try:
            while True:
                await asyncio.sleep(TICK_SECONDS)
                self._count()
        finally:
            self._watched = False

    def hold(self, waiting: bool) -> None:
        """Stop counting (True) or go on (False); every hold needs its own end."""
        self._count()
        self._holds += 1 if waiting else -1

    @contextmanager
    def excluded(self) -> Iterator[None]:
        """Time inside is not active time; may be nested and may overlap between tasks."""
        self.hold(True)
        try:
            yield
        finally:
            self.hold(False)

    def _count(self) -> None:
        """Add what has passed since the last time; of a gap only what this process computed in it,
        so that one that was busy and one that was stopped are told apart."""
        now, used = self._now(), time.process_time_ns()
        passed = now - self._since
        if self._watched and passed > STOPPED_NS:
            passed = min(passed, used - self._used)
        if not self._holds:
            self._counted_ns += passed
        self._since, self._used = now, used
