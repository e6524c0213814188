"""The engines that rollouts use: what is behind each name, watched and started again.

A name stands for a child of ours, a URL that somebody else keeps, an engine of full weights named
after its policy, or nothing (a script, a plug-in). Each server has a thread that brings it up,
asks it, and brings it up again with backoff; the dead-engine and hung-engine limits are here. An
engine that is down for half a minute pauses its rollouts (by `engine`) and resumes them when it
answers; shorter gaps are bridged by the workers' retries. The child process itself is
`engine_child`; loading a policy into an engine is `policy_activation`.
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from houston_daemon.engines.local_model import model_path
from houston_daemon.recorder.handlers.training_handlers import build_own_engine_settings
from houston_daemon.recorder.recorder_handle import RecorderHandle
from houston_daemon.service.daemon_log import LOGGER
from houston_daemon.service.engine_child import EngineChild, recorded_command, recorded_process
from houston_daemon.service.engine_endpoints import connection_problem, parse_address
from houston_daemon.service.gpu_ledger import GpuLedger
from houston_daemon.training.policies import policy_constraints
from houston_shared.backoff import Backoff
from houston_shared.config import FILE_ENGINES, LoadedConfiguration
from houston_shared.config_sections import ENGINE_KINDS, EngineSettings
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.faults import point
from houston_shared.home import Home
from houston_shared.policy_and_run_files import policies_folder
from houston_shared.store import policy_queries
from houston_shared.store.policy_queries import PolicyRow
from houston_shared.store.store_reader import Reader

STARTING_POLL_SECONDS = 0.5
"""How often a starting engine is asked."""
HEALTH_CHECK_SECONDS = 2.0
"""How often an engine that answers is asked."""
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


class EngineServer(Protocol):
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

    def failure_reason(self) -> str:
        """Why it does not, in a few words."""
        ...

    def end(self, seconds: float = 10.0) -> None:
        """End it if it is ours, within about so many seconds."""
        ...


class EngineWatch:
    """The thread of one engine."""

    def __init__(
        self, name: str, server: EngineServer, tell: Callable[[EngineState], None]
    ) -> None:
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

    def _watch_until_gone(self) -> str:
        missed = 0
        while not self._ended.wait(HEALTH_CHECK_SECONDS):
            if not self._server.alive():
                return self._server.failure_reason()
            missed = 0 if self._server.healthy() else missed + 1
            if missed >= MISSED_CHECKS_LIMIT:
                self._server.end()
                return f"it did not answer for {missed * HEALTH_CHECK_SECONDS:g} s"
        return ""

    def _report(self, state: str, next_try: float = 0.0) -> None:
        if state != self._state:
            LOGGER.info("engine %s: %s", self.name, state)
        if state != self._state or next_try:
            self._state = state
            self._tell(EngineState(self.name, state, self._server.url, self._restarts, next_try))


ENGINE_PATIENCE_SECONDS = 30.0
"""How long an engine may be down before its rollouts are paused."""
ENGINE_DROP_SECONDS = 20.0
"""What an engine that is let go may take to end."""


@dataclass(slots=True)
class _WatchedEngine:
    watch: EngineWatch | None
    state: str = "starting"
    url: str = ""
    down_since: float | None = None
    restarts: int = 0
    next_try: float = 0.0
    resumes: bool = True
    """Whether rollouts may be paused for it, by this daemon or an earlier one."""
    waiting: bool = False
    """Whether it was said that its rollouts wait."""


MakeEngineServer = Callable[[str], EngineServer | None]
"""What is behind an engine's name; None for engines that need nothing (script)."""


