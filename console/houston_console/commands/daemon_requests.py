"""One message to the daemon and its answer, and waiting for something new in the journal.

`JournalFollower` wakes by the daemon's live socket and looks at `PRAGMA data_version` as well, so
a missed notice costs a moment and never an event; it lives through the daemon's stops and starts.
Wire formats are in houston_shared.
"""

import argparse
import time
from collections.abc import Callable
from typing import TypeVar

from houston_shared import command_output
from houston_shared.config import LoadedConfiguration
from houston_shared.home import Home
from houston_shared.store import rollout_queries, store_reader
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.store.store_reader import Reader, ReadFailed
from houston_shared.wire import ControlRequest, RequestStored


def resolve_rollout(reader: Reader, name: str) -> RolloutRow:
    """The rollout that `name` stands for.

    Raises HoustonError naming near ones, and DaemonNotRunning where there is no database because
    no daemon ever ran on this home.
    """
    store_reader.require_database(reader.home)
    return reader.run(rollout_queries.find_rollout(name))


def claimed_name(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> str:
    """The name claimed with `--as` or in the configuration; empty for the login's own."""
    return str(arguments.claimed or loaded.config.console.name)


def send_request(
    loaded: LoadedConfiguration, message: ControlRequest, maybe: str, look: str
) -> RequestStored:
    """Send what may safely be sent twice; see `houston_shared.control_client.send_with_retry`."""
    from houston_shared.control_client import send_with_retry  # zmq: 40 ms that readers do not pay

    return send_with_retry(loaded.home, message, maybe, look)


T = TypeVar("T")

DATA_VERSION_POLL_SECONDS = 0.5
"""How often the version is looked at when no notice comes."""
READER_LOOK_SECONDS = 1.0
"""How often who follows the journal looks whether its own output is read."""
READ_RETRY_SECONDS = 20.0
"""How long a read that fails (a daemon that recovers the file) is tried again."""


class JournalFollower:
    """Wakes up when somebody committed. Use `with`."""

    def __init__(self, home: Home, reader: Reader) -> None:
        """reader: the one that will read what is new; used for its `data_version`."""
        import zmq

        from houston_shared.control_client import set_socket_limits

        self._reader = reader
        self._version = reader.data_version()
        self._context = zmq.Context(1)
        self._socket = self._context.socket(zmq.SUB)
        set_socket_limits(self._socket)
        self._socket.subscribe(b"")
        self._socket.connect(home.socket("live"))

    def wait(self, seconds: float | None = None) -> bool:
        """Return True when something was committed; False when `seconds` have passed."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            remaining = DATA_VERSION_POLL_SECONDS
            if end is not None:
                remaining = min(remaining, end - time.monotonic())
            if remaining > 0 and self._socket.poll(int(1000 * remaining)):
                self._drain()
            version = self._current()
            if version != self._version:
                self._version = version
                return True
            if end is not None and time.monotonic() >= end:
                return False

    def wait_while_read(self) -> None:
        """Wait until something was committed. Raises BrokenPipeError where nobody reads what would
        be shown of it any more."""
        committed = False
        while not committed:
            committed = self.wait(READER_LOOK_SECONDS)
            command_output.require_reader()

    def read(self, make: Callable[[], ReadPlan[T]]) -> T:
        """Run the plan that `make` gives; again, for some seconds, while the file cannot be read.

        Raises HoustonError when it still cannot, and at once for what the plan itself refuses.
        """
        end = time.monotonic() + READ_RETRY_SECONDS
        while True:
            try:
                return self._reader.run(make())
            except ReadFailed:
                if time.monotonic() >= end:
                    raise
                time.sleep(DATA_VERSION_POLL_SECONDS)

    def _current(self) -> tuple[int, int]:
        try:
            return self._reader.data_version()
        except ReadFailed:
            return self._version

    def _drain(self) -> None:
        """Notices only wake; what they name is found by sequence."""
        while self._socket.poll(0):
            self._socket.recv_multipart()

    def __enter__(self) -> "JournalFollower":
        return self

    def __exit__(self, *_: object) -> None:
        self._context.destroy(linger=0)
