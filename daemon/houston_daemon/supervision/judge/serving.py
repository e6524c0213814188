"""Where a configured engine answers: at its URL, as the daemon's child, or as ours for a while.

A child that no rollout has used yet does not run. It is started once it is really asked, under the
daemon's own state file, so that a daemon which needs it meanwhile takes it over, and one that
starts later finds what a killed command left. Unless the daemon uses it by then it is ended.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import msgspec

from houston_daemon.engines.process import EngineProcess
from houston_daemon.service.engine_child import child_command
from houston_daemon.service.engine_places import engine_log, free_port, kept_port, state_file
from houston_daemon.service.policy_engines import is_child
from houston_shared.config import FILE_ENGINES, Loaded
from houston_shared.control_client import ControlClient
from houston_shared.errors import ConfigurationError, DaemonNotRunning, HoustonError
from houston_shared.wire import AskStatus
from houston_shared.wire_status import Status

START_SECONDS = 300.0
"""How long a child may take to answer: vLLM compiles for more than a minute."""
NOTHING = "Nothing more was judged."
_LOOK_SECONDS = 0.2


class Place:
    """Where one engine is asked while the context lasts."""

    def __init__(self, loaded: Loaded, name: str, note: Callable[[str], None]) -> None:
        """note: told in one line what takes long. Raises ConfigurationError for an engine that
        there is not, or that only plays a file."""
        self._loaded = loaded
        self._engine = loaded.engine(name)
        self._note = note
        self._ours: EngineProcess | None = None
        self.left = threading.Event()
        """Set when nobody waits for the child any more."""
        self.name = name
        self.settings: dict[str, Any] = msgspec.to_builtins(self._engine)
        """For `choose_engine`; `url` is empty while a child does not run."""
        if self._engine.kind in FILE_ENGINES:
            raise ConfigurationError(
                f"Engine {name!r} plays a file: it cannot judge.",
                "Nothing was judged.",
                "Name another with --engine.",
            )
        self.child = is_child(self._engine)
        """Whether it is a server that is started when it is needed."""

    def url(self) -> str:
        """Where the child answers, started if need be; blocks. Raises HoustonError."""
        process = self._process([], "")
        if not process.adopt():
            process = self._start()
        self._wait(process)
        return process.url

    def running(self) -> bool:
        """Whether the child runs already."""
        return self._process([], "").adopt()

    def __enter__(self) -> "Place":
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End what was started here and the daemon does not use."""
        if self._ours is not None and not self._used():
            self._ours.stop()

    def _start(self) -> EngineProcess:
        if self._engine.gpus:
            raise HoustonError(
                f"Engine {self.name!r} does not run, and leases GPUs that only the daemon gives.",
                NOTHING,
                f"houston rollout start TASK.toml --engine {self.name}",
            )
        home = self._loaded.home
        kept = kept_port(home, self.name, self._engine)
        port = free_port(home, self.name, self._engine, kept)
        command = child_command(self.name, self._engine, port)
        process = self._process(command, f"http://127.0.0.1:{port}/v1")
        self._note(f"engine {self.name} does not run yet: starting it for this command")
        process.start()
        self._ours = process
        return process

    def _process(self, command: list[str], url: str) -> EngineProcess:
        home, name = self._loaded.home, self.name
        state, log = state_file(home, name), engine_log(home, name)
        return EngineProcess(name, command, url, state, log, self._engine.environment)

    def _wait(self, process: EngineProcess) -> None:
        end = time.monotonic() + START_SECONDS
        while not process.healthy():
            if not process.alive():
                said = process.failing_line() or "it wrote nothing"
                raise HoustonError(f"Engine {self.name!r} ended: {said}.", NOTHING)
            if time.monotonic() > end:
                raise HoustonError(
                    f"Engine {self.name!r} does not answer after {START_SECONDS:g} s.",
                    NOTHING,
                    "houston daemon status",
                )
            if self.left.wait(_LOOK_SECONDS):
                raise HoustonError(f"Engine {self.name!r} was not waited for.", NOTHING)

    def _used(self) -> bool:
        """Whether the daemon watches this engine by now."""
        try:
            with ControlClient(self._loaded.home) as client:
                status = client.ask(AskStatus())
        except DaemonNotRunning:
            return False
        return isinstance(status, Status) and self.name in status.engines
