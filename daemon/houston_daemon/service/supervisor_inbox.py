"""The one place where the supervisor waits: events from threads, signals, ends of children.

Anybody may `put` an event from any thread or signal handler; `watch` turns the readability of a
descriptor (a pidfd, a pipe) into one event. What events mean is the supervisor's business.
"""

import contextlib
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable


class SupervisorInbox:
    """A queue that also listens to descriptors. `wait` belongs to one thread."""

    def __init__(self) -> None:
        self._events: deque[object] = deque()
        self._selector = selectors.DefaultSelector()
        self._wake, self._wakeup_reader = socket.socketpair()
        self._wake.setblocking(False)
        self._wakeup_reader.setblocking(False)
        self._selector.register(self._wakeup_reader, selectors.EVENT_READ)

    def put(self, event: object) -> None:
        """Add an event and wake whoever waits."""
        self._events.append(event)
        # A full pipe already wakes; a closed one means that nobody waits any more.
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake.send(b"\0")

    def listen(self, source: socket.socket, read: Callable[[], list[object] | None]) -> None:
        """Whenever `source` is readable, add the events that `read` returns; stop at None."""
        self._selector.register(source, selectors.EVENT_READ, read)

    def watch(self, fd: int, event: object) -> None:
        """Put `event` once when `fd` becomes readable, then close `fd`. Raises OSError where that
        cannot be heard; `fd` is closed then, too."""
        try:
            self._selector.register(fd, selectors.EVENT_READ, event)
        except OSError:
            os.close(fd)
            raise

    def wait(self, seconds: float) -> list[object]:
        """Everything that has come, waiting up to `seconds` for the first."""
        for key, _ in self._selector.select(0 if self._events else max(0.0, seconds)):
            if key.fileobj is self._wakeup_reader:
                with contextlib.suppress(BlockingIOError):
                    while self._wakeup_reader.recv(4096):
                        pass
            elif isinstance(key.fileobj, socket.socket):
                self._read(key)
            else:
                self._selector.unregister(key.fd)
                os.close(key.fd)
                self._events.append(key.data)
        return [self._events.popleft() for _ in range(len(self._events))]

    def _read(self, key: selectors.SelectorKey) -> None:
        events = key.data()
        if events is None:
            self._selector.unregister(key.fileobj)
        else:
            self._events.extend(events)
