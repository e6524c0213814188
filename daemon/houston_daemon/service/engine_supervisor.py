"""The engines that rollouts use: what is behind each name, watched and started again.

A name stands for a child of ours, a URL that somebody else runs, an engine of full weights named
after its policy, or nothing (a script, a plug-in); or for several servers that serve the same
model. Each server is watched by a thread (`engine_restarts`). If no server of an engine answers for
half a minute, its rollouts are paused (by `engine`) and resumed when one does; the workers' retries
bridge shorter gaps. `engine_replicas` combines the states of its servers, `engine_child` is the
child process, and `policy_activation` loads a policy into an engine.
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from houston_daemon.engines.local_model import model_path
from houston_daemon.recorder.handlers.policy_handlers import build_own_engine_settings
from houston_daemon.recorder.recorder_handle import RecorderHandle
from houston_daemon.service.daemon_log import LOGGER
from houston_daemon.service.engine_child import EngineChild, recorded_command, recorded_process
from houston_daemon.service.engine_endpoints import (
    answer_problem,
    connection_problem,
    parse_address,
)
from houston_daemon.service.engine_replicas import (
    WatchedEngine,
    WatchedReplica,
    is_replicated,
    replica_names,
)
from houston_daemon.service.engine_restarts import EngineServer, EngineState, EngineWatch
from houston_daemon.service.gpu_ledger import GpuLedger
from houston_daemon.training.policies import adapter_loader, policy_constraints
from houston_shared.config import FILE_ENGINES, LoadedConfiguration
from houston_shared.control_messages import ReplicaStatus
from houston_shared.engine_settings import ENGINE_KINDS, EngineSettings, server_name
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.home import Home
from houston_shared.policy_and_run_files import policies_folder
from houston_shared.store import policy_queries
from houston_shared.store.policy_queries import PolicyRow
from houston_shared.store.store_reader import Reader
from houston_shared.wire import EngineReplica, ReplicaUse

ENGINE_PATIENCE_SECONDS = 30.0
"""How long an engine may be down before its rollouts are paused."""
PROXY_CHECK_SECONDS = 30.0
"""How often an engine behind a proxy is asked, which takes a whole request."""
REPLICA_SECONDS = 5.0
"""How long one of several servers may take to say that it is there, and what it has loaded."""
ENGINE_DROP_SECONDS = 20.0
"""What an engine that is let go may take to end."""


@dataclass(frozen=True, slots=True)
class ReplicaServers:
    """What is behind the name of an engine that has several servers."""

    servers: Mapping[str, EngineServer]
    """By name."""
    policies_of: Callable[[str], tuple[str, ...]] | None = None
    """See `EngineWatch`."""


MakeEngineServer = Callable[[str], EngineServer | ReplicaServers | None]
"""What is behind an engine's name; None for engines that need nothing (script)."""


