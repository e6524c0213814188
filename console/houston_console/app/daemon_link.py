"""The daemon as the console sees it: whether it runs, what is sent to it, and who is present.

`DaemonLink` looks at the lock of the home once a second, sends unsent guidance when the daemon is
back (under the same ids, so nothing is doubled) and reports where this person is looking
(`PresenceReport`). The functions at the end ask for one change each: pause, resume, cancel,
withdraw, reorder, edit. It stores nothing; drafts and unsent messages are in
`panes.guidance_outbox`.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Literal

from houston_console.app.console_state import DaemonLinkState
from houston_console.panes.guidance_outbox import (
    GuidanceDraft,
    GuidanceEntry,
    GuidanceOutbox,
    UnsentMessage,
)
from houston_shared.async_control_client import AsyncControlClient
from houston_shared.control_messages import RejectDraft, ReorderGuidance, Status
from houston_shared.errors import DaemonNotRunning, ExitCode, HoustonError, UnknownAnswer
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
    """What one console tells the daemon about where its person looks."""

    def __init__(self, claimed: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        """claimed: as in `FromPerson`. clock: seconds."""
        self._claimed, self._clock = claimed, clock
        self._location = ("", 0)
        self._key_pressed_at: float | None = None
        self._sent: ReportPresence | None = None
        self._sent_at = 0.0

    def set_location(self, rollout: str, step: int = 0) -> None:
        """Note what is shown now. rollout: empty for none."""
        self._location = (rollout, step)

    def note_key(self) -> None:
        """Note that a key was pressed."""
        self._key_pressed_at = self._clock()

    def forget_sent(self) -> None:
        """Another daemon is there, which has not heard it."""
        self._sent = None

    @property
    def current(self) -> ReportPresence:
        """The message as it would be sent now."""
        active = (
            self._key_pressed_at is not None
            and self._clock() - self._key_pressed_at < ACTIVE_AFTER_KEY_SECONDS
        )
        rollout, step = self._location
        return ReportPresence(rollout=rollout, step=step, active=active, claimed=self._claimed)

    def due_message(self) -> ReportPresence | None:
        """The message to send now; None when none is due."""
        now, last = self.current, self._sent
        if last is None or last.rollout != now.rollout:
            return now
        waited = self._clock() - self._sent_at
        if waited >= (MIN_PRESENCE_INTERVAL_SECONDS if now != last else REPEAT_PRESENCE_SECONDS):
            return now
        return None

    def mark_sent(self, message: ReportPresence) -> None:
        """Note that the daemon took the message, or refused it."""
        self._sent, self._sent_at = message, self._clock()


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
        configuration: str = "",
    ) -> None:
        """moved: told when the state changes, or messages were sent. claimed: see `FromPerson`.
        configuration: the console's file, for commands that it runs; empty where it has none."""
        self.state: DaemonLinkState = "reconnecting"
        self.claimed = claimed
        self.home = home
        self.configuration = configuration
        self.outbox = outbox
        self._on_change = moved
        self._client: AsyncControlClient | None = None
        self._status_asked_at = 0.0
        self.presence = PresenceReport(claimed)
        self.unseen_reason = ""
        """Why others do not see that this console is here; empty when they do."""
        self._send_lock = asyncio.Lock()
        self._wake_event = asyncio.Event()

    async def run(self) -> None:
        """Watch the daemon until cancelled."""
        while True:
            self._wake_event.clear()
            await self.check_daemon()
            try:
                await asyncio.wait_for(self._wake_event.wait(), LOCK_POLL_SECONDS)
            except TimeoutError:
                continue

    async def check_daemon(self) -> None:
        """See how the daemon stands now, and send what waits."""
        try:
            owner = find_running_daemon(self.home)
        except HoustonError as problem:
            self._set_state("down", problem.cause)
            return
        if owner is None:
            self._status_asked_at = 0.0
            self._set_state("down", "")
        elif (
            self.state != "live"
            or time.monotonic() - self._status_asked_at > STATUS_INTERVAL_SECONDS
        ):
            await self._ask_status()
        if self.state == "live":
            await self._report_presence()
            await self.send_unsent()

    async def _ask_status(self) -> None:
        try:
            await self.ask(AskStatus(claimed=self.claimed), 2.0)
            self._status_asked_at = time.monotonic()
            self._set_state("live", "")
        except DaemonNotRunning:
            self._set_state("down", "")
        except UnknownAnswer as problem:
            self._set_state("foreign", problem.cause)
        except HoustonError as problem:
            self._set_state("reconnecting", problem.cause)

    async def _report_presence(self) -> None:
        """Say where this console looks; a viewer, who may not, reads on without being seen."""
        message = self.presence.due_message()
        if message is None:
            return
        try:
            await self.ask(message, 2.0)
            self.unseen_reason = ""
        except DaemonNotRunning:
            self._set_state("down", "")
            return
        except UnknownAnswer as problem:
            self._set_state("foreign", problem.cause)
            return
        except HoustonError as problem:
            if problem.code not in (ExitCode.FAILED, ExitCode.NOT_FOUND):
                self._set_state("reconnecting", problem.cause)
                return
            self.unseen_reason = problem.cause
        self.presence.mark_sent(message)

    def _set_state(self, state: DaemonLinkState, reason: str) -> None:
        if state != self.state:
            self.state = state
            self.presence.forget_sent()
            self._on_change(state, reason)

    async def ask(
        self, message: ControlRequest, timeout: float | None = None
    ) -> RequestStored | Status:
        """Tell or ask the daemon something; raises HoustonError."""
        self._client = self._client or AsyncControlClient(self.home)
        return await self._client.ask(message, timeout)

    def set_location(self, rollout: str, step: int = 0) -> None:
        """This console shows `rollout` from now on (none when empty): others see it."""
        if rollout != self.presence.current.rollout:
            self._wake_event.set()
        self.presence.set_location(rollout, step)

    async def send_unsent(self) -> None:
        """Send everything that was not acknowledged, in the order it was written."""
        async with self._send_lock:
            for message in self.outbox.unsent():
                if not message.refused and not await self._send(message):
                    return

    async def _send(self, message: UnsentMessage) -> bool:
        guide = Guide(
            id=message.id,
            rollout=message.rollout,
            text=message.text,
            mode=message.mode,
            draft=message.critic_draft,
            claimed=self.claimed,
        )
        try:
            await self.ask(guide)
        except DaemonNotRunning:
            self._set_state("down", "")
            return False
        except UnknownAnswer as problem:
            self._set_state("foreign", problem.cause)
            return False
        except HoustonError as problem:
            if problem.code == ExitCode.BUSY:
                self._set_state("reconnecting", problem.cause)
                return False
            self.outbox.refuse(message, str(problem))
        else:
            self.outbox.remove(message.id)
        self._on_change(self.state, "")
        return True

    async def close(self) -> None:
        """Say that nobody looks any more, and let the connection go."""
        self.presence.set_location("")
        if self.state == "live" and self.presence.due_message() is not None:
            try:
                await self.ask(self.presence.current, GOODBYE_TIMEOUT_SECONDS)
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
    link: DaemonLink, rollout: str, before: tuple[str, ...], order: tuple[str, ...]
) -> str:
    """Have what waits heard in another order; returns what to say. Raises HoustonError."""
    await link.ask(ReorderGuidance(rollout=rollout, order=order, seen=before, claimed=link.claimed))
    return "Moved: the agent hears what waits in this order."


async def reject_draft(link: DaemonLink, id: str) -> str:
    """Turn a critic's draft down; words for the person. Raises HoustonError."""
    await link.ask(RejectDraft(id=id, claimed=link.claimed))
    return "Turned down: the agent hears nothing of it."


async def edit_guidance(link: DaemonLink, draft: GuidanceDraft) -> str:
    """Change queued guidance to what the draft says. Raises HoustonError."""
    message = EditGuidance(
        id=draft.edits, revision=draft.revision, text=draft.text, claimed=link.claimed
    )
    await link.ask(message)
    return "Changed: the agent will hear the new words."
