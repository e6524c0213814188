"""Requests to Ray and its answers, in our terms: nodes, places, actors, and why one waits.

A worker's place is a placement group of one bundle: Ray finds a node and reserves what was asked
for there, without a process. A place with GPUs is an actor instead, which is told which GPUs it
has. Calls block until the head answers; `ray_cluster` makes them in threads.
"""

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from houston_daemon.service.ray_messages import ClusterNode, PlaceRequest
from houston_shared.config_sections import LOCAL_CLUSTER

IMPOSSIBLE = "asks for "
"""How a reason begins that only another node can end."""
STORE_BYTES = 80_000_000
"""Object store of a cluster of our own: workers put nothing there, and Ray wants no less."""
WORKERS_PER_ACTOR = 10_000
"""Calls that run at the same time in the actor of a node: Ray wants a limit."""
MIN_WORKER_CPUS = 0.0001
"""Of a place that asks for nothing: a bundle has to ask for something, and Ray counts in these."""
_MEBIBYTE = 1 << 20
_CREATED = "CREATED"


def connect(address: str) -> None:
    """Join a cluster, or start one. Raises whatever Ray raises."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    quiet = {"log_to_driver": False, "logging_level": "WARNING", "namespace": "houston"}
    if address == LOCAL_CLUSTER:
        # GPUs of this machine stay with the ledger of the home, which engines lease from, too.
        own = {"num_gpus": 0, "include_dashboard": False, "object_store_memory": STORE_BYTES}
        ray.init(address=LOCAL_CLUSTER, **own, **quiet)
    else:
        ray.init(address=address, **quiet)


def read_nodes() -> tuple[list[ClusterNode], dict[str, float]]:
    """All nodes, lost ones too, and what is unused in the whole cluster (memory in bytes)."""
    import ray

    nodes = []
    for stands in ray.nodes():
        offers = stands.get("Resources", {})
        node = ClusterNode(
            id=stands["NodeID"],
            host=stands["NodeManagerHostname"],
            alive=stands["Alive"],
            cpus=offers.get("CPU", 0.0),
            memory=int(offers.get("memory", 0)),
            gpus=offers.get("GPU", 0.0),
            labels=_own_labels(stands.get("Labels") or {}),
        )
        nodes.append(node)
    return nodes, ray.available_resources()


def make_group(request: PlaceRequest, node: str) -> Any:
    """A placement group that holds what a request asks for. node: Ray's id of the preferred node;
    another one is used if that has no room."""
    from ray.util.placement_group import placement_group

    bundle: dict[str, float] = {"CPU": max(request.cpus, MIN_WORKER_CPUS)}
    if request.memory:
        bundle["memory"] = request.memory
    selector = [request.labels] if request.labels else None
    return placement_group(
        [bundle],
        strategy="STRICT_PACK",
        _soft_target_node_id=node or None,
        bundle_label_selector=selector,
    )


def read_groups() -> dict[str, str]:
    """Placement group → the node that it is on, of those that have one."""
    from ray.util.placement_group import placement_group_table

    return {
        name: stands["bundles_to_node_id"][0]
        for name, stands in placement_group_table().items()
        if stands["state"] == _CREATED
    }


def remove_group(group: Any) -> None:
    """Let go what it holds."""
    from ray.util.placement_group import remove_placement_group

    remove_placement_group(group)


def make_gpu_actor(request: PlaceRequest) -> Any:
    """An actor that asks for what the request says; Ray places it when it can."""
    options: dict[str, Any] = {"num_cpus": request.cpus, "num_gpus": request.gpus}
    options["scheduling_strategy"] = "SPREAD"
    if request.memory:
        options["memory"] = request.memory
    if request.labels:
        options["label_selector"] = request.labels
    if request.node:
        options["scheduling_strategy"] = _on_node(request.node, soft=True)
    return _make_actor(**options)


def make_node_actor(node: str) -> Any:
    """The actor of a node, which asks for nothing itself."""
    options = {"num_cpus": 0, "max_concurrency": WORKERS_PER_ACTOR}
    return _make_actor(scheduling_strategy=_on_node(node, soft=False), **options)


def _make_actor(**options: Any) -> Any:
    import ray

    from houston_daemon.service.ray_actor import WorkerActor

    return ray.remote(WorkerActor).options(max_restarts=0, **options).remote()


def _on_node(node: str, soft: bool) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=soft)


def kill_actor(actor: Any) -> None:
    """End an actor and what it runs."""
    import ray

    with contextlib.suppress(ray.exceptions.RayError):
        ray.kill(actor, no_restart=True)


def is_of_actor(problem: Exception) -> bool:
    """Whether an error means that an actor ended or is unreachable; else only its call failed."""
    import ray

    return isinstance(problem, ray.exceptions.RayActorError)


def may_be_lost(problem: Exception) -> bool:
    """Whether the node was lost, or may have been: Ray reports an ended actor at once, a node only
    when that has been silent for a while."""
    import ray

    if isinstance(problem, ray.exceptions.ActorUnavailableError):
        return True
    return "its node has died" in str(problem)


def in_one_line(problem: Exception) -> str:
    """What Ray said, which takes many lines."""
    return " ".join(str(problem).split())[:300]


def _own_labels(labels: dict[str, str]) -> dict[str, str]:
    """Without what Ray itself says of every node."""
    return {name: value for name, value in labels.items() if name != "ray.io/node-id"}


def waiting_reason(
    request: PlaceRequest, nodes: Sequence[ClusterNode], free: dict[str, float]
) -> str:
    """Why a request has no place. free: what Ray says is unused in the whole cluster, memory in
    bytes."""
    demand = _describe_request(request)
    living = [node for node in nodes if node.alive]
    if not any(_fits(request, node) for node in living):
        offers = "; ".join(_describe_offer(node) for node in living[:4]) or "there is none"
        more = f"; and {len(living) - 4} more" if len(living) > 4 else ""
        return f"{IMPOSSIBLE}{demand}, more than any node has ({offers}{more})"
    if all(
        amount <= free.get(name, 0.0)
        for name, amount in (
            ("CPU", request.cpus),
            ("memory", request.memory),
            ("GPU", request.gpus),
        )
    ):
        return f"waits for Ray to place it; asks for {demand}"
    unused = [_amount(free.get("CPU", 0.0), "CPU")] if request.cpus else []
    unused += [f"{free.get('memory', 0.0) / _MEBIBYTE:,.0f} MB"] if request.memory else []
    unused += [_amount(free.get("GPU", 0.0), "GPU")] if request.gpus else []
    return (
        f"waits for {demand} on one node; free in the whole cluster: {', '.join(unused) or 'any'}"
    )


def _fits(request: PlaceRequest, node: ClusterNode) -> bool:
    """Whether a node that had nothing else to do could have it."""
    enough = (
        request.cpus <= node.cpus and request.memory <= node.memory and request.gpus <= node.gpus
    )
    return enough and all(
        _label_fits(value, node.labels.get(name)) for name, value in request.labels.items()
    )


def _label_fits(wanted: str, value: str | None) -> bool:
    """By Ray's rules: a value, `!value`, `in(a, b)` or `!in(a, b)`."""
    wanted, negated = wanted.removeprefix("!"), wanted.startswith("!")
    values = [wanted]
    if wanted.startswith("in(") and wanted.endswith(")"):
        values = [each.strip() for each in wanted[3:-1].split(",")]
    return (value in values) != negated


def _amount(number: float, unit: str) -> str:
    return f"{number:g} {unit}{'' if number == 1 else 's'}"


def _describe_request(request: PlaceRequest) -> str:
    parts = [_amount(request.cpus, "CPU")] if request.cpus else []
    parts += [f"{request.memory / _MEBIBYTE:,.0f} MB"] if request.memory else []
    parts += [_amount(request.gpus, "GPU")] if request.gpus else []
    parts += [f"{name}={value}" for name, value in request.labels.items()]
    return ", ".join(parts) or "a node"


def _describe_offer(node: ClusterNode) -> str:
    labels = "".join(f", {name}={value}" for name, value in sorted(node.labels.items()))
    gpus = f", {_amount(node.gpus, 'GPU')}" if node.gpus else ""
    return (
        f"{node.name}: {_amount(node.cpus, 'CPU')}, {node.memory / _MEBIBYTE:,.0f} MB{gpus}{labels}"
    )
