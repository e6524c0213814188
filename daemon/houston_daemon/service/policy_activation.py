"""Runs requested activations of policies: the engine is brought up, given the policy, and tried.

One at a time, starting with the oldest whose engine answers; of several requests for one engine,
only the newest is tried. Requests are state in the journal, so an activation that the daemon's end
cut short is tried again afterwards. The engine is asked in a thread: loading takes moments, a first
token behind long prompts may take minutes. Also ends engines of full weights that nobody uses any
more. `training.policies` loads and compares adapters.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from houston_daemon.recorder.recorder_handle import RecorderHandle
from houston_daemon.service.daemon_log import LOGGER
from houston_daemon.service.engine_supervisor import (
    EngineSupervisor,
    engine_model_folder,
    resolve_engine,
    running_policy_engines,
)
from houston_daemon.training.policies import adapter_loader, policy_constraints, policy_files
from houston_daemon.training.policies.policy_files import model_hash
from houston_shared.config import LoadedConfiguration
from houston_shared.engine_settings import ENGINE_KINDS, EngineSettings
from houston_shared.errors import HoustonError
from houston_shared.policy_and_run_files import policies_folder
from houston_shared.store import policy_queries
from houston_shared.store.policy_queries import ActivationRow, PolicyRow
from houston_shared.store.store_reader import Reader


@dataclass(frozen=True, slots=True)
class ActivationResult:
    """What came of an activation."""

    asked: int
    ok: bool
    reason: str = ""
    unloaded: tuple[str, ...] = ()


class PolicyActivations:
    """Used from the supervisor's thread only."""

    def __init__(
        self,
        loaded: LoadedConfiguration,
        recorder: RecorderHandle,
        engines: EngineSupervisor,
        tell: Callable[[ActivationResult], None],
    ) -> None:
        """tell: called from a thread, with what the supervisor hands back to `on_result`."""
        self._loaded = loaded
        self._home = loaded.home
        self._recorder = recorder
        self._engines = engines
        self._tell = tell
        self._current_seq = 0
        """Sequence of what is being tried; 0 for nothing."""
        self._has_read_earlier = False
        """Whether engines of full weights were looked for that an earlier daemon has left."""
        self.active: dict[str, str] = {}
        """Engine → the policy that its new rollouts sample with; own models are left out."""

    def update(self) -> None:
        """Try the next request unless one is being tried; end requests that a newer one has
        replaced. Raises HoustonError."""
        with Reader(self._home) as reader:
            self.active = reader.run(policy_queries.list_active_policies())
            requests = [
                row for row in reader.run(policy_queries.list_activations()) if row.state == "asked"
            ]
            used = {row.engine for row in reader.run(policy_queries.list_policy_uses())}
            full = [row for row in reader.run(policy_queries.list_policies()) if row.kind == "full"]
        self._end_unused_engines(
            full, used | set(self.active.values()) | {row.policy for row in requests}
        )
        newest = {request.engine: request for request in requests}
        for request in requests:
            instead = newest[request.engine]
            if request is not instead and request.seq != self._current_seq:
                reason = f"{instead.by} asked for {instead.policy or 'its own model'} instead."
                self._end(ActivationResult(request.seq, False, reason))
        for request in newest.values():
            if not self._current_seq:
                self._try_or_end(request)

    def _try_or_end(self, request: ActivationRow) -> None:
        try:
            self._begin(request)
        except HoustonError as problem:
            self._end(ActivationResult(request.seq, False, _problem_sentence(problem)))

    def on_result(self, event: ActivationResult) -> None:
        """Take note of what came of one."""
        self._current_seq = 0
        try:
            self._end(event)
        except HoustonError as problem:
            LOGGER.warning("an activation is tried again: %s", problem)

    def _end(self, event: ActivationResult) -> None:
        LOGGER.info("activation %s: %s", event.asked, "active" if event.ok else event.reason)
        self._recorder.report_activation(event.asked, event.ok, event.reason, event.unloaded)

    def _begin(self, request: ActivationRow) -> None:
        """Begin when its engine answers; wait for that. Raises HoustonError where it cannot be."""
        if not request.policy:
            resolve_engine(self._loaded, request.engine)
            self._engines.watch([request.engine])
            self._end(ActivationResult(request.seq, True))
            return
        with Reader(self._home) as reader:
            policy = reader.run(policy_queries.find_policy(request.policy))
        if policy is None:
            raise HoustonError(f"There is no policy {request.policy}.")
        engine = resolve_engine(self._loaded, request.engine)
        _check_engine_kind(request.engine, engine, policy)
        full = policy.kind == "full"
        serving = policy.name if full else request.engine
        self._engines.watch([serving])
        if self._engines.reachable(serving) is None:
            state = self._engines.states.get(serving, "")
            if state.startswith("down"):
                raise HoustonError(f"Engine {serving} is {state}.")
            return
        if self._engines.is_starting(serving):
            return  # before any rollout asks for the policy, all have it that may be asked
        self._current_seq = request.seq
        key = adapter_loader.key_from_variable(engine.api_key_env)
        limit = policy_constraints.adapter_limit(engine)
        servers = [
            adapter_loader.AdapterServer(name, url or engine.url, key, limit)
            for name, url in self._engines.ready_urls(serving).items()
        ]
        work = threading.Thread(
            target=self._try,
            args=(request, policy, engine, servers),
            daemon=True,
            name="activation",
        )
        work.start()

    def _try(
        self,
        request: ActivationRow,
        policy: PolicyRow,
        engine: EngineSettings,
        servers: Sequence[adapter_loader.AdapterServer],
    ) -> None:
        """In a thread of its own; with all servers that are ready. One that comes back later is
        given the policy by the first rollout that asks it."""
        try:
            unloaded: tuple[str, ...] = ()
            if policy.kind == "lora" and (url := self._loaded.config.artifacts.url):
                from houston_daemon.artifacts.missing_files import fetch_missing_adapter

                fetch_missing_adapter(url, self._home, policy.folder)
            policy_files.require_policy_files(self._home, policy)
            for server in servers:
                self._check_base(request, policy, engine, server)
            if policy.kind == "full":
                for server in servers:
                    adapter_loader.try_model(server)
            else:
                folder = policies_folder(self._home) / policy.folder
                unloaded = self._load(request, policy, servers, folder)
            self._tell(ActivationResult(request.seq, True, unloaded=unloaded))
        except HoustonError as problem:
            self._tell(ActivationResult(request.seq, False, _problem_sentence(problem)))
        except Exception as problem:  # noqa: BLE001 whoever asked must hear of it
            LOGGER.exception("an activation failed")
            self._tell(ActivationResult(request.seq, False, f"{type(problem).__name__}: {problem}"))

    def _load(
        self,
        request: ActivationRow,
        policy: PolicyRow,
        servers: Sequence[adapter_loader.AdapterServer],
        folder: Path,
    ) -> tuple[str, ...]:
        with Reader(self._home) as reader:
            uses = reader.run(policy_queries.list_policy_uses())
            earlier = reader.run(policy_queries.list_activations(request.engine))
        used = {row.policy: row.rollouts for row in uses if row.engine == request.engine}
        order = {row.policy: row.seq for row in earlier if row.state == "active"}
        return adapter_loader.load_on_all(servers, policy.name, folder, used, order, policy.hash)

    def _check_base(
        self,
        request: ActivationRow,
        policy: PolicyRow,
        engine: EngineSettings,
        server: adapter_loader.AdapterServer,
    ) -> None:
        """Raise HoustonError unless the engine samples from the model that the policy changes.

        Full weights bring their own: any model that they come from says what engine they need.
        """
        folder = engine_model_folder(engine)
        if folder is None and policy.kind == "lora":
            root = adapter_loader.served_models(server).root
            folder = Path(root) if root and Path(root).is_dir() else None
        if folder is None:
            raise HoustonError(
                f"The model of engine {request.engine} cannot be compared with {policy.base}: "
                "it is not a folder on this machine.",
                next=f"Set `engines.{request.engine}.model` to the folder.",
            )
        with Reader(self._home) as reader:
            policies = reader.run(policy_queries.list_policies())
        serves = model_hash(folder, self._home)
        if policy.kind == "full" and serves in policy_constraints.base_hashes(policy, policies):
            return
        if serves != policy.base_hash:
            raise _wrong_base_error(
                request.engine,
                folder,
                policy,
                policy_constraints.full_weights_under(policy, policies),
            )

    def _end_unused_engines(self, full: list[PolicyRow], wanted_names: set[str]) -> None:
        """End engines of full weights that nobody uses any more: their GPUs are wanted.

        Those of an earlier daemon, too: a restart keeps engines, and what used one may be over.
        """
        if not self._has_read_earlier:
            self._engines.watch(running_policy_engines(self._home, full))
            self._has_read_earlier = True
        for name in {policy.name for policy in full} & self._engines.states.keys() - wanted_names:
            if name not in self._loaded.config.engines:
                LOGGER.info("engine %s is no longer used: ending it", name)
                self._engines.drop(name)