class EngineSupervisor:
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
        self._watched: dict[str, WatchedEngine] = {}
        self._edited_engines: set[str] = set()
        """Engines that run with settings which were edited since."""
        self._ending: dict[str, threading.Thread] = {}
        """Server → what ends the last one of its name that was let go, or has ended it."""

    @property
    def states(self) -> dict[str, str]:
        """Engine name → `ready`, `starting` or `down: <reason>`."""
        return {name: watched.state for name, watched in self._watched.items() if watched.replicas}

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
            self._watched[name] = WatchedEngine(resumes=server is not None)
            if server is not None:
                self._watch_servers(name, server)

    def _watch_servers(self, name: str, server: EngineServer | ReplicaServers) -> None:
        """Watch the servers of an engine that are not watched yet."""
        watched = self._watched[name]
        watched.is_replicated |= isinstance(server, ReplicaServers)
        replicas = server if isinstance(server, ReplicaServers) else ReplicaServers({name: server})
        for replica, each in replicas.servers.items():
            if replica in watched.replicas:
                continue
            replica_label = replica if watched.is_replicated else ""
            after = self._ending.get(replica)
            watch = EngineWatch(name, each, self._tell, replica_label, replicas.policies_of, after)
            watched.replicas[replica] = WatchedReplica(watch)
            watch.start()

    def change_servers(self, name: str, now: float) -> None:
        """Apply an edit that added or removed servers serving the same: rollouts continue with the
        rest, and a removed server ends when no rollout samples there (`end_drained`)."""
        watched, server = self._watched.get(name), self._make(name)
        if watched is None or server is None:
            return
        self._watch_servers(name, server)
        server_names = server.servers.keys() if isinstance(server, ReplicaServers) else {name}
        for replica, each in watched.replicas.items():
            if replica in server_names:
                each.draining_since = None
            elif each.draining_since is None:
                LOGGER.info("replica %s of engine %s is being removed", replica, name)
                each.draining_since = now

    def end_drained(self, uses: Collection[tuple[str, ReplicaUse]], now: float) -> None:
        """End servers that were taken away, where no rollout keeps to them any more. uses: engine
        and replica, once for each rollout."""
        for name, watched in self._watched.items():
            own = [use for engine, use in uses if engine == name]
            for replica in watched.drained(own, now):
                LOGGER.info("replica %s of engine %s was removed", replica, name)
                self._end_in_thread(replica, watched.replicas.pop(replica))

    @property
    def is_any_replicated(self) -> bool:
        """Whether there is an engine with several servers."""
        return any(watched.is_replicated for watched in self._watched.values())

    def announced_replicas(self) -> dict[str, tuple[EngineReplica, ...]]:
        """Engine that has several servers → what its workers are told of them."""
        return {
            name: watched.announced_replicas()
            for name, watched in self._watched.items()
            if watched.is_replicated
        }

    def replica_statuses(
        self, uses: Collection[tuple[str, ReplicaUse]]
    ) -> dict[str, tuple[ReplicaStatus, ...]]:
        """Engine that has several servers → what people are told of them. uses: as above."""
        return {
            name: watched.statuses(use for engine, use in uses if engine == name)
            for name, watched in self._watched.items()
            if watched.is_replicated
        }

    def is_starting(self, name: str) -> bool:
        """Whether one of its servers was never ready yet, and may come to be."""
        watched = self._watched.get(name)
        return watched is not None and watched.is_starting

    def ready_urls(self, name: str) -> dict[str, str]:
        """Name of each server of an engine that is ready, and where it answers (empty where its
        settings say it)."""
        watched = self._watched.get(name)
        return watched.ready_urls() if watched else {}

    def drop(self, name: str) -> None:
        """Watch an engine no more and end it, in a thread: that may take its time."""
        if (watched := self._watched.pop(name, None)) is not None:
            for replica, each in watched.replicas.items():
                self._end_in_thread(replica, each)

    def _end_in_thread(self, name: str, replica: WatchedReplica) -> None:
        """End a server; its successor waits for that, which would else be ended in its place."""
        earlier = self._ending.get(name)

        def end() -> None:
            if earlier is not None:
                earlier.join()
            replica.watch.stop(False, ENGINE_DROP_SECONDS)

        self._ending[name] = threading.Thread(target=end, daemon=True)
        self._ending[name].start()

    def mark_edited(self, name: str) -> None:
        """Record that its settings changed: it is made anew as soon as no rollout uses it."""
        if name in self._watched:
            self._edited_engines.add(name)

    def replace_edited(self, used: Collection[str]) -> None:
        """Let go of engines that were edited and that nobody uses now."""
        for name in self._edited_engines - set(used):
            LOGGER.info(
                "engine %s was edited and is not in use: it is created anew when needed", name
            )
            self._edited_engines.discard(name)
            self.drop(name)

    @property
    def edited_in_use(self) -> tuple[str, ...]:
        """Engines that go on with the settings from before an edit."""
        return tuple(sorted(self._edited_engines))

    def reachable(self, name: str) -> str | None:
        """URL of an engine that answers (empty where workers know it), None while it does not."""
        watched = self._watched.get(name)
        return watched.url if watched and watched.state == "ready" else None

    def on_state(self, event: EngineState, now: float) -> None:
        """Take note of what a watch said."""
        watched = self._watched.get(event.name)
        replica = watched.replicas.get(event.replica or event.name) if watched else None
        if watched is None or replica is None:
            return  # it was let go meanwhile
        replica.state, replica.url = event.state, event.url
        replica.restarts, replica.next_try = event.restarts, event.next_try
        replica.policies = event.policies
        if watched.state == "ready":
            watched.down_since = None
        elif watched.state.startswith("down") and watched.down_since is None:
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
            threading.Thread(target=replica.watch.stop, args=(keep, seconds), daemon=True)
            for watched in self._watched.values()
            for replica in watched.replicas.values()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))


