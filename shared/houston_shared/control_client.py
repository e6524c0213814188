"""Asks the daemon one thing after the other over `control`; for commands.

Before anything is sent, the socket's folder and file are checked, and the kernel says who bound it
(SO_PEERCRED). A socket of another user is refused; other processes of the same user are not told
apart. Whether a daemon runs is read from the lock of the home, never guessed from a long silence;
without one the answer is `DaemonNotRunning` at once. `send_with_retry` repeats a message that must
be heard once. That is safe for messages with an id, a key or a revision of their own. It imports no
asyncio (a third of the time of `houston guide`); `async_control_client` is for event loops. The
sender knows what a message means.
"""

import errno
import itertools
import os
import socket
import stat
import struct
import time
import weakref
from pathlib import Path
from typing import Any, Self

import msgspec
import zmq

from houston_shared import wire
from houston_shared.control_messages import Status
from houston_shared.errors import (
    AnswerLost,
    DaemonFrozen,
    DaemonNotRunning,
    ExitCode,
    HoustonError,
    NoAnswer,
    UnknownAnswer,
    UsageError,
)
from houston_shared.home import Home
from houston_shared.home_lock import HomeOwner, find_running_daemon
from houston_shared.wire import AskStatus, ControlRequest, Denied, RequestStored

BLOCKED_STATES = {"T": "a signal has stopped it (SIGSTOP)", "D": "it waits for a disk or a device"}
"""States of a process that cannot answer, by the letter in /proc/PID/stat (proc(5))."""


def is_suspended(pid: int) -> bool:
    """Whether a signal has stopped it: it says nothing more until another lets it go on."""
    return _process_state(pid) == "T"


def describe_blocked_process(pid: int) -> str:
    """Why it cannot answer; empty where the kernel knows of nothing."""
    return BLOCKED_STATES.get(_process_state(pid), "")


def _process_state(pid: int) -> str:
    """Empty for 0, for a process that has ended, and where /proc does not show it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace") if pid else ""
    except OSError:
        return ""
    return text.rpartition(")")[2].strip()[:1]


_CREDENTIALS = struct.Struct("3i")
"""struct ucred: pid, uid, gid; unix(7)."""
_NOBODY_LISTENS = (errno.ECONNREFUSED, errno.ENOENT, errno.EAGAIN)
"""A socket that nobody listens on any more, or one with a full queue."""


class SocketTrust:
    """What one client knows of one socket; the kernel is asked again when the file is another."""

    def __init__(self, home: Home, name: str) -> None:
        self._home = home
        self._name = name
        self._trusted: tuple[Path, int, int] | None = None

    def ready(self) -> bool:
        """Whether the daemon of this home listens; False while there is nobody yet.

        Raises HoustonError when it is somebody else, or when this user is not let in.
        """
        place = self._home.run / f"{self._name}.sock"
        try:
            owner = self._home.path.stat().st_uid
            _check_socket_folder(place.parent, owner)
            status = place.lstat()
            if not stat.S_ISSOCK(status.st_mode) or status.st_uid != owner:
                raise _untrusted_socket(
                    place, "it was put there by another user", status.st_uid, owner
                )
            file = (place, status.st_ino, status.st_ctime_ns)
            if file != self._trusted and not self._listens(place, owner):
                return False
        except (FileNotFoundError, NotADirectoryError):
            return False
        except PermissionError:
            raise _closed_socket(place) from None
        self._trusted = file
        return True

    def _listens(self, place: Path, owner: int) -> bool:
        """Whether the owner's process answers there; raises for anybody else's."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                probe.connect(os.fspath(place))
            except OSError as problem:
                if problem.errno in _NOBODY_LISTENS:
                    return False
                raise
            raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, _ = _CREDENTIALS.unpack(raw)
        if uid != owner:
            raise _untrusted_socket(place, "a process of another user listens there", uid, owner)
        return True


def _check_socket_folder(folder: Path, owner: int) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != owner:
        raise _untrusted_socket(folder, "it was put there by another user", status.st_uid, owner)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _untrusted_socket(folder, "other users may write to it", status.st_uid, owner)


def _untrusted_socket(place: Path, reason: str, uid: int, owner: int) -> HoustonError:
    whose = f" (uid {uid}, the home is of uid {owner})" if uid != owner else ""
    return HoustonError(
        f"{place} cannot be trusted: {reason}{whose}.",
        "Nothing was sent.",
        "Tell the owner of the home; `houston daemon restart` creates it again.",
    )


