"""What is wanted of this worker right now, and waking up whoever waits for a change.

Acks, heartbeats' answers and pushes feed the same state: a lost push changes nothing, the next ack
repeats it. What follows from the state is decided in `guidance`.
"""

import asyncio
from collections.abc import Collection
from typing import Any

from houston_shared.wire import Control


class ControlState:
    """The newest control state; one per worker."""

    def __init__(self, control: Control | None = None) -> None:
        self.now = control or Control()
        self._changed = asyncio.Event()
        self._drain = False

    def update(self, control: Control) -> None:
        """Take a newer state; wakes all who wait when it differs."""
        if self._drain and not control.drain:  # this process was told to go; that stays
            control = Control(
                waiting=control.waiting, pause=control.pause, cancel=control.cancel, drain=True
            )
        if control != self.now:
            self.now = control
            self._changed.set()
            self._changed = asyncio.Event()

    def drain(self) -> None:
        """This process is to leave at the next safe point, whatever the recorder wants."""
        self._drain = True
        self.update(self.now)

    async def wait(self, tasks: Collection[asyncio.Task[Any]], seconds: float | None) -> None:
        """Return when the state differs from now, a task is done, or `seconds` have passed."""
        # The event of this moment: a change before the first await below is not missed.
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait(
                {*tasks, changed}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            changed.cancel()
