"""How many evaluations of one task run at once on a host: one lock file for each slot.

A lock is the kernel's (flock), so that it ends with the process that holds it, however that ends.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from houston_daemon.environments.protocol import WaitingForSlot

_PAUSES = (0.02, 0.1, 0.3, 0.5)


class Slots:
    """The evaluation slots of one task under one host root."""

    def __init__(
        self, root: Path, task: str, count: int, waiting: WaitingForSlot | None = None
    ) -> None:
        folder = root / "evaluation-slots"
        self._files = [folder / f"{task}.{number}" for number in range(1, count + 1)]
        self._waiting = waiting

    @contextlib.asynccontextmanager
    async def slot(self, given_up: Callable[[], bool]) -> AsyncIterator[bool]:
        """Hold a slot inside the block; yields False when `given_up` came true before one was free.

        While it waits, and only then, `waiting` is told: that time is not active time.
        """
        held = self._take()
        if held is None:
            held = await self._wait(given_up)
        try:
            yield held is not None
        finally:
            if held is not None:
                os.close(held)

    async def _wait(self, given_up: Callable[[], bool]) -> int | None:
        self._tell(True)
        try:
            attempt = 0
            while not given_up():
                held = self._take()
                if held is not None:
                    return held
                await asyncio.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
                attempt += 1
            return None
        finally:
            self._tell(False)

    def _tell(self, waiting: bool) -> None:
        if self._waiting is not None:
            self._waiting(waiting)

    def _take(self) -> int | None:
        for path in self._files:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
            else:
                return descriptor
        return None
