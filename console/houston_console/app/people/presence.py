"""Where this console looks, as it is said to the daemon: when, and whether somebody is at it.

Said at once when another rollout is shown, soon when the step or the attention changes, and again
before a visit would end by silence. It sends nothing itself: `link` does.
"""

import time
from collections.abc import Callable

from houston_shared.wire import Present

ACTIVE_SECONDS = 60.0
"""After a key somebody is at the console for so long."""
AGAIN_SECONDS = 12.0
"""The same is said again after this time; the daemon asks for every 15 seconds."""
CHANGE_SECONDS = 5.0
"""Another step, or attention, is said this long after the last word at the soonest."""


class Presence:
    """Of one console."""

    def __init__(self, claimed: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        """claimed: as in `FromPerson`. clock: seconds."""
        self._claimed, self._clock = claimed, clock
        self._place = ("", 0)
        self._key_at: float | None = None
        self._said: Present | None = None
        self._said_at = 0.0

    def at(self, rollout: str, step: int = 0) -> None:
        """This is shown now; an empty rollout is none."""
        self._place = (rollout, step)

    def pressed(self) -> None:
        """A key was pressed."""
        self._key_at = self._clock()

    def forget(self) -> None:
        """Another daemon is there, which has not heard it."""
        self._said = None

    @property
    def message(self) -> Present:
        """How it is now."""
        active = self._key_at is not None and self._clock() - self._key_at < ACTIVE_SECONDS
        rollout, step = self._place
        return Present(rollout=rollout, step=step, active=active, claimed=self._claimed)

    def due(self) -> Present | None:
        """What should be said now."""
        now, said = self.message, self._said
        if said is None or said.rollout != now.rollout:
            return now
        waited = self._clock() - self._said_at
        return now if waited >= (CHANGE_SECONDS if now != said else AGAIN_SECONDS) else None

    def said(self, message: Present) -> None:
        """The daemon has heard it, or has refused to."""
        self._said, self._said_at = message, self._clock()