def _closed_socket(place: Path) -> HoustonError:
    return HoustonError(
        f"The daemon's socket {place} is not open to this user.",
        "Nothing was sent.",
        "Ask the owner of the home to set `daemon.group` to a group of yours.",
    )


TIMEOUT_SECONDS = 10.0
"""How long an answer may take before the client says that none came."""
SLICE_SECONDS = 0.2
"""Between two looks at whether the daemon that was asked is still there."""
LOOK_SECONDS = 0.02
"""Between two looks for a socket that is not there yet."""
_FROZEN_SECONDS = 1.0
"""How long a daemon that a signal has stopped may take to be let go on."""


def close_socket(socket: "zmq.Socket[Any]", context: "zmq.Context[Any]") -> None:
    """Close both, asked or when nobody holds their owner any more.

    A forgotten socket would otherwise hang the collector, which ends a context by waiting for it.
    """
    socket.close(linger=0)
    context.term()


def set_socket_limits(socket: "zmq.Socket[Any]") -> None:
    """Set the limits of a socket before it connects."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, wire.FRAME_LIMIT)
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)


def require_daemon(home: Home, was_asked: bool = False) -> HomeOwner:
    """The daemon that holds the home; raises DaemonNotRunning without one.

    was_asked: whether it was told something already; then AnswerLost is raised.
    """
    owner = find_running_daemon(home)
    if owner is not None:
        return owner
    cause = f"No daemon runs on {home.path}."
    if was_asked:
        raise AnswerLost(cause, "It ended before it answered.")
    raise DaemonNotRunning(cause)


def check_daemon_may_answer(home: Home, waited: float) -> None:
    """Raise where the answer to a question `waited` seconds old will not come."""
    owner = require_daemon(home, was_asked=True)
    if waited > _FROZEN_SECONDS and is_suspended(owner.pid):
        raise no_answer_error(home, waited)


def no_answer_error(home: Home, seconds: float) -> NoAnswer:
    """What is said after a silence of so many seconds, with its reason where that can be seen."""
    owner = find_running_daemon(home)
    pid = owner.pid if owner else 0
    daemon_name = f"The daemon (pid {pid})" if pid else "The daemon"
    silence = f"{daemon_name} did not answer in {round(seconds, 1):g} s"
    unknown = "It is unknown whether the request was carried out."
    reason = describe_blocked_process(pid)
    if is_suspended(pid):
        return DaemonFrozen(f"{silence}: {reason}.", unknown, f"kill -CONT {pid}")
    socket = home.run / "control.sock"
    if not socket.exists():
        return NoAnswer(
            f"{silence}: there is no socket {socket}; it may still be starting.",
            "Nothing was sent.",
            "houston daemon logs",
        )
    cause = f"{silence}: {reason}." if reason else f"{silence}."
    return NoAnswer(cause, unknown, "houston daemon logs")


def encode_request(message: ControlRequest) -> bytes:
    """The message as bytes; a longer one would only cut the connection."""
    body = wire.encode_message(message)
    if len(body) > wire.FRAME_LIMIT:
        raise UsageError(
            f"The message has {len(body) / 1e6:,.0f} MB; the daemon takes at most "
            f"{wire.FRAME_LIMIT / 1e6:,.0f}.",
            "Nothing was sent.",
            "Ask for fewer at once, or for something shorter.",
        )
    return body


def decode_reply(body: bytes) -> RequestStored | Status:
    """What the daemon answered. Raises HoustonError with its own words when it denies, and
    UnknownAnswer for what only another version says."""
    try:
        reply: wire.ControlReply = wire.control_reply_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UnknownAnswer(
            "The daemon's answer cannot be read: it is of another version than this Houston.",
            "It is unknown whether the request was carried out.",
            "houston daemon restart, then open each console again",
        ) from None
    if isinstance(reply, Denied):
        code = ExitCode(reply.code) if reply.code in set(ExitCode) else ExitCode.FAILED
        raise HoustonError(reply.cause, reply.effect, reply.next, code)
    return reply


class ControlConnection:
    """What both clients share; only how they sleep, send and receive is their own."""

    def __init__(
        self, home: Home, timeout: float, socket: "zmq.Socket[Any]", context: "zmq.Context[Any]"
    ) -> None:
        self._home = home
        self._timeout = timeout
        self._control = socket
        self._end = weakref.finalize(self, close_socket, socket, context)
        set_socket_limits(socket)
        self._endpoint = ""
        self._trust = SocketTrust(home, "control")
        self._ids = itertools.count(1)

    def _encode(self, message: ControlRequest) -> list[bytes]:
        """The frames of a request; the first is its id."""
        return [next(self._ids).to_bytes(8, "big"), encode_request(message)]

    def _connect(self, end: float, seconds: float) -> bool:
        """Whether the socket is connected to where `control` is now; False to ask again soon.

        Raises where nobody is there to wait for, or when `end` has passed; nothing was sent yet.
        """
        if not self._trust.ready():
            require_daemon(self._home)
            if time.monotonic() > end:
                raise no_answer_error(self._home, seconds)
            return False
        endpoint = self._home.socket("control")
        if endpoint != self._endpoint:
            if self._endpoint:
                self._control.disconnect(self._endpoint)
            self._control.connect(endpoint)
            self._endpoint = endpoint
        return True


class ControlClient(ControlConnection):
    """One synchronous connection; for commands."""

    def __init__(self, home: Home, timeout: float = TIMEOUT_SECONDS) -> None:
        context = zmq.Context(1)
        self._socket = context.socket(zmq.DEALER)
        super().__init__(home, timeout, self._socket, context)

    def ask(self, message: ControlRequest, timeout: float | None = None) -> RequestStored | Status:
        """Send `message` and return its answer.

        timeout: seconds, the client's own when None.
        Raises DaemonNotRunning when no daemon holds the home, AnswerLost when it ends before it
        answers, and HoustonError with the daemon's own words when it denies, when it says nothing,
        or when somebody else listens in its place.
        """
        require_daemon(self._home)
        seconds = self._timeout if timeout is None else timeout
        request = self._encode(message)
        end = time.monotonic() + seconds
        while not self._connect(end, seconds):
            time.sleep(LOOK_SECONDS)
        self._socket.send_multipart(request)
        while (remaining := end - time.monotonic()) > 0:
            if not self._socket.poll(int(1000 * min(remaining, SLICE_SECONDS)) or 1):
                check_daemon_may_answer(self._home, seconds - remaining)
                continue
            frames = self._socket.recv_multipart()
            if len(frames) == 2 and frames[0] == request[0]:
                return decode_reply(frames[1])
        raise no_answer_error(self._home, seconds)

    def close(self) -> None:
        """Let the connection go; what was not sent by now is dropped."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


