"""How the daemon stands, in lines: for `houston daemon status` and the console.

A line has a label (`engine`, `node`, `waits`, …) and words. What the daemon's answer holds is
`control_messages.Status`; where lines are shown is not known here.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from houston_shared.control_messages import NodeStatus, ReplicaStatus, Status
from houston_shared.store.rollout_queries import EngineWaitedFor
from houston_shared.times_and_counts import format_duration, join_first, pluralize

SHOWN_NAMES = 4
"""Rollouts that a line names; --json has all of them."""


class StatusLine(NamedTuple):
    """One line."""

    label: str
    words: str
    bad: bool = False
    """Whether somebody should look at it."""


def status_lines(status: Status, waiting: Sequence[EngineWaitedFor]) -> Iterator[StatusLine]:
    """Everything, the daemon itself first. waiting: engines whose answers rollouts wait for."""
    counts = ", ".join(f"{count} {state}" for state, count in sorted(status.rollouts.items()))
    yield StatusLine("rollouts", f"{counts or 'none'}; {pluralize(status.workers, 'worker')}")
    yield from _resource_lines(status, waiting)
    yield StatusLine(
        "store",
        f"{status.queue} messages wait, commit p99 {status.commit_p99_ms:.1f} ms, "
        f"ack p99 {status.ack_p99_ms:.1f} ms, WAL {status.wal_mb:.1f} MB, "
        f"disk {status.disk_free_mb:,.0f} MB free",
    )
    yield StatusLine("limits", f"of processes and memory: by {status.limits}")
    yield StatusLine("consoles", f"{status.consoles}; search lags {status.search_lag} events")
    yield StatusLine("backup", _backup_words(status))
    restarts = ", ".join(
        pluralize(count, part.removesuffix("s").replace("_", " "))
        for part, count in status.restarts.items()
        if count
    )
    if restarts:
        yield StatusLine("restarts", f"{restarts}, since the daemon's start")
    for name, words in sorted(status.troubles.items()):
        yield StatusLine("trouble", f"{name}: {words}", True)
    if status.last_error:
        yield StatusLine("last error", status.last_error, True)


def _resource_lines(status: Status, waiting: Sequence[EngineWaitedFor]) -> Iterator[StatusLine]:
    """Engines, policies, trainings, GPUs and nodes, and what waits for them."""
    for name, state in sorted(status.engines.items()):
        yield StatusLine("engine", f"{name}: {state}", state.startswith(("down", "failing")))
        for replica in status.replicas.get(name, ()):
            is_down = replica.state.startswith("down")
            yield StatusLine("replica", f"  {replica_words(replica)}", is_down)
    for name, policy in sorted(status.policies.items()):
        yield StatusLine("policy", f"{name}: new rollouts sample with {policy}")
    for name, words in sorted(status.training.items()):
        yield StatusLine("training", f"{name}: {words}")
    for name, words in status.gpus.items():
        yield StatusLine("gpus", f"{name}: {words}", name == "waiting")
    for node in status.nodes:
        yield StatusLine("node", node_words(node), not node.alive)
    for reason, names in _by_reason(status.unplaced).items():
        yield StatusLine("waits", f"{join_first(names, SHOWN_NAMES)}: {reason}", True)
    for engine in waiting:
        yield StatusLine("engine", f"{engine.engine}: {engine.sentence}", True)


def title_words(status: Status) -> str:
    """State, home, process and version."""
    up = format_duration(status.uptime)
    return (
        f"{status.state} on {status.home} (pid {status.pid}, for {up}, epoch {status.epoch}, "
        f"{status.version})"
    )


def node_words(node: NodeStatus) -> str:
    """One node of the cluster: what it offers, and what runs there."""
    gpus = f", {node.gpus:g} GPUs" if node.gpus else ""
    labels = "".join(f", {name}={value}" for name, value in sorted(node.labels.items()))
    lost = "" if node.alive else "lost; "
    offer = f"{node.cpus:g} CPUs, {node.memory_mb:,} MB{gpus}{labels}"
    runs = f": {join_first(node.rollouts, SHOWN_NAMES)}" if node.rollouts else ""
    workers = pluralize(node.workers, "worker")
    return f"{node.name} on {node.host}: {lost}{offer}; {workers}{runs}"


def replica_words(replica: ReplicaStatus) -> str:
    """How one server stands, and what it is used for."""
    at = f" at {replica.address}" if replica.address not in ("", replica.name) else ""
    parts = [f"{replica.name}{at}: {replica.state}", pluralize(replica.rollouts, "rollout")]
    parts += [f"{pluralize(replica.requests, 'sample')} under way"] if replica.requests else []
    parts += [f"has {', '.join(replica.policies)}"] if replica.policies else []
    parts += [f"brought up again {pluralize(replica.restarts, 'time')}"] if replica.restarts else []
    return "; ".join(parts)


def _by_reason(unplaced: Mapping[str, str]) -> dict[str, list[str]]:
    """Why rollouts wait for a node → those that do."""
    names: dict[str, list[str]] = {}
    for name, reason in sorted(unplaced.items()):
        names.setdefault(reason, []).append(name)
    return names


def _backup_words(status: Status) -> str:
    if status.backup_age is None:
        return "none; next: houston backup"
    return f"{format_duration(status.backup_age)} ago, event {status.backup_event}"
