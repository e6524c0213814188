"""Messages between the supervisor, the process that talks to a Ray cluster, and actors.

Between the supervisor and that process (`ray_cluster`) they work as with the fork server: JSON over
a SOCK_SEQPACKET pair, and the same messages start workers and report their ends. This module adds
only what a cluster needs in addition: places, nodes, signals. Actors (`ray_actor`) are asked by
method calls, whose arguments and results are these structs as JSON, so nothing of ours is pickled.
"""

import msgspec

from houston_daemon.service.fork_server import StartWorker
from houston_shared.node_places import node_name


class ClusterSettings(msgspec.Struct, frozen=True):
    """What this process is started with."""

    address: str
    """As in `[ray] address`."""
    is_local_only: bool
    """Whether workers reach the recorder on this machine only."""


class PlaceRequest(msgspec.Struct, frozen=True, tag=True):
    """Find a node for a worker, and hold what it asks for there until it is started or let go."""

    name: str
    """A rollout, or SPARE_PLACE for the next worker that many share."""
    cpus: float = 0.0
    memory: int = 0
    """Bytes; 0 asks for none."""
    gpus: int = 0
    labels: dict[str, str] = {}
    node: str = ""
    """Ray's id of the node that it ran on last: where that lives, it goes there."""


SPARE_PLACE = "shared"


class ReleasePlace(msgspec.Struct, frozen=True, tag=True):
    """The place is not wanted any more."""

    name: str


class StartAtPlace(msgspec.Struct, frozen=True, tag=True):
    """Start a worker at a place, which is made where it is not there yet.

    A descriptor that comes along is the supervisor's side of what a shared worker has as its line.
    """

    worker: StartWorker
    place: PlaceRequest


class SignalWorker(msgspec.Struct, frozen=True, tag=True):
    """Send a signal to a worker."""

    rollout: str
    lease: int
    number: int


class PlaceFound(msgspec.Struct, frozen=True, tag=True):
    """A place is held, on this node."""

    name: str
    node: str


class PlacePending(msgspec.Struct, frozen=True, tag=True):
    """There is no place yet, and why."""

    name: str
    reason: str
    refused: bool = False
    """Whether the request is over, and is to be made again."""
    impossible: bool = False
    """Whether no node has so much, whatever ends there."""


class ClusterNode(msgspec.Struct, frozen=True, tag=True):
    """A node as it is now; said again when it changes."""

    id: str
    host: str
    """The machine's own name."""
    alive: bool
    cpus: float = 0.0
    memory: int = 0
    """Bytes."""
    gpus: float = 0.0
    labels: dict[str, str] = {}

    @property
    def name(self) -> str:
        """As people read it."""
        return node_name(self.id)


class ActorPlace(msgspec.Struct, frozen=True, tag=True):
    """Where an actor is."""

    node: str
    host: str
    gpus: tuple[int, ...] = ()
    """Numbers of the GPUs that Ray gave it."""


class WorkerOutput(msgspec.Struct, frozen=True, tag=True):
    """What a worker wrote, for its log."""

    text: str


class LineMessage(msgspec.Struct, frozen=True, tag=True):
    """What a shared worker said on its line."""

    data: str
