"""Ask the daemon one thing after the other over `control`; for commands.

It imports no asyncio (a third of what `houston guide` took); `control_async` is for event loops.
Without a daemon the answer is `DaemonNotRunning` at once. What a message means is for who sends it;
sending one again is safe where it carries an id of its own.
"""

import itertools
import time
import weakref
from types import TracebackType
from typing import Self

import zmq

from houston_shared.control_socket import (
    LOOK_SECONDS,
    SLICE_SECONDS,
    TIMEOUT_SECONDS,
    close,
    decoded,
    encoded,
    may_answer,
    must_run,
    no_answer,
    prepare,
    reach,
    wait_for_daemon,
)
from houston_shared.home import Home
from houston_shared.trust import Trust
from houston_shared.wire import ControlRequest, Done
from houston_shared.wire_status import Status


class ControlClient:
    """One synchronous connection; for commands."""

    def __init__(self, home: Home, timeout: float = TIMEOUT_SECONDS) -> None:
        self._home = home
        self._timeout = timeout
        context = zmq.Context(1)
        self._socket = context.socket(zmq.DEALER)
        self._end = weakref.finalize(self, close, self._socket, context)
        prepare(self._socket)
        self._endpoint = ""
        self._trust = Trust(home, "control")
        self._ids = itertools.count(1)

    def ask(self, message: ControlRequest, timeout: float | None = None) -> Done | Status:
        """Send `message` and return its answer.

        timeout: seconds, the client's own when None.
        Raises DaemonNotRunning when no daemon holds the home, AnswerLost when it ends before it
        answers, and HoustonError with the daemon's own words when it denies, when it says nothing,
        or when somebody else listens in its place.
        """
        must_run(self._home)
        wait = self._timeout if timeout is None else timeout
        request = next(self._ids).to_bytes(8, "big")
        words = [request, encoded(message)]
        end = time.monotonic() + wait
        while not self._trust.ready():
            wait_for_daemon(self._home, end, wait)
            time.sleep(LOOK_SECONDS)
        self._endpoint = reach(self._socket, self._home, self._endpoint)
        self._socket.send_multipart(words)
        while (left := end - time.monotonic()) > 0:
            if not self._socket.poll(int(1000 * min(left, SLICE_SECONDS)) or 1):
                may_answer(self._home, wait - left)
                continue
            frames = self._socket.recv_multipart()
            if len(frames) == 2 and frames[0] == request:
                return decoded(frames[1])
        raise no_answer(self._home, wait)

    def close(self) -> None:
        """Let the connection go; what was not sent by now is dropped."""
        self._end()

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()