RETURN_SECONDS = 1.5
"""How long a daemon that ended may take to be back (a restart) before the sender gives up."""
_RETURN_LOOK_SECONDS = 0.05


def send_with_retry(home: Home, message: ControlRequest, maybe: str, look: str) -> RequestStored:
    """Send `message`, and once more where no answer came.

    maybe: one sentence on what may have been done; look: the command that shows whether it was.
    Raises DaemonNotRunning when none runs, HoustonError with the daemon's words when it denies,
    and AnswerLost with `maybe` and `look` when it ended and nobody knows.
    """
    with ControlClient(home, TIMEOUT_SECONDS / 2) as client:  # twice, where it is silent
        try:
            return _ask_to_store(client, message)
        except AnswerLost:
            if not _daemon_returns(home):
                raise _outcome_unknown(home, maybe, look) from None
        except DaemonFrozen:
            raise
        except HoustonError as problem:
            if problem.code is not ExitCode.BUSY:
                raise
        try:
            return _ask_to_store(client, message)
        except DaemonNotRunning:
            raise _outcome_unknown(home, maybe, look) from None
        except DaemonFrozen:
            raise
        except NoAnswer:
            raise no_answer_error(home, TIMEOUT_SECONDS) from None


def _ask_to_store(client: ControlClient, message: ControlRequest) -> RequestStored:
    answer = client.ask(message)
    assert isinstance(answer, RequestStored)
    return answer


def _daemon_returns(home: Home) -> bool:
    """Whether a daemon holds the home again soon."""
    end = time.monotonic() + RETURN_SECONDS
    while find_running_daemon(home) is None:
        if time.monotonic() > end:
            return False
        time.sleep(_RETURN_LOOK_SECONDS)
    return True


def _outcome_unknown(home: Home, maybe: str, look: str) -> AnswerLost:
    return AnswerLost(f"The daemon on {home.path} ended before it answered.", maybe, look)


def engine_state(home: Home, engine: str) -> str:
    """What the daemon says of an engine (`ready`, `starting`, `down: why`); empty where no daemon
    runs, or none has had a use for it yet."""
    try:
        with ControlClient(home) as client:
            status = client.ask(AskStatus())
    except DaemonNotRunning:
        return ""
    return status.engines.get(engine, "") if isinstance(status, Status) else ""
