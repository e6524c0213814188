"""From frames to work: credentials and decoding. What cannot be understood is answered at once."""

import logging
from collections.abc import Callable
from typing import TypeVar

import msgspec

from houston_daemon.recorder.people.attempts import Attempts
from houston_daemon.recorder.people.identity import Peer
from houston_daemon.recorder.people.roles import NotAllowed, RoleBook
from houston_daemon.recorder.sockets import Frames, Router
from houston_daemon.recorder.store import Store
from houston_daemon.recorder.work import FromPerson, FromWorker, Work, denied
from houston_shared.wire import (
    ControlRequest,
    Denied,
    Present,
    Refused,
    control_request,
    ingest_request,
)
from houston_shared.wire_status import Status

LOGGER = logging.getLogger("houston.recorder")
T = TypeVar("T")


class Intake:
    """Turns frames into work; says each kind of fault once in the log."""

    def __init__(self, status: Callable[[Store], Status], book: RoleBook) -> None:
        """status: what answers a question for the daemon's status. book: who may say what."""
        self._status = status
        self._book = book
        self.attempts = Attempts()
        self._complained: set[tuple[str, str]] = set()

    def from_worker(self, router: Router, frames: Frames) -> FromWorker | None:
        """Work for a frame on `ingest`; None when it was refused. Workers are the daemon's user."""
        fault = _stranger(frames, frames.peer is not None and frames.peer.owner)
        message = None
        if fault:
            self.attempts.note(frames.peer, "speaking as a worker")
        else:
            message, fault = _decode(ingest_request, frames.body)
        if message is not None:
            return FromWorker(router, frames, message)
        self._complain("ingest", fault)
        router.send(frames.routing, frames.request, Refused(code="INVALID", reason=fault))
        return None

    def from_person(self, router: Router, frames: Frames) -> FromPerson | None:
        """Work for a frame on `control`; None when it was denied."""
        peer = frames.peer
        fault = _stranger(frames, peer is not None and peer.role is not None)
        message = None
        if fault:
            self.attempts.note(peer, "speaking to the daemon")
        else:
            message, fault = _decode(control_request, frames.body)
        if message is not None and peer is not None:
            return self._admitted(router, frames, message, peer)
        self._complain("control", fault)
        answer = Denied(cause=fault, effect="Nothing was changed.")
        router.send(frames.routing, frames.request, answer)
        return None

    def refused(self, last: bool = False) -> list[Work]:
        """Work that stores refused attempts which are due; with `last`, all there are."""
        work = self.attempts.due(last)
        return [work] if work else []

    def _admitted(
        self, router: Router, frames: Frames, message: ControlRequest, peer: Peer
    ) -> FromPerson | None:
        """Work for who has the role that the message needs."""
        problem = self._book.refusal(peer, message)
        if problem is None:
            return FromPerson(router, frames, message, peer, self._status, self._note)
        if not isinstance(message, Present):  # consoles say it every few seconds
            self._note(peer, message, problem)
        router.send(frames.routing, frames.request, denied(problem))
        return None

    def _note(self, peer: Peer, message: ControlRequest, problem: NotAllowed) -> None:
        about = str(getattr(message, "rollout", "") or getattr(message, "id", ""))
        self.attempts.note(peer, problem.what, problem.needs, about)

    def _complain(self, socket: str, fault: str) -> None:
        kind = (socket, fault.partition(":")[0])
        if kind not in self._complained:
            self._complained.add(kind)
            LOGGER.warning("%s: %s (further ones of this kind are not logged)", socket, fault)


def _stranger(frames: Frames, welcome: bool) -> str:
    """Why the sender is not listened to; empty when it is."""
    if welcome:
        return ""
    if frames.peer is None:
        return "The message has no credentials of the kernel."
    return f"User {frames.peer.name} may not speak here."


def _decode(decoder: "msgspec.msgpack.Decoder[T]", data: bytes | None) -> tuple[T | None, str]:
    """The message, or why there is none."""
    if data is None:
        return None, "The message is malformed: it is not a request id of 8 bytes and a body."
    try:
        return decoder.decode(data), ""
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        return None, f"The message is malformed: {str(problem)[:200]}."
