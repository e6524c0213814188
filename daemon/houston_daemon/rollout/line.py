"""What a worker says of its rollout: every message with its lease and its active time.

Also the heartbeat, which goes on whatever tools and engines do.
"""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from houston_daemon.rollout.clock import ActiveClock
from houston_daemon.rollout.control import ControlState
from houston_daemon.rollout.guidance import leave
from houston_daemon.rollout.ingest_client import IngestClient
from houston_shared import wire
from houston_shared.faults import point
from houston_shared.records import STANDS, StepRecord
from houston_shared.secret_values import redact

BEAT_SECONDS = 1.0
FRESH_SECONDS = 3.0
"""A lease that was valid longer ago proves nothing: this process may have been stopped since."""


class Line:
    """The rollout's line to the recorder."""

    def __init__(
        self,
        client: IngestClient,
        control: ControlState,
        clock: ActiveClock,
        rollout: str,
        lease: int,
    ) -> None:
        self.control = control
        self.clock = clock
        self.rollout = rollout
        self.activity = ""
        """What the worker does now, a few words; shown to people."""
        self._client = client
        self.lease = lease

    async def store(self, kind: type[wire.FromWorker], **fields: Any) -> wire.Ack:
        """Say one thing and return when it is on disk; waiting for that is no active time.

        Raises as `IngestClient.ask` does.
        """
        message = kind(rollout=self.rollout, lease=self.lease, active_us=self.clock.us(), **fields)
        with self.clock.excluded():
            return await self._client.ask(message, wire.Ack)

    async def steps(self, first: int) -> list[StepRecord]:
        """All steps of the journal from number `first` on, the open one last."""
        found: list[StepRecord] = []
        while True:
            message = wire.ReadSteps(
                rollout=self.rollout, lease=self.lease, active_us=self.clock.us(), step=first
            )
            with self.clock.excluded():
                page = await self._client.ask(message, wire.Steps)
            found += page.steps
            if not page.more or not page.steps:
                return found
            first = page.steps[-1].step + 1

    async def beat(self) -> None:
        """A heartbeat every second until cancelled; raises Leaving when the lease is old."""
        while True:
            point("worker.beat.before")
            await self._client.ask(self._heartbeat(), wire.Ack)  # the rollout works meanwhile
            await asyncio.sleep(BEAT_SECONDS)

    async def still_mine(self) -> None:
        """Before an act: ask again where the last proof is old. Raises Leaving for an old lease.

        A worker that was stopped behind an ack would act beside its successor when it goes on.
        """
        if time.monotonic() - self._client.valid_at > FRESH_SECONDS:
            await self.tell()

    async def tell(self) -> None:
        """One heartbeat that is waited for. Raises as `store` does."""
        with self.clock.excluded():
            await self._client.ask(self._heartbeat(), wire.Ack)

    def _heartbeat(self) -> wire.Heartbeat:
        waiting = self._client.kept_waiting
        return wire.Heartbeat(
            rollout=self.rollout,
            lease=self.lease,
            active_us=self.clock.us(),
            activity=f"waiting: {waiting}" if waiting else redact(self.activity),
        )

    async def safe_point(self) -> None:
        """Nothing is under way: leave here when wanted, wait here while paused."""
        leave(self.control.now)
        if not self.control.now.pause:
            return
        point("worker.pause.before")
        self.activity = STANDS
        with self.clock.excluded():
            while self.control.now.pause:
                await self.control.wait((), None)
                leave(self.control.now)
        self.activity = ""  # a heartbeat before the next thing it does must not say it stands

    async def standing(self, until: Coroutine[Any, Any, None], activity: str = STANDS) -> None:
        """Wait for `until` at a safe point, while paused; leave here when wanted."""
        self.activity = activity
        waiting = asyncio.create_task(until)
        try:
            with self.clock.excluded():
                while self.control.now.pause and not waiting.done():
                    leave(self.control.now)
                    await self.control.wait((waiting,), None)
        finally:
            waiting.cancel()
        self.activity = ""