def _check_engine_kind(name: str, engine: EngineSettings, policy: PolicyRow) -> None:
    """Raise HoustonError for an engine of a kind that cannot sample with the policy."""
    if policy.kind == "lora" and not engine.lora:
        raise HoustonError(
            f"Engine {name} takes no adapters (`lora = false`), and {policy.name} is an adapter.",
            next=f"houston policy merge {policy.name} --out DIR, and import DIR as full weights",
        )
    if not policy_constraints.can_serve_policy(engine, policy.kind):
        reason = (
            "only a child of the daemon can be started with full weights"
            if policy.kind == "full" and engine.kind in ENGINE_KINDS
            else f"engines of kind {engine.kind} take no policies"
        )
        raise HoustonError(f"Engine {name} cannot sample with {policy.name}: {reason}.")


def _wrong_base_error(
    name: str, folder: Path, policy: PolicyRow, weights: PolicyRow | None
) -> HoustonError:
    """weights: full weights of the home that the policy is an adapter of."""
    if weights is None:
        return HoustonError(
            f"Engine {name} serves {folder}, which is not the model that {policy.name} was trained "
            f"from ({policy.base})."
        )
    return HoustonError(
        f"{policy.name} is an adapter of the full weights {weights.name}, and engine {name} serves "
        f"{folder}: adapters are loaded only where their own model is served.",
        next=f"houston policy merge {policy.name} --out DIR; houston policy import DIR --base "
        f"{policy.base} --name {policy.family}; then activate the result, which is full "
        "weights.",
    )


def _problem_sentence(problem: HoustonError) -> str:
    parts = (problem.cause, problem.next)
    return " ".join(part for part in parts if part)