def resolve_engine(
    loaded: LoadedConfiguration, name: str, made_alike: frozenset[str] = frozenset()
) -> EngineSettings:
    """The engine called `name`. Raises ConfigurationError where there is none.

    made_alike: engines whose settings come from this one, which cannot come from them in turn.
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
            f"Policy {name} was activated for the engine {named}, which takes its settings "
            f"from {name}.",
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


def engine_model_folder(engine: EngineSettings) -> Path | None:
    """Where the model of a child of ours lies; None where only the server knows."""
    if engine.model and Path(engine.model).is_dir():
        return Path(engine.model)
    for word in engine.command:
        if (Path(word) / "config.json").is_file():
            return Path(word)
    return None if engine.model or engine.command or engine.addressed else model_path()


def engine_server_factory(loaded: LoadedConfiguration, gpus: GpuLedger) -> MakeEngineServer:
    """Make the server behind an engine's name, or its several, from the configuration in force."""

    def make_child(name: str, engine: EngineSettings) -> EngineChild:
        settings = loaded.config.daemon
        size = settings.log_mb * 1_000_000
        orphan = settings.engine_orphan_seconds
        return EngineChild(loaded.home, name, engine, size, settings.log_files, gpus, orphan)

    def make(name: str) -> EngineServer | ReplicaServers | None:
        try:
            engine = resolve_engine(loaded, name)
            if not is_replicated(engine):
                return make_single(name, engine)
            servers: dict[str, EngineServer] = {
                server_name(url): RemoteReplica(url, engine) for url in engine.urls
            } or {each: make_child(each, engine) for each in replica_names(name, engine)}
        except ConfigurationError as problem:
            return MissingEngine(problem)
        return ReplicaServers(servers, partial(adapters_of, engine) if takes_ids(engine) else None)

    def make_single(name: str, engine: EngineSettings) -> EngineServer | None:
        if engine.kind in FILE_ENGINES or (engine.kind not in ENGINE_KINDS and not engine.url):
            return None
        return RemoteEngine(engine.url) if engine.url else make_child(name, engine)

    return make


def takes_ids(engine: EngineSettings) -> bool:
    """Whether it is asked with token ids, as vLLM and the embedded server are."""
    return engine.kind in ("embedded", "vllm", "token")


def adapters_of(engine: EngineSettings, url: str) -> tuple[str, ...]:
    """The policies that a server has loaded; none where it does not say so in moments."""
    key = adapter_loader.key_from_variable(engine.api_key_env)
    server = adapter_loader.AdapterServer(server_name(url), url, key)
    try:
        return tuple(sorted(adapter_loader.served_models(server, REPLICA_SECONDS).adapters))
    except (HoustonError, ValueError, LookupError, TypeError, AttributeError) as problem:
        # It is busy, or what it says is no list of models: who watches it goes on.
        LOGGER.debug("adapters of %s: %s", server.name, problem)
        return ()


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
        parse_address(url)
        self._address = url
        self._why = ""
        self._next_ask = 0.0

    def bring_up(self) -> None:
        """Raise HoustonError while nobody answers there."""
        if not (self.alive() and self.healthy()):
            raise HoustonError(self._why)

    def alive(self) -> bool:
        """Whether a connection is accepted; through a proxy, whether one was lately."""
        from houston_daemon.engines.engine_http import has_proxy  # see `engine_process.is_healthy`

        if time.monotonic() < self._next_ask:
            return True
        self._why = connection_problem(self._address)
        if not self._why and has_proxy(self._address):
            self._next_ask = time.monotonic() + PROXY_CHECK_SECONDS
        return not self._why

    def healthy(self) -> bool:
        """Whether one was when last asked: more is not asked."""
        return not self._why

    def failure_reason(self) -> str:
        """Why not."""
        return self._why

    def end(self, seconds: float = 10.0) -> None:
        """It is not ours."""


class RemoteReplica(RemoteEngine):
    """One of several servers that somebody else runs: asked over HTTP, because a stopped server
    still accepts connections, and others could answer in its place."""

    def __init__(self, url: str, engine: EngineSettings) -> None:
        super().__init__(url)
        self.url = url
        root = url.rstrip("/")
        self._page = root.removesuffix("/v1") + "/health" if takes_ids(engine) else root + "/models"

    def healthy(self) -> bool:
        """Whether it answers within moments, and not with a fault of its own."""
        problem = answer_problem(self._page, REPLICA_SECONDS)
        self._why = problem and (connection_problem(self._address) or problem)
        return not self._why
