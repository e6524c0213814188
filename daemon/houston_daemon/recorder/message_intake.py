"""From frames to messages: credentials, roles, decoding, and the record of refused attempts.

A message that cannot be decoded or is not allowed is answered at once. Refused attempts become
events of the journal, counted and spaced out so that nobody can fill the disk with them.
`message_receiver` reads the sockets.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import msgspec

from houston_daemon.recorder.identity_and_roles import NotAllowed, Peer, RoleBook
from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.recorder.message_dispatch import (
    PersonMessage,
    WorkerHeartbeats,
    WorkerMessage,
    WorkItem,
    make_denied_reply,
)
from houston_daemon.recorder.recorder_sockets import ReceivedFrames, RouterSocket
from houston_daemon.recorder.recorder_store import Store
from houston_daemon.recorder.request_checks import Refusal
from houston_shared.control_messages import Status
from houston_shared.errors import HoustonError
from houston_shared.store.event_bodies import RefusedAttempt
from houston_shared.wire import (
    ControlRequest,
    Denied,
    Heartbeats,
    Refused,
    ReportPresence,
    WorkerControl,
    control_request_decoder,
    ingest_request_decoder,
)

LOGGER = logging.getLogger("houston.recorder")
FIRST_WAIT_SECONDS = 60.0
MAX_WAIT_SECONDS = 3600.0
"""Seconds before the count of further attempts is stored."""
ATTEMPTS_CHECK_SECONDS = 0.2
"""How often is looked for what is due."""
MAX_EVENTS_PER_HOUR = 240
"""Events of this kind in an hour at most."""
MAX_TRACKED_ATTEMPTS = 500
"""Users and things that are told apart; beyond, they are counted together."""


@dataclass(slots=True)
class _AttemptCount:
    body: RefusedAttempt
    """The newest attempt."""
    unstored: int = 0
    """Attempts that no event holds yet."""
    wait: float = 0.0
    not_before: float = 0.0
    writing: int = 0
    """Of `unstored`, those in the event that is being stored."""


class AttemptCounter:
    """Counts of one recorder; belongs to its thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tried: dict[tuple[int, str], _AttemptCount] = {}
        self._hour = clock()
        self._stored = 0
        self._looked = -ATTEMPTS_CHECK_SECONDS

    def count(self, peer: Peer | None, operation: str, needs: str = "", about: str = "") -> None:
        """Count a refused attempt.

        peer: None if the kernel did not identify the sender. needs: the role that would suffice.
        about: the rollout or guidance that was meant.
        """
        uid, name = (peer.uid, peer.name) if peer else (-1, "unknown")
        key = (uid, operation)
        if key not in self._tried and len(self._tried) >= MAX_TRACKED_ATTEMPTS:
            key, uid, name = (-2, ""), -2, "others"
        body = RefusedAttempt(
            by=name,
            uid=uid,
            pid=peer.pid if peer else 0,
            role=(peer.role or "") if peer else "",
            what=operation,
            needs=needs,
            about=about[:80],
        )
        attempt = self._tried.setdefault(key, _AttemptCount(body))
        attempt.body = body
        attempt.unstored += 1

    def take_due(self, last: bool = False) -> "StoreRefusedAttempts | None":
        """Work that stores what is due; None when nothing is. With `last`, everything is."""
        now = self._clock()
        if now - self._looked < ATTEMPTS_CHECK_SECONDS and not last:
            return None
        self._looked = now
        if now - self._hour >= 3600.0:
            self._hour, self._stored = now, 0
        room = MAX_EVENTS_PER_HOUR - self._stored
        tries = [t for t in self._tried.values() if t.unstored and (last or t.not_before <= now)]
        if not tries or room <= 0:
            return None
        return StoreRefusedAttempts(self, tries[:room])

    @property
    def waiting(self) -> int:
        """Attempts that no event holds yet."""
        return sum(attempt.unstored for attempt in self._tried.values())

    def postpone(self, attempts: list[_AttemptCount]) -> None:
        """They could not be stored: they stay counted and are tried again later."""
        for attempt in attempts:
            attempt.not_before = self._clock() + FIRST_WAIT_SECONDS

    def mark_stored(self, attempts: list[_AttemptCount]) -> None:
        """They are on disk: the next events of the same kind come later."""
        now = self._clock()
        for attempt in attempts:
            quiet = not attempt.wait or now - attempt.not_before >= MAX_WAIT_SECONDS
            attempt.wait = FIRST_WAIT_SECONDS if quiet else min(MAX_WAIT_SECONDS, attempt.wait * 2)
            attempt.not_before = now + attempt.wait
            attempt.unstored -= attempt.writing
        self._stored += len(attempts)
        if len(self._tried) >= MAX_TRACKED_ATTEMPTS:
            self._tried = {key: count for key, count in self._tried.items() if count.unstored}


