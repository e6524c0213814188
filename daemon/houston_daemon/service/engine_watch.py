"""Keep one engine answering: find it again or start it, wait, watch, start it again with backoff.

Each engine has a thread of its own, because starting and asking a server blocks. The thread tells
the supervisor how the engine stands and does nothing else. An engine at a URL that somebody else
runs is only asked.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from houston_daemon.service.log import LOGGER
from houston_shared.errors import HoustonError
from houston_shared.faults import point

POLL_SECONDS = 0.5
"""How often a starting engine is asked."""
WATCH_SECONDS = 2.0
"""How often an engine that answers is asked."""
MISSED_LIMIT = 15
"""Times a living engine may not answer before it is taken for hung and started again."""
LONGEST_DELAY_SECONDS = 60.0
STEADY_SECONDS = 60.0
"""An engine that answered this long did not crash at its start: it is started again at once."""


@dataclass(frozen=True, slots=True)
class EngineState:
    """How an engine stands: `ready`, `starting` or `down: <reason>`."""

    name: str
    state: str
    url: str
    """Where it answers; empty where workers know that themselves."""
    restarts: int = 0
    """How often it was brought up again since the daemon's start."""
    again: float = 0.0
    """When it is brought up again (monotonic), where it is down."""


class Server(Protocol):
    """What is behind the name: a child of ours, or a place that somebody else keeps."""

    url: str

    def bring_up(self) -> None:
        """Find it again or start it. Raises HoustonError."""
        ...

    def alive(self) -> bool:
        """Whether it is worth asking."""
        ...

    def healthy(self) -> bool:
        """Whether it answers."""
        ...

    def reason(self) -> str:
        """Why it does not, in a few words."""
        ...

    def end(self, seconds: float = 10.0) -> None:
        """End it if it is ours, within about so many seconds."""
        ...


class EngineWatch:
    """The thread of one engine."""

    def __init__(self, name: str, server: Server, tell: Callable[[EngineState], None]) -> None:
        self.name = name
        self._server = server
        self._tell = tell
        self._ended = threading.Event()
        self._unwanted = False
        self._state = ""
        self._restarts = 0
        self._ready_since: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"engine {name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, keep: bool, seconds: float) -> None:
        """Stop watching; end the engine unless it is to be kept. Bounded by `seconds`."""
        end = time.monotonic() + seconds
        self._unwanted = not keep
        self._ended.set()
        # It may be asking an engine that hangs, which takes it seconds: it is not waited for.
        self._thread.join(seconds / 4)
        if not keep:
            self._server.end(end - time.monotonic())

    def _run(self) -> None:
        delay = 1.0
        while not self._ended.is_set():
            self._ready_since = None
            reason = self._serve_once()
            now = time.monotonic()
            if self._ready_since is not None and now - self._ready_since > STEADY_SECONDS:
                delay = 1.0
            if self._ended.is_set():
                return
            self._say(f"down: {reason}", now + delay)
            self._ended.wait(delay)
            delay = min(LONGEST_DELAY_SECONDS, delay * 2)
            self._restarts += 1

    def _serve_once(self) -> str:
        """Bring it up and watch it until it is gone; returns why it is."""
        if not self._state:
            self._say("starting")
        try:
            self._server.bring_up()
            if self._unwanted:  # it was to end while it was being brought up
                self._server.end(1.0)
            while not self._server.healthy():
                if self._ended.wait(POLL_SECONDS):
                    return ""
                if not self._server.alive():
                    return self._server.reason()
            point("supervisor.engine.ready")
            self._ready_since = time.monotonic()
            self._say("ready")
            return self._until_gone()
        except (HoustonError, OSError) as problem:  # a full disk, no more processes: tried again
            return str(problem)

    def _until_gone(self) -> str:
        missed = 0
        while not self._ended.wait(WATCH_SECONDS):
            if not self._server.alive():
                return self._server.reason()
            missed = 0 if self._server.healthy() else missed + 1
            if missed >= MISSED_LIMIT:
                self._server.end()
                return f"it did not answer for {missed * WATCH_SECONDS:g} s"
        return ""

    def _say(self, state: str, again: float = 0.0) -> None:
        if state != self._state:
            LOGGER.info("engine %s: %s", self.name, state)
        if state != self._state or again:
            self._state = state
            self._tell(EngineState(self.name, state, self._server.url, self._restarts, again))
