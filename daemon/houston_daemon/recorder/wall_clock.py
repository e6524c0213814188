"""Notices when the wall clock was set: by a person, by a time service, by a suspended machine.

Nothing goes by the wall clock: events are ordered by sequence, waiting is monotonic. But people
read times, so a jump is an event of the journal and a line of the log.
"""

import logging
import time

from houston_daemon.recorder.steps.journal import Key
from houston_daemon.recorder.store import Store
from houston_shared.clock import now_us
from houston_shared.store.bodies import ClockJumped

LOGGER = logging.getLogger("houston.recorder")
JUMP_SECONDS = 2.0
"""A time service that slews a clock changes it by far less between two looks."""

LULL_SECONDS = 0.1
"""Between the readings of both clocks at most."""


class WallClock:
    """Compares both clocks; `look` often, from one thread."""

    def __init__(self) -> None:
        self._offset = _offset()

    def look(self) -> float:
        """Seconds that the wall clock jumped since the last look; 0 when it did not."""
        before, self._offset = self._offset, _offset()
        jumped = self._offset - before
        return jumped if abs(jumped) > JUMP_SECONDS else 0.0


def note(store: Store, seconds: float) -> None:
    """Store a jump, inside the open transaction."""
    LOGGER.warning("clock jumped: %+.1f s", seconds)
    store.journal.append(Key(), "jumped", ClockJumped(seconds=round(seconds, 3)))


def _offset() -> float:
    """How far the clocks are apart; read again when this process was stopped in between."""
    while True:
        begun = time.monotonic_ns() / 1e9
        wall, after = now_us() / 1e6, time.monotonic_ns() / 1e9
        if after - begun < LULL_SECONDS:
            return wall - begun
