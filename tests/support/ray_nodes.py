"""Nodes of a Ray cluster, all on this machine: each has a raylet of its own, and can be killed.

Processes of a node have the environment that the test gives; workers inherit it.
"""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.lossy_link import LossyLink
from tests.support.station import command_line


class RayNodes:
    """A head that runs nothing, and nodes by name."""

    def __init__(self, environment: Mapping[str, str], port: int = 0, address: str = "") -> None:
        """environment: what processes of nodes have besides. port: of the head; 0 takes any.
        address: of this machine, where nodes behind a link are to reach it."""
        from ray.cluster_utils import Cluster

        self._environment = environment
        head: dict[str, Any] = {"num_cpus": 0, "include_dashboard": False}
        if port:
            head["gcs_server_port"] = port
        self._here = {"node_ip_address": address} if address else {}
        with self._around():
            self._cluster = Cluster(initialize_head=True, head_node_args={**head, **self._here})
        self._nodes: dict[str, Any] = {}

    @property
    def address(self) -> str:
        """Of its head."""
        return str(self._cluster.address)

    def add(self, name: str, cpus: int = 4, **more: Any) -> None:
        """A node whose label `name` is its name."""
        with self._around():
            more["labels"] = {"name": name, **more.get("labels", {})}
            self._nodes[name] = self._cluster.add_node(num_cpus=cpus, **{**self._here, **more})

    def add_behind(self, link: LossyLink, name: str, cpus: int = 4) -> None:
        """A node in the network namespace of a link, which reaches this machine over that."""
        with link.entered():
            self.add(name, cpus, node_ip_address=link.there)

    def kill(self, name: str) -> None:
        """End a node as a power cut would: all its processes, and what they run, its own first, so
        that none has time to say that another has ended."""
        node = self._nodes.pop(name)
        for process in descendants(node.all_processes["raylet"][0].process.pid):
            os.kill(process, signal.SIGKILL)
        self._cluster.remove_node(node, allow_graceful=False)

    def name_of(self, pid: int) -> str:
        """The node that a process runs on."""
        for name, node in self._nodes.items():
            if pid in descendants(node.all_processes["raylet"][0].process.pid):
                return name
        raise LookupError(pid)

    def kill_head(self) -> None:
        """End the head, and leave the nodes."""
        self._cluster.head_node.kill_gcs_server(check_alive=False)

    def close(self) -> None:
        """End all of it."""
        self._cluster.shutdown()

    @contextmanager
    def _around(self) -> Iterator[None]:
        before = dict(os.environ)
        os.environ.update(self._environment)
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def descendants(pid: int) -> list[int]:
    """A process, those that it has started, and those that they have, in this order."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = parent_of(int(entry.name))
        except OSError:  # it has ended
            continue
        children.setdefault(parent, []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def parent_of(pid: int) -> int:
    """Process id of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def actor_of(worker: int) -> int:
    """The actor that runs a worker: its process is a child of the actor's fork server."""
    actor = parent_of(parent_of(worker))
    assert "WorkerActor" in command_line(Path(f"/proc/{actor}"))
    return actor
