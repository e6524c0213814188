"""Where a configured engine answers now: at its URL, as the daemon's child, or as ours for a while.

A child that no rollout has used yet does not run: it is started here under the daemon's own state
file, so that a daemon which needs it meanwhile takes it over, and one that starts later finds what
a killed command left. Unless the daemon uses it by then it is ended with the command.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.engines.process import EngineProcess
from houston_daemon.service.engine_child import child_command
from houston_daemon.service.engine_places import engine_log, free_port, kept_port, state_file
from houston_daemon.service.engine_server import is_child
from houston_shared.config import FILE_ENGINES, Engine, Loaded
from houston_shared.control_client import ControlClient
from houston_shared.errors import ConfigurationError, DaemonNotRunning, HoustonError
from houston_shared.wire import AskStatus, Status

START_SECONDS = 300.0
"""How long a child may take to answer: vLLM compiles for more than a minute."""
_LOOK_SECONDS = 0.2


@contextlib.contextmanager
def settings_of(loaded: Loaded, name: str, note: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Settings for `choose_engine` of an engine that answers, while the context lasts.

    note: told in one line what takes long. Raises ConfigurationError for an engine that only plays
    files, HoustonError for one that does not come up.
    """
    engine = loaded.engine(name)
    settings: dict[str, Any] = msgspec.to_builtins(engine)
    if engine.kind in FILE_ENGINES:
        raise ConfigurationError(
            f"Engine {name!r} plays a file: it cannot judge.", "Nothing was judged.",
            "Name another with --engine.",
        )  # fmt: skip
    if not is_child(engine):
        yield settings
        return
    running = EngineProcess(name, [], "", state_file(loaded.home, name), log_of(loaded, name))
    if running.adopt():
        _wait(running, name)
        yield {**settings, "url": running.url}
        return
    with _started(loaded, name, engine, note) as url:
        yield {**settings, "url": url}


@contextlib.contextmanager
def _started(
    loaded: Loaded, name: str, engine: Engine, note: Callable[[str], None]
) -> Iterator[str]:
    """The URL of a child that is started for this command."""
    if engine.gpus:
        raise HoustonError(
            f"Engine {name!r} does not run, and leases GPUs that only the daemon gives.",
            "Nothing was judged.",
            f"houston rollout start TASK.toml --engine {name}",
        )
    port = free_port(loaded.home, name, engine, kept_port(loaded.home, name, engine))
    process = EngineProcess(
        name,
        child_command(name, engine, port),
        f"http://127.0.0.1:{port}/v1",
        state_file(loaded.home, name),
        log_of(loaded, name),
        engine.environment,
    )
    note(f"engine {name} does not run yet: starting it for this command")
    process.start()
    try:
        _wait(process, name)
        yield process.url
    finally:
        if not _used(loaded, name):
            process.stop()


def log_of(loaded: Loaded, name: str) -> Path:
    """The log of a child."""
    return engine_log(loaded.home, name)


def _wait(process: EngineProcess, name: str) -> None:
    end = time.monotonic() + START_SECONDS
    while not process.healthy():
        if not process.alive():
            said = process.failing_line() or "it wrote nothing"
            raise HoustonError(f"Engine {name!r} ended: {said}.", "Nothing was judged.")
        if time.monotonic() > end:
            raise HoustonError(
                f"Engine {name!r} does not answer after {START_SECONDS:g} s.",
                "Nothing was judged.",
                "houston daemon status",
            )
        time.sleep(_LOOK_SECONDS)


def _used(loaded: Loaded, name: str) -> bool:
    """Whether the daemon watches this engine by now."""
    try:
        with ControlClient(loaded.home) as client:
            status = client.ask(AskStatus())
    except DaemonNotRunning:
        return False
    return isinstance(status, Status) and name in status.engines
