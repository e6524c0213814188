"""From frames to work: credentials and decoding. What cannot be understood is answered at once."""

import logging
from collections.abc import Callable
from typing import TypeVar

import msgspec

from houston_daemon.recorder.sockets import Frames, Router
from houston_daemon.recorder.store import Store
from houston_daemon.recorder.work import FromPerson, FromWorker
from houston_shared.wire import Denied, Refused, Status, control_request, ingest_request

LOGGER = logging.getLogger("houston.recorder")
T = TypeVar("T")


class Intake:
    """Turns frames into work; says each kind of fault once in the log."""

    def __init__(self, status: Callable[[Store], Status]) -> None:
        """status: what answers a question for the daemon's status."""
        self._status = status
        self._complained: set[tuple[str, str]] = set()

    def from_worker(self, router: Router, frames: Frames) -> FromWorker | None:
        """Work for a frame on `ingest`; None when it was refused. Workers are the daemon's user."""
        fault = _stranger(frames, frames.peer is not None and frames.peer.owner)
        message = None
        if not fault:
            message, fault = _decode(ingest_request, frames.body)
        if message is not None:
            return FromWorker(router, frames, message)
        self._complain("ingest", fault)
        router.send(frames.routing, frames.request, Refused(code="INVALID", reason=fault))
        return None

    def from_person(self, router: Router, frames: Frames) -> FromPerson | None:
        """Work for a frame on `control`; None when it was denied."""
        peer = frames.peer
        fault = _stranger(frames, peer is not None and (peer.owner or peer.member))
        message = None
        if not fault:
            message, fault = _decode(control_request, frames.body)
        if message is not None and peer is not None:
            return FromPerson(router, frames, message, peer, self._status)
        self._complain("control", fault)
        denied = Denied(cause=fault, effect="Nothing was changed.")
        router.send(frames.routing, frames.request, denied)
        return None

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
