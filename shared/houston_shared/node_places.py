"""Where rollouts run in a cluster, or wait to run, as a file in the home.

The daemon writes it; commands and the console read it, also while the daemon is down. A home whose
workers all run on the daemon's machine has none. The cluster decides which node a rollout gets.
"""

from pathlib import Path

import msgspec

from houston_shared.atomic_file import read_json_file
from houston_shared.home import Home


class NodePlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node of a cluster."""

    node: str = ""
    """The cluster's id of it; empty for none."""
    host: str = ""
    """The machine's own name."""

    @property
    def words(self) -> str:
        """As people read it."""
        return f"{self.host} (node {node_name(self.node)})" if self.node else ""


class NodePlaces(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of the file."""

    last: dict[str, NodePlace] = {}
    """Rollout → the node that its newest worker ran on; its workspace may lie there."""
    waiting: dict[str, str] = {}
    """Rollout → why it waits for a node."""


def node_name(node: str) -> str:
    """The first characters of an id: enough to find it among Ray's own words."""
    return node[:8]


def node_places_file(home: Home) -> Path:
    """Where it lies."""
    return home.path / "nodes.json"


def read_node_places(home: Home) -> NodePlaces:
    """As it was written last; empty where there is none, or a power cut left half."""
    return read_json_file(node_places_file(home), NodePlaces) or NodePlaces()
