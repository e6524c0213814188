"""What every connection to the daemon does the same: where it connects, and when nobody answers.

Whether a daemon runs is read from the lock of the home, never guessed from a long silence. It knows
frames and sentences; `control_client` and `control_async` wait for answers.
"""

import time
from typing import TYPE_CHECKING, Any

import zmq

from houston_shared import wire
from houston_shared.errors import (
    AnswerLost,
    DaemonNotRunning,
    ExitCode,
    Frozen,
    HoustonError,
    NoAnswer,
)
from houston_shared.home import Home
from houston_shared.lock import Owner, holder
from houston_shared.standing import stands, stopped
from houston_shared.wire import ControlRequest, Denied, Done
from houston_shared.wire_status import Status

if TYPE_CHECKING:
    import zmq.asyncio

TIMEOUT_SECONDS = 10.0
"""How long an answer may take before the client says that none came."""
SLICE_SECONDS = 0.2
"""Between two looks at whether the daemon that was asked is still there."""
LOOK_SECONDS = 0.02
"""Between two looks for a socket that is not there yet."""
_FROZEN_SECONDS = 1.0
"""How long a daemon that a signal has stopped may take to be let go on."""


def close(socket: "zmq.Socket[Any]", context: "zmq.Context[Any]") -> None:
    """Close both, asked or when nobody holds their owner any more.

    A forgotten socket would otherwise hang the collector, which ends a context by waiting for it.
    """
    socket.close(linger=0)
    context.term()


def reach(socket: "zmq.Socket[bytes] | zmq.asyncio.Socket", home: Home, before: str) -> str:
    """Connect to where `control` is now, if that is not where it was; returns where it is."""
    now = home.socket("control")
    if now != before:
        if before:
            socket.disconnect(before)
        socket.connect(now)
    return now


def prepare(socket: "zmq.Socket[bytes] | zmq.asyncio.Socket") -> None:
    """Set the limits of a socket before it connects."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, wire.FRAME_LIMIT)
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)


def wait_for_daemon(home: Home, end: float, seconds: float) -> None:
    """Raise when nobody is there to wait for, or when it took too long; nothing was sent yet."""
    must_run(home)
    if time.monotonic() > end:
        raise no_answer(home, seconds)


def must_run(home: Home, asked: bool = False) -> Owner:
    """The daemon that holds the home; raises DaemonNotRunning without one.

    asked: whether it was told something already; then AnswerLost is raised.
    """
    owner = holder(home)
    if owner is not None:
        return owner
    cause = f"No daemon runs on {home.path}."
    if asked:
        raise AnswerLost(cause, "It ended before it answered.")
    raise DaemonNotRunning(cause)


def may_answer(home: Home, waited: float) -> None:
    """Raise where the answer to a question `waited` seconds old will not come."""
    owner = must_run(home, asked=True)
    if waited > _FROZEN_SECONDS and stopped(owner.pid):
        raise no_answer(home, waited)


def no_answer(home: Home, seconds: float) -> NoAnswer:
    """What is said after a silence of so many seconds, with its reason where that can be seen."""
    owner = holder(home)
    pid = owner.pid if owner else 0
    who = f"The daemon (pid {pid})" if pid else "The daemon"
    said = f"{who} did not answer in {round(seconds, 1):g} s"
    asked = "Whether it did what was asked is not known."
    if stopped(pid):
        return Frozen(f"{said}: {stands(pid)}.", asked, f"kill -CONT {pid}", ExitCode.BUSY)
    socket = home.run / "control.sock"
    if not socket.exists():
        return NoAnswer(
            f"{said}: there is no socket {socket}; it may still be starting.",
            "Nothing was sent.",
            "houston daemon logs",
            ExitCode.BUSY,
        )
    why = stands(pid)
    return NoAnswer(f"{said}{why and ': '}{why}.", asked, "houston daemon logs", ExitCode.BUSY)


def encoded(message: ControlRequest) -> bytes:
    """The message as bytes; a longer one would only cut the connection."""
    body = wire.encode(message)
    if len(body) > wire.FRAME_LIMIT:
        raise HoustonError(
            f"The message has {len(body) / 1e6:,.0f} MB; the daemon takes at most "
            f"{wire.FRAME_LIMIT / 1e6:,.0f}.",
            "Nothing was sent.",
            "Ask for fewer at once, or for something shorter.",
            ExitCode.USAGE,
        )
    return body


def decoded(body: bytes) -> Done | Status:
    """What the daemon answered. Raises HoustonError with its own words when it denies."""
    reply: wire.ControlReply = wire.control_reply.decode(body)
    if isinstance(reply, Denied):
        code = ExitCode(reply.code) if reply.code in set(ExitCode) else ExitCode.FAILED
        raise HoustonError(reply.cause, reply.effect, reply.next, code)
    return reply
