"""The daemon as the console sees it: whether it runs, what is sent to it, and who is present.

`DaemonLink` looks at the lock of the home once a second, sends unsent guidance when the daemon is
back (under the same ids, so nothing is doubled) and reports where this person is looking
(`PresenceReport`). The functions at the end ask for one change each: pause, resume, cancel,
withdraw, reorder, edit. It stores nothing; drafts and unsent messages are in
`panes.guidance_messages`.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Literal

from houston_console.app.console_state import DaemonLinkState
from houston_console.panes.guidance_messages import (
    GuidanceDraft,
    GuidanceEntry,
    GuidanceOutbox,
    UnsentMessage,
)
from houston_shared.async_control_client import AsyncControlClient
from houston_shared.control_messages import ReorderGuidance, Status
from houston_shared.errors import DaemonNotRunning, ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.home_lock import find_running_daemon
from houston_shared.wire import (
    AskStatus,
    ControlRequest,
    EditGuidance,
    Guide,
    ReportPresence,
    RequestStored,
    Steer,
    WithdrawGuidance,
)

ACTIVE_AFTER_KEY_SECONDS = 60.0
"""After a key somebody is at the console for so long."""
REPEAT_PRESENCE_SECONDS = 12.0
"""The same is said again after this time; the daemon asks for every 15 seconds."""
MIN_PRESENCE_INTERVAL_SECONDS = 5.0
"""Another step, or attention, is said this long after the last word at the soonest."""


class PresenceReport:
    """Of one console."""

    def __init__(self, claimed: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        """claimed: as in `FromPerson`. clock: seconds."""
        self._claimed, self._clock = claimed, clock
        self._place = ("", 0)
        self._key_at: float | None = None
        self._said: ReportPresence | None = None
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
    def message(self) -> ReportPresence:
        """How it is now."""
        active = (
            self._key_at is not None and self._clock() - self._key_at < ACTIVE_AFTER_KEY_SECONDS
        )
        rollout, step = self._place
        return ReportPresence(rollout=rollout, step=step, active=active, claimed=self._claimed)

    def due(self) -> ReportPresence | None:
        """What should be said now."""
        now, said = self.message, self._said
        if said is None or said.rollout != now.rollout:
            return now
        waited = self._clock() - self._said_at
        return (
            now
            if waited >= (MIN_PRESENCE_INTERVAL_SECONDS if now != said else REPEAT_PRESENCE_SECONDS)
            else None
        )

    def said(self, message: ReportPresence) -> None:
        """The daemon has heard it, or has refused to."""
        self._said, self._said_at = message, self._clock()


LOCK_POLL_SECONDS = 1.0
STATUS_INTERVAL_SECONDS = 15.0
"""How often a daemon that answered is asked again."""
GOODBYE_TIMEOUT_SECONDS = 1.0
"""How long leaving waits until the daemon has heard it."""


class DaemonLink:
    """One console's connection to one daemon."""

    def __init__(
        self,
        home: Home,
        outbox: GuidanceOutbox,
        moved: Callable[[DaemonLinkState, str], None],
        claimed: str = "",
    ) -> None:
        """moved: told when the state changes, or messages were sent. claimed: see `FromPerson`."""
        self.state: DaemonLinkState = "reconnecting"
        self.claimed = claimed
        self.home = home
        self._outbox = outbox
        self._moved = moved
        self._client: AsyncControlClient | None = None
        self._asked = 0.0
        self.presence = PresenceReport(claimed)
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
                await asyncio.wait_for(self._nudged.wait(), LOCK_POLL_SECONDS)
            except TimeoutError:
                continue

    async def look(self) -> None:
        """See how the daemon stands now, and send what waits."""
        try:
            owner = find_running_daemon(self.home)
        except HoustonError as problem:
            self._become("down", problem.cause)
            return
        if owner is None:
            self._asked = 0.0
            self._become("down", "")
        elif self.state != "live" or time.monotonic() - self._asked > STATUS_INTERVAL_SECONDS:
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

    def _become(self, state: DaemonLinkState, reason: str) -> None:
        if state != self.state:
            self.state = state
            self.presence.forget()
            self._moved(state, reason)

    async def ask(
        self, message: ControlRequest, timeout: float | None = None
    ) -> RequestStored | Status:
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

    async def _send(self, message: UnsentMessage) -> bool:
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
                await self.ask(self.presence.message, GOODBYE_TIMEOUT_SECONDS)
            except HoustonError:  # it went meanwhile: silence ends the visit as well
                self.state = "down"
        if self._client is not None:
            await self._client.close()


SteeringAction = Literal["pause", "resume", "cancel"]
STEERING_NOTICES: dict[SteeringAction, str] = {
    "pause": "Paused: the agent stops after the step it is in.",
    "resume": "Resumed.",
    "cancel": "Cancelled.",
}


async def steer_rollout(
    link: DaemonLink, rollout: str, action: SteeringAction, undoes: int = 0, reason: str = ""
) -> int:
    """Pause, resume or cancel; returns the event that says it. Raises HoustonError.

    undoes: the event of one's own that this takes back.
    """
    message = Steer(
        rollout=rollout, action=action, reason=reason, undoes=undoes, claimed=link.claimed
    )
    return getattr(await link.ask(message), "seq", 0)


async def withdraw_guidance(link: DaemonLink, entry: GuidanceEntry) -> str:
    """Take queued guidance back; returns what to say. Raises HoustonError."""
    await link.ask(WithdrawGuidance(id=entry.id, claimed=link.claimed))
    return "Withdrawn: the agent will not hear it."


async def reorder_guidance(
    link: DaemonLink, rollout: str, seen: tuple[str, ...], order: tuple[str, ...]
) -> str:
    """Have what waits heard in another order; returns what to say. Raises HoustonError."""
    await link.ask(ReorderGuidance(rollout=rollout, order=order, seen=seen, claimed=link.claimed))
    return "Moved: the agent hears what waits in this order."


async def edit_guidance(link: DaemonLink, draft: GuidanceDraft) -> str:
    """Change queued guidance to what the draft says. Raises HoustonError."""
    message = EditGuidance(
        id=draft.edits, revision=draft.revision, text=draft.text, claimed=link.claimed
    )
    await link.ask(message)
    return "Changed: the agent will hear the new words."
