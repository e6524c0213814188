"""What this worker should do right now: guidance, pause, cancel, drain, and what each stops.

Acks, answers to heartbeats and pushes feed one state: a lost push changes nothing, the next ack
repeats it. `next` waits for the observation, `wake` also ends sleeps and waits, `interrupt` also
stops the sample in flight and the waiting of any call (docs/design.md#guidance). The decisions here
are pure; the loop carries them out.
"""

import asyncio
from collections.abc import Collection
from typing import Any, Literal

import msgspec

from houston_daemon.environments.environment_protocol import StopReason
from houston_shared.wire import WorkerControl


class ControlState:
    """The newest control state; one per worker."""

    def __init__(self, control: WorkerControl | None = None) -> None:
        self.current = control or WorkerControl()
        self._changed = asyncio.Event()
        self._drain = False

    def update(self, control: WorkerControl) -> None:
        """Take a newer state; wake all waiters if it differs."""
        if self._drain and not control.drain:  # this process was told to go; that stays
            control = msgspec.structs.replace(control, drain=True)
        if control != self.current:
            self.current = control
            self._changed.set()
            self._changed = asyncio.Event()

    def drain(self) -> None:
        """Make this process leave at the next safe point, whatever the recorder wants."""
        self._drain = True
        self.update(self.current)

    async def wait(self, tasks: Collection[asyncio.Task[Any]], seconds: float | None) -> None:
        """Return when the state has changed, a task is done, or `seconds` have passed."""
        # The event of this moment: a change before the first await below is not missed.
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait(
                {*tasks, changed}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            changed.cancel()


ExitReason = Literal["drain", "cancel", "lease", "ended"]
INTERRUPTED_NOTE = "[interrupted by a person]"
NOT_RUN_TEXT = "[not run: a person's message came first]"


class WorkerExit(Exception):
    """The worker leaves the rollout here; nothing acked is undone.

    reason: `drain` (the daemon stops), `cancel`, `lease` (a successor has the rollout), `ended`.
    """

    def __init__(self, reason: ExitReason) -> None:
        super().__init__(reason)
        self.reason: ExitReason = reason


def raise_if_exiting(control: WorkerControl) -> None:
    """Raise WorkerExit when the worker should go."""
    if control.cancel:
        raise WorkerExit("cancel")
    if control.drain:
        raise WorkerExit("drain")


def should_stop_sample(control: WorkerControl) -> bool:
    """Whether the sample in flight should be cut."""
    return control.waiting.urgency == "interrupt"


def call_stop_reason(control: WorkerControl) -> StopReason:
    """Why a running call's waiting should end; empty when it should go on."""
    urgency = control.waiting.urgency
    return urgency if urgency in ("wake", "interrupt") else ""
