"""The daemon as the console sees it: whether it is there, and what people tell it.

Whether a daemon runs is read from the lock of the home, once a second. When it comes back, what was
not sent is sent, under the ids it was written with, so that nothing is doubled.
"""

import asyncio
import time
from collections.abc import Callable

from houston_console.app.people.presence import Presence
from houston_console.app.speaking.outbox import Outbox, Unsent
from houston_console.app.state import LinkState
from houston_shared.control_async import AsyncControlClient
from houston_shared.errors import DaemonNotRunning, ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.lock import holder
from houston_shared.wire import AskStatus, ControlRequest, Done, Guide
from houston_shared.wire_status import Status

LOOK_SECONDS = 1.0
ASK_SECONDS = 15.0
"""How often a daemon that answered is asked again."""
LEAVE_SECONDS = 1.0
"""How long leaving waits until the daemon has heard it."""


class Link:
    """One console's connection to one daemon."""

    def __init__(
        self, home: Home, outbox: Outbox, moved: Callable[[LinkState, str], None], claimed: str = ""
    ) -> None:
        """moved: told when the state changes, or messages were sent. claimed: see `FromPerson`."""
        self.state: LinkState = "reconnecting"
        self.claimed = claimed
        self.home = home
        self._outbox = outbox
        self._moved = moved
        self._client: AsyncControlClient | None = None
        self._asked = 0.0
        self.presence = Presence(claimed)
        self.unseen = ""
        """Why others do not see that this console is here; empty when they do."""
        self._sending = asyncio.Lock()
        self._nudged = asyncio.Event()

    async def run(self) -> None:
        """Watch the daemon, for ever."""
        while True:
            self._nudged.clear()
            await self.look()
            try:
                await asyncio.wait_for(self._nudged.wait(), LOOK_SECONDS)
            except TimeoutError:
                continue

    async def look(self) -> None:
        """See how the daemon stands now, and send what waits."""
        try:
            owner = holder(self.home)
        except HoustonError as problem:
            self._become("down", problem.cause)
            return
        if owner is None:
            self._asked = 0.0
            self._become("down", "")
        elif self.state != "live" or time.monotonic() - self._asked > ASK_SECONDS:
            await self._ask_status()
        if self.state == "live":
            await self._be_present()
            await self.send_waiting()

    async def _ask_status(self) -> None:
        try:
            await self.ask(AskStatus(claimed=self.claimed), 2.0)
            self._asked = time.monotonic()
            self._become("live", "")
        except DaemonNotRunning:
            self._become("down", "")
        except HoustonError as problem:
            self._become("reconnecting", problem.cause)

    async def _be_present(self) -> None:
        """Say where this console looks; a viewer, who may not, reads on without being seen."""
        message = self.presence.due()
        if message is None:
            return
        try:
            await self.ask(message, 2.0)
            self.unseen = ""
        except DaemonNotRunning:
            self._become("down", "")
            return
        except HoustonError as problem:
            if problem.code != ExitCode.FAILED:
                self._become("reconnecting", problem.cause)
                return
            self.unseen = problem.cause
        self.presence.said(message)

    def _become(self, state: LinkState, reason: str) -> None:
        if state != self.state:
            self.state = state
            self.presence.forget()
            self._moved(state, reason)

    async def ask(self, message: ControlRequest, timeout: float | None = None) -> Done | Status:
        """Tell or ask the daemon something; raises HoustonError."""
        self._client = self._client or AsyncControlClient(self.home)
        return await self._client.ask(message, timeout)

    def look_at(self, rollout: str, step: int = 0) -> None:
        """This console shows `rollout` from now on (none when empty): others see it."""
        if rollout != self.presence.message.rollout:
            self._nudged.set()
        self.presence.at(rollout, step)

    async def send_waiting(self) -> None:
        """Send everything that was not acknowledged, in the order it was written."""
        async with self._sending:
            for message in self._outbox.unsent():
                if not message.refused and not await self._send(message):
                    return

    async def _send(self, message: Unsent) -> bool:
        guide = Guide(
            id=message.id,
            rollout=message.rollout,
            text=message.text,
            mode=message.mode,
            claimed=self.claimed,
        )
        try:
            await self.ask(guide)
        except DaemonNotRunning:
            self._become("down", "")
            return False
        except HoustonError as problem:
            if problem.code == ExitCode.BUSY:
                self._become("reconnecting", problem.cause)
                return False
            self._outbox.refuse(message, str(problem))
        else:
            self._outbox.done(message.id)
        self._moved(self.state, "")
        return True

    async def close(self) -> None:
        """Say that nobody looks any more, and let the connection go."""
        self.presence.at("")
        if self.state == "live" and self.presence.due() is not None:
            try:
                await self.ask(self.presence.message, LEAVE_SECONDS)
            except HoustonError:  # it went meanwhile: silence ends the visit as well
                self.state = "down"
        if self._client is not None:
            await self._client.close()