class EnginePool:
    """All engines of one daemon; used from the supervisor's thread only."""

    def __init__(
        self,
        make: MakeEngineServer,
        recorder: RecorderHandle,
        tell: Callable[[EngineState], None],
        patience: float = ENGINE_PATIENCE_SECONDS,
    ) -> None:
        """patience: seconds that an engine may be down before its rollouts are paused."""
        self.patience = patience
        self._make = make
        self._recorder = recorder
        self._tell = tell
        self._watched: dict[str, _WatchedEngine] = {}
        self._edited: set[str] = set()
        """Engines that run with settings which were edited since."""

    @property
    def states(self) -> dict[str, str]:
        """Engine name → `ready`, `starting` or `down: <reason>`."""
        return {name: watched.state for name, watched in self._watched.items() if watched.watch}

    @property
    def restarts(self) -> int:
        """How often engines were brought up again since the daemon's start."""
        return sum(watched.restarts for watched in self._watched.values())

    def troubles(self, now: float) -> dict[str, str]:
        """Engines that came down again after they were brought up, for the status."""
        return {
            f"engine {name}": f"brought up again {watched.restarts} times; "
            f"again in {max(0.0, watched.next_try - now):.0f} s; {watched.state}"
            for name, watched in self._watched.items()
            if watched.restarts and watched.state.startswith("down")
        }

    def watch(self, names: Iterable[str]) -> None:
        """Watch these engines from now on; those already watched go on."""
        for name in set(names) - self._watched.keys():
            server = self._make(name)
            if server is None:
                self._watched[name] = _WatchedEngine(None, "ready", resumes=False)
                continue
            watch = EngineWatch(name, server, self._tell)
            self._watched[name] = _WatchedEngine(watch)
            watch.start()

    def drop(self, name: str) -> None:
        """Watch an engine no more and end it, in a thread: that may take its time."""
        watched = self._watched.pop(name, None)
        if watched and watched.watch:
            args = (False, ENGINE_DROP_SECONDS)
            threading.Thread(target=watched.watch.stop, args=args, daemon=True).start()

    def mark_edited(self, name: str) -> None:
        """Its settings are others: it is made anew as soon as no rollout uses it."""
        if name in self._watched:
            self._edited.add(name)

    def replace_edited(self, used: Collection[str]) -> None:
        """Let go of engines that were edited and that nobody uses now."""
        for name in self._edited - set(used):
            LOGGER.info("engine %s was edited and is not used: it is made anew when needed", name)
            self._edited.discard(name)
            self.drop(name)

    @property
    def edited_in_use(self) -> tuple[str, ...]:
        """Engines that go on with the settings from before an edit."""
        return tuple(sorted(self._edited))

    def reachable(self, name: str) -> str | None:
        """URL of an engine that answers (empty where workers know it), None while it does not."""
        watched = self._watched.get(name)
        return watched.url if watched and watched.state == "ready" else None

    def on_state(self, event: EngineState, now: float) -> None:
        """Take note of what a watch said."""
        watched = self._watched.get(event.name)
        if watched is None:
            return  # it was let go meanwhile
        watched.state, watched.url = event.state, event.url
        watched.restarts, watched.next_try = event.restarts, event.next_try
        if event.state == "ready":
            watched.down_since = None
        elif event.state.startswith("down") and watched.down_since is None:
            watched.down_since = now

    def pause_and_resume(self, now: float) -> None:
        """Pause rollouts whose engine has been down for long, resume those whose engine is back.

        Raises HoustonError when the recorder cannot store it now; the next call tries again.
        """
        for name, watched in self._watched.items():
            if watched.resumes and watched.state == "ready":
                self._recorder.pause_for_engine(name, False)
                watched.resumes = watched.waiting = False
            since = watched.down_since
            if since is not None and now - since > self.patience:
                # Each time: rollouts that were started since wait for it, too.
                self._recorder.pause_for_engine(name, True, watched.state)
                watched.resumes = True
                if not watched.waiting:
                    LOGGER.warning("rollouts of engine %s wait: %s", name, watched.state)
                watched.waiting = True

    def stop(self, keep: bool, seconds: float) -> None:
        """Stop watching; end our engines unless they are to be kept. At once for all, bounded."""
        end = time.monotonic() + seconds
        threads = [
            threading.Thread(target=watched.watch.stop, args=(keep, seconds), daemon=True)
            for watched in self._watched.values()
            if watched.watch
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))


