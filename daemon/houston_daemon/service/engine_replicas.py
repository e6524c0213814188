"""The states of the servers behind one engine, combined and each: ready, starting, draining, down.

An engine has one server, or several that serve the same model (`replicas`, `urls`). It is ready
while one of them is, and down when none is. This module makes what workers and people are told
about the servers. `engine_supervisor` watches them; `engines.replicated_engine` decides which one a
rollout uses.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import msgspec

from houston_shared.control_messages import ReplicaStatus
from houston_shared.engine_settings import EngineSettings, server_name
from houston_shared.wire import EngineReplica, ReplicaUse

MIN_DRAIN_SECONDS = 5.0
"""How long a server is waited for at least that was taken out of the configuration: a worker that
has just begun has not said yet where it samples."""


class StoppableWatch(Protocol):
    """Who watches a server."""

    def stop(self, keep: bool, seconds: float) -> None:
        """Watch it no more, and end it unless it is to be kept."""
        ...


@dataclass(slots=True)
class WatchedReplica:
    """One server."""

    watch: StoppableWatch
    state: str = "starting"
    """`ready`, `starting` or `down: <reason>`."""
    url: str = ""
    restarts: int = 0
    next_try: float = 0.0
    policies: tuple[str, ...] = ()
    """Adapters that it had at the last look."""
    draining_since: float | None = None
    """When it was taken out of the configuration (monotonic); None while it is in it."""


@dataclass(slots=True)
class WatchedEngine:
    """All servers of one engine; none for one that needs nothing (a script)."""

    replicas: dict[str, WatchedReplica] = field(default_factory=dict)
    is_replicated: bool = False
    """Whether its workers are told of its servers: it has, or may come to have, several."""
    down_since: float | None = None
    resumes: bool = True
    """Whether rollouts may be paused for it, by this daemon or an earlier one."""
    waiting: bool = False
    """Whether it was said that its rollouts wait."""

    @property
    def _active_replicas(self) -> dict[str, WatchedReplica]:
        """Those of the configuration, or else whatever there is."""
        replicas = {
            name: each for name, each in self.replicas.items() if each.draining_since is None
        }
        return replicas or self.replicas

    @property
    def state(self) -> str:
        """`ready` while one is; `starting` while one may come to be; else why all are down."""
        replicas = self._active_replicas
        states = [each.state for each in replicas.values()]
        for state in ("ready", "starting"):
            if state in states:
                return state
        if len(replicas) == 1:
            return states[0]
        reasons = "; ".join(f"{name}: {_down_reason(each)}" for name, each in replicas.items())
        return (
            f"down: none of {len(replicas)} replicas answers ({reasons})" if replicas else "ready"
        )

    @property
    def is_starting(self) -> bool:
        """Whether one of its servers has not been ready yet but may become so."""
        return any(each.state == "starting" for each in self._active_replicas.values())

    @property
    def url(self) -> str:
        """Where the first one answers that is ready; empty where workers know that themselves."""
        return next(
            (each.url for each in self._active_replicas.values() if each.state == "ready"), ""
        )

    @property
    def restarts(self) -> int:
        """How often its servers were brought up again."""
        return sum(each.restarts for each in self.replicas.values())

    @property
    def next_try(self) -> float:
        """When the next of its servers that are down is started again."""
        return min((each.next_try for each in self._active_replicas.values()), default=0.0)

    def ready_urls(self) -> dict[str, str]:
        """Name of each server that is ready, and where it answers."""
        replicas = self._active_replicas.items()
        return {name: each.url for name, each in replicas if each.state == "ready"}

    def announced_replicas(self) -> tuple[EngineReplica, ...]:
        """What its workers are told of its servers: of those that have an address by now."""
        return tuple(
            EngineReplica(name, each.url, _told_state(each), _down_reason(each))
            for name, each in self.replicas.items()
            if each.url
        )

    def statuses(self, uses: Iterable[ReplicaUse]) -> tuple[ReplicaStatus, ...]:
        """What people are told of its servers. uses: one for each rollout that keeps to one."""
        uses = tuple(uses)
        rollouts = Counter(use.replica for use in uses)
        requests: Counter[str] = Counter()
        for use in uses:
            requests[use.replica] += use.requests
        return tuple(
            ReplicaStatus(
                name,
                "draining" if _told_state(each) == "draining" else each.state,
                server_name(each.url) if each.url else "",
                rollouts[name],
                requests[name],
                each.policies,
                each.restarts,
            )
            for name, each in self.replicas.items()
        )

    def drained(self, uses: Iterable[ReplicaUse], now: float) -> list[str]:
        """Servers that were taken out of the configuration and that no rollout keeps to."""
        used = {use.replica for use in uses}
        return [
            name
            for name, each in self.replicas.items()
            if each.draining_since is not None
            and now - each.draining_since >= MIN_DRAIN_SECONDS
            and name not in used
        ]


def _told_state(replica: WatchedReplica) -> Literal["ready", "draining", "down"]:
    if replica.state != "ready":
        return "down"
    return "ready" if replica.draining_since is None else "draining"


def _down_reason(replica: WatchedReplica) -> str:
    return "" if replica.state == "ready" else replica.state.removeprefix("down: ")


def replica_names(name: str, engine: EngineSettings) -> tuple[str, ...]:
    """Names of an engine's servers: children by number, servers at `urls` by host and port. An
    engine with one server has one name, its own."""
    if engine.urls:
        return tuple(dict.fromkeys(map(server_name, engine.urls)))
    return (name, *(f"{name}#{number}" for number in range(2, engine.replicas + 1)))


def differs_in_servers_only(before: EngineSettings | None, after: EngineSettings | None) -> bool:
    """Whether an edit only adds or takes away servers that serve the same, and workers can be told
    of those that stay."""
    if before is None or after is None or after.url or before.addressed != after.addressed:
        return False
    if not is_replicated(before) and not is_replicated(after):
        return False
    return _without_servers(before) == _without_servers(after)


def is_replicated(engine: EngineSettings) -> bool:
    """Whether an engine has several servers, or is told of by `urls`."""
    return engine.replicas > 1 or bool(engine.urls)


def _without_servers(engine: EngineSettings) -> dict[str, object]:
    fields = msgspec.structs.asdict(engine)
    return {key: value for key, value in fields.items() if key not in ("url", "urls", "replicas")}
