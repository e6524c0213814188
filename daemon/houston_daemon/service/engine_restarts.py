"""Watches one server of an engine: brings it up, checks it, and restarts it with backoff.

Each server has a thread, which reports its state; limits for one that is dead or hangs are here.
`engine_supervisor` knows what the server is (a child of ours, or one that somebody else runs) and
acts on its state.
"""

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from houston_daemon.service.daemon_log import LOGGER
from houston_shared.backoff import Backoff
from houston_shared.errors import HoustonError
from houston_shared.faults import point

STARTING_POLL_SECONDS = 0.5
"""How often a starting engine is asked."""
HEALTH_CHECK_SECONDS = 2.0
"""How often an engine that answers is asked."""
SILENT_CHECKS_LIMIT = 3
"""Times a replica may not answer before its rollouts move to the others."""
POLICY_CHECKS = 5
"""Looks at a replica's health for one at which policies it has loaded."""
MISSED_CHECKS_LIMIT = 15
"""Times a living engine may not answer before it is taken for hung and started again."""
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
    next_try: float = 0.0
    """When it is brought up again (monotonic), where it is down."""
    replica: str = ""
    """Which of its servers stands so; empty for its only one."""
    policies: tuple[str, ...] = ()
    """Adapters that it has loaded, of a replica."""


class EngineServer(Protocol):
    """The server behind the name: a child of ours, or one that somebody else runs."""

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

    def failure_reason(self) -> str:
        """Why it does not, in a few words."""
        ...

    def end(self, seconds: float = 10.0) -> None:
        """End it if it is ours, within about so many seconds."""
        ...


class EngineWatch:
    """The thread of one engine."""

    def __init__(
        self,
        name: str,
        server: EngineServer,
        tell: Callable[[EngineState], None],
        replica: str = "",
        policies_of: Callable[[str], tuple[str, ...]] | None = None,
        after: threading.Thread | None = None,
    ) -> None:
        """replica: which of several servers it is. policies_of: asks the server at a URL for its
        adapters, in moments; None where none are asked for. after: ends the one before it, which
        has the same state file and GPUs."""
        self.name = name
        self._replica = replica
        self._policies_of = policies_of
        self._policies: tuple[str, ...] = ()
        self._server = server
        self._after = after
        self._tell = tell
        self._ended = threading.Event()
        self._unwanted = False
        self._state = ""
        self._restarts = 0
        self._ready_since: float | None = None
        thread_name = f"engine {replica or name}"
        self._thread = threading.Thread(target=self._run, name=thread_name, daemon=True)

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
        if self._after is not None:
            self._after.join()
        backoff = Backoff()
        while not self._ended.is_set():
            self._ready_since = None
            reason = self._serve_once()
            now = time.monotonic()
            if self._ended.is_set():
                return
            steady = self._ready_since is not None and now - self._ready_since > STEADY_SECONDS
            delay = backoff.fail(now, first=steady)
            self._report(f"down: {reason}", backoff.not_before)
            self._ended.wait(delay)
            self._restarts += 1

    def _serve_once(self) -> str:
        """Bring it up and watch it until it is gone; returns why it is."""
        if not self._state:
            self._report("starting")
        try:
            self._server.bring_up()
            if self._unwanted:  # it was to end while it was being brought up
                self._server.end(1.0)
            while not self._server.healthy():
                if self._ended.wait(STARTING_POLL_SECONDS):
                    return ""
                if not self._server.alive():
                    return self._server.failure_reason()
            point("supervisor.engine.ready")
            self._ready_since = time.monotonic()
            self._report("ready")
            return self._watch_until_gone()
        except (HoustonError, OSError) as problem:  # a full disk, no more processes: tried again
            return str(problem)
        except Exception as problem:  # noqa: BLE001 else the thread ends and nothing is tried again
            LOGGER.exception("engine %s", self._replica or self.name)
            return f"{type(problem).__name__}: {problem}"

    def _watch_until_gone(self) -> str:
        missed = 0
        for check in itertools.count():
            if self._ended.wait(HEALTH_CHECK_SECONDS):
                return ""
            if not self._server.alive():
                return self._server.failure_reason()
            missed = 0 if self._server.healthy() else missed + 1
            if missed >= MISSED_CHECKS_LIMIT:
                self._server.end()
                return f"it did not answer for {missed * HEALTH_CHECK_SECONDS:g} s"
            if self._replica and not missed:
                self._look_at_policies(check)
                self._report("ready")
            elif self._replica and missed >= SILENT_CHECKS_LIMIT:
                self._report("down: it does not answer")
        return ""

    def _look_at_policies(self, check: int) -> None:
        """Which adapters a replica has, now and then."""
        if self._policies_of is None or check % POLICY_CHECKS:
            return
        before, self._policies = self._policies, self._policies_of(self._server.url)
        if before != self._policies:
            self._tell_state(0.0)

    def _report(self, state: str, next_try: float = 0.0) -> None:
        if state != self._state:
            LOGGER.info("engine %s: %s", self._replica or self.name, state)
        if state != self._state or next_try:
            self._state = state
            self._tell_state(next_try)

    def _tell_state(self, next_try: float) -> None:
        url, policies = self._server.url, self._policies
        fields = (self.name, self._state, url, self._restarts, next_try, self._replica, policies)
        self._tell(EngineState(*fields))