def resolve_engine(
    loaded: LoadedConfiguration, name: str, made_alike: frozenset[str] = frozenset()
) -> EngineSettings:
    """The engine called `name`. Raises ConfigurationError where there is none.

    made_alike: engines that are made as this one is, so that it cannot be made as one of them.
    """
    if "@" not in name or name in loaded.config.engines:
        return loaded.engine(name)
    try:
        with Reader(loaded.home) as reader:
            activated = reader.run(policy_queries.find_full_weights_engine(name))
            policies = reader.run(policy_queries.list_policies())
    except HoustonError as problem:
        raise ConfigurationError(str(problem)) from problem
    if activated is None:
        return loaded.engine(name)
    policy, named = activated
    if named in (made_alike := made_alike | {name}):
        raise ConfigurationError(
            f"Policy {name} was activated for the engine {named}, whose own settings come from it.",
            next="houston policy activate POLICY --engine NAME, with an engine of houston.toml",
        )
    base_engine = resolve_engine(loaded, named, made_alike)
    own_folders = policy_constraints.base_folders(
        loaded.home, policy_constraints.base_hashes(policy, policies), policies
    )
    if served := engine_model_folder(base_engine):  # maybe a copy, which nobody trained from
        own_folders |= {os.path.realpath(served)}
    folder = str(policies_folder(loaded.home) / policy.folder)
    settings = build_own_engine_settings(
        msgspec.to_builtins(base_engine), policy, folder, own_folders
    )
    del settings["own_policy"]
    return msgspec.convert(settings, EngineSettings)


def running_policy_engines(home: Home, full: Iterable[PolicyRow]) -> list[str]:
    """Policies whose own engine was started before and still runs."""
    return [policy.name for policy in full if policy.folder and _serves_policy(home, policy)]


def _serves_policy(home: Home, policy: PolicyRow) -> bool:
    """Whether what is recorded under its name serves it: a home may have been built anew."""
    folder = os.path.realpath(policies_folder(home) / policy.folder)
    if folder not in map(os.path.realpath, recorded_command(home, policy.name)):
        return False
    return recorded_process(home, policy.name).adopt()


def is_daemon_child(engine: EngineSettings) -> bool:
    """Whether the daemon starts this engine itself."""
    return engine.kind in ("embedded", "vllm") and not engine.url


def engine_model_folder(engine: EngineSettings) -> Path | None:
    """Where the model of a child of ours lies; None where only the server knows."""
    if engine.model and Path(engine.model).is_dir():
        return Path(engine.model)
    for word in engine.command:
        if (Path(word) / "config.json").is_file():
            return Path(word)
    return None if engine.model or engine.command or engine.url else model_path()


def engine_server_factory(
    loaded: LoadedConfiguration, gpus: GpuLedger
) -> Callable[[str], EngineServer | None]:
    """Make the server behind an engine's name, from the configuration in force."""

    def make(name: str) -> EngineServer | None:
        try:
            engine = resolve_engine(loaded, name)
        except ConfigurationError as problem:
            return MissingEngine(problem)
        if engine.kind in FILE_ENGINES or (engine.kind not in ENGINE_KINDS and not engine.url):
            return None
        if engine.url:
            return RemoteEngine(engine.url)
        settings = loaded.config.daemon
        size = settings.log_mb * 1_000_000
        orphan = settings.engine_orphan_seconds
        return EngineChild(loaded.home, name, engine, size, settings.log_files, gpus, orphan)

    return make


class MissingEngine:
    """An engine that the configuration no longer knows."""

    url = ""

    def __init__(self, problem: ConfigurationError) -> None:
        self._problem = problem

    def bring_up(self) -> None:
        """Raise what is wrong."""
        raise self._problem

    def alive(self) -> bool:
        """Never."""
        return False

    def healthy(self) -> bool:
        """Never."""
        return False

    def failure_reason(self) -> str:
        """What is wrong."""
        return str(self._problem)

    def end(self, seconds: float = 10.0) -> None:
        """Nothing to end."""


class RemoteEngine:
    """A server at a URL that somebody else keeps: asked only whether its port answers."""

    def __init__(self, url: str) -> None:
        self.url = ""  # workers have it in their settings
        self._address = parse_address(url)
        self._why = ""

    def bring_up(self) -> None:
        """Raise HoustonError while nobody listens there."""
        if not self.healthy():
            raise HoustonError(self._why)

    def alive(self) -> bool:
        """As far as asking can tell."""
        return self.healthy()

    def healthy(self) -> bool:
        """Whether a connection is accepted."""
        self._why = connection_problem(self._address)
        return not self._why

    def failure_reason(self) -> str:
        """Why not."""
        return self._why

    def end(self, seconds: float = 10.0) -> None:
        """It is not ours."""