class StoreRefusedAttempts(WorkItem):
    """Stores counts; whoever was refused has been answered already."""

    def __init__(self, attempts: AttemptCounter, counts: list[_AttemptCount]) -> None:
        self._attempts = attempts
        self.tried = counts
        """What it stores."""
        self._done = False

    def do(self, store: Store) -> None:
        """Append an event for each."""
        for attempt in self.tried:
            attempt.writing = attempt.unstored
            body = msgspec.structs.replace(attempt.body, times=attempt.unstored)
            store.journal.append(EventKey(), "refused", body)
        self._done = True

    def refuse(self, problem: Refusal | HoustonError) -> None:
        """They stay counted and are tried again."""
        self._done = False
        self._attempts.postpone(self.tried)
        LOGGER.warning("refused attempts could not be stored yet: %s", problem)

    def answer(self, store: Store, controls: Callable[[str], WorkerControl]) -> None:
        """Nobody waits for this; what was stored is counted no more."""
        if self._done:
            self._attempts.mark_stored(self.tried)


T = TypeVar("T")


class MessageIntake:
    """Turns frames into work; says each kind of fault once in the log."""

    def __init__(self, status: Callable[[Store], Status], book: RoleBook) -> None:
        """status: what answers a question for the daemon's status. book: who may say what."""
        self._status = status
        self._role_book = book
        self.attempts = AttemptCounter()
        self._logged: set[tuple[str, str]] = set()

    def decode_worker_message(
        self, router: RouterSocket, frames: ReceivedFrames
    ) -> WorkerMessage | WorkerHeartbeats | None:
        """Work for a frame on `ingest`; None when it was refused. Workers are the daemon's user,
        or on a host that has its key."""
        fault = _explain_refused_sender(frames, frames.peer is not None and frames.peer.owner)
        message = None
        if fault:
            self.attempts.count(frames.peer, "speaking as a worker")
        else:
            message, fault = _decode_message(ingest_request_decoder.decode, frames.body)
        if isinstance(message, Heartbeats):
            return WorkerHeartbeats(router, frames, message)
        if message is not None:
            return WorkerMessage(router, frames, message)
        self._log_once("ingest", fault)
        was_removed = frames.peer is not None and frames.peer.host and not frames.peer.owner
        code: Literal["REMOVED", "INVALID"] = "REMOVED" if was_removed else "INVALID"
        router.send(frames.routing, frames.request, Refused(code=code, reason=fault))
        return None

    def decode_person_message(
        self, router: RouterSocket, frames: ReceivedFrames
    ) -> PersonMessage | None:
        """Work for a frame on `control`; None when it was denied."""
        peer = frames.peer
        fault = _explain_refused_sender(frames, peer is not None and peer.role is not None)
        message = None
        if fault:
            self.attempts.count(peer, "speaking to the daemon")
        else:
            message, fault = _decode_message(control_request_decoder.decode, frames.body)
        if message is not None and peer is not None:
            return self._check_role(router, frames, message, peer)
        self._log_once("control", fault)
        answer = Denied(cause=fault, effect="Nothing was changed.")
        router.send(frames.routing, frames.request, answer)
        return None

    def _check_role(
        self, router: RouterSocket, frames: ReceivedFrames, message: ControlRequest, peer: Peer
    ) -> PersonMessage | None:
        """Work for who has the role that the message needs."""
        problem = self._role_book.refusal(peer, message)
        if problem is None:
            return PersonMessage(router, frames, message, peer, self._status, self._note)
        if not isinstance(message, ReportPresence):  # consoles say it every few seconds
            self._note(peer, message, problem)
        router.send(frames.routing, frames.request, make_denied_reply(problem))
        return None

    def _note(self, peer: Peer, message: ControlRequest, problem: NotAllowed) -> None:
        about = str(getattr(message, "rollout", "") or getattr(message, "id", ""))
        self.attempts.count(peer, problem.what, problem.needs, about)

    def _log_once(self, socket: str, fault: str) -> None:
        kind = (socket, fault.partition(":")[0])
        if kind not in self._logged:
            self._logged.add(kind)
            LOGGER.warning("%s: %s (further ones of this kind are not logged)", socket, fault)


def _explain_refused_sender(frames: ReceivedFrames, welcome: bool) -> str:
    """Why the sender is not listened to; empty when it is."""
    if welcome:
        return ""
    if frames.peer is None:
        return "The message carries no credentials from the kernel."
    if frames.peer.host:
        return f"The host {frames.peer.host} was removed."
    return f"User {frames.peer.name} is not allowed to send messages here."


def _decode_message(decode: Callable[[bytes], T], data: bytes | None) -> tuple[T | None, str]:
    """The message, or why there is none."""
    if data is None:
        return None, "The message is malformed: it is not a request id of 8 bytes and a body."
    try:
        return decode(data), ""
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        return None, f"The message is malformed: {str(problem)[:200]}."
