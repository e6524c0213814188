"""Waiting for something new in the journal, through the daemon's stops and starts.

The `live` socket wakes at once while a daemon runs; `PRAGMA data_version` is looked at as well, so
a notice that was missed costs a moment and never an event. It knows nothing of what is new.
"""

import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from houston_shared.home import Home
from houston_shared.store.plan import Plan
from houston_shared.store.reader import Reader, ReadFailed

T = TypeVar("T")

POLL_SECONDS = 0.5
"""How often the version is looked at when no notice comes."""
PATIENCE_SECONDS = 20.0
"""How long a read that fails (a daemon that recovers the file) is tried again."""


class Following:
    """Wakes up when somebody committed. Use `with`."""

    def __init__(self, home: Home, reader: Reader) -> None:
        """reader: the one that will read what is new; used for its `data_version`."""
        import zmq

        self._reader = reader
        self._version = reader.data_version()
        self._context = zmq.Context(1)
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 50)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        self._socket.setsockopt(zmq.MAXMSGSIZE, 4096)
        self._socket.subscribe(b"")
        self._socket.connect(home.socket("live"))

    def wait(self, seconds: float | None = None) -> bool:
        """Return True when something was committed; False when `seconds` have passed."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            left = POLL_SECONDS if end is None else min(POLL_SECONDS, end - time.monotonic())
            if left > 0 and self._socket.poll(int(1000 * left)):
                self._drain()
            version = self._current()
            if version != self._version:
                self._version = version
                return True
            if end is not None and time.monotonic() >= end:
                return False

    def read(self, make: Callable[[], Plan[T]]) -> T:
        """Run the plan that `make` gives; again, for some seconds, while the file cannot be read.

        Raises HoustonError when it still cannot, and at once for what the plan itself refuses.
        """
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._reader.run(make())
            except ReadFailed:
                if time.monotonic() >= end:
                    raise
                time.sleep(POLL_SECONDS)

    def _current(self) -> tuple[int, int]:
        try:
            return self._reader.data_version()
        except ReadFailed:
            return self._version

    def _drain(self) -> None:
        """Notices only wake; what they name is found by sequence."""
        while self._socket.poll(0):
            self._socket.recv_multipart()

    def __enter__(self) -> "Following":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._context.destroy(linger=0)
