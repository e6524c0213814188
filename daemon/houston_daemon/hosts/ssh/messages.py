"""What the two ends of an SSH host say to each other: one struct for each thing that is asked.

The near end asks in numbered requests and may take one back; the far end answers each once, in any
order. What comes back is the type that `protocol.Host` promises for it.
"""

from typing import Any, Literal

import msgspec

PROTOCOL = 2
"""Raised whenever an older end would misunderstand a newer one."""


OVER = 2**62
"""Lease of who ends or frees what a rollout that is over has left: later than any worker's."""


class Ask(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base of what can be asked."""


class Hello(Ask, frozen=True, kw_only=True):
    """First of all: whose part of the host this is, and how it is shut in. Answer: Welcome."""

    protocol: int = PROTOCOL
    version: str
    rollout: str
    """Empty to be told about the machine only (`houston doctor`)."""
    root: str
    """Folder there; empty for the user's state folder and `key`."""
    key: str
    """Of the home, for a root of its own."""
    owner: str
    lease: int = 0
    """Of the worker that asks: an older one is refused while a later one is served."""
    reads: bool = False
    """Only to look at what is there: whoever serves the rollout goes on."""
    sandbox: Literal["bubblewrap", "none"]
    network: bool
    read: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    gpus: bool = False
    environment: dict[str, str] = {}
    processes: int = 0
    memory_mb: int = 0
    shm_mb: int = 0
    file_mb: int = 0
    workspace_mb: int = 0
    together_mb: int = 0
    """Memory of all rollouts there."""
    activate: str = ""
    """Folder there of a virtual or conda environment."""
    past: tuple[str, str] | None = None
    """Of a branch: the rollout there that it comes from, and the snapshot."""


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the far end is."""

    version: str
    workspace: str
    inside: str
    trouble: str = ""
    """Why no process can be shut in there; empty when a trial worked. Only for doctor."""


class Prepare(Ask, frozen=True, kw_only=True):
    """`Host.prepare`; `source` is the name of a parcel, empty for none."""

    source: str
    begun: bool
    data: dict[str, str] = {}
    """Name → parcel of what is mapped at `/data/NAME`."""


class Present(Ask, frozen=True):
    """Whether the workspace is there."""


class HasParcel(Ask, frozen=True, kw_only=True):
    """Whether a folder was brought there already."""

    name: str


class Piece(Ask, frozen=True, kw_only=True):
    """The next part of a parcel, a tar file; with `last`, it is unpacked."""

    name: str
    token: str
    data: bytes
    last: bool


class FindTerminal(Ask, frozen=True, kw_only=True):
    """`Host.terminal`."""

    name: str
    create: bool


class Terminals(Ask, frozen=True):
    """`Host.terminals`."""


class RunIn(Ask, frozen=True, kw_only=True):
    """`Terminal.run`."""

    name: str
    command: str


class WaitFor(Ask, frozen=True, kw_only=True):
    """`Terminal.wait`; taking it back ends the waiting."""

    name: str
    seconds: float


class TypeInto(Ask, frozen=True, kw_only=True):
    """`Terminal.type_text`."""

    name: str
    text: str


class StatusOf(Ask, frozen=True, kw_only=True):
    """`Terminal.status`."""

    name: str


class LinesOf(Ask, frozen=True, kw_only=True):
    """`Terminal.lines`."""

    name: str
    start: int
    end: int | None


class SignalTo(Ask, frozen=True, kw_only=True):
    """`Terminal.signal`."""

    name: str
    signal: Literal["INT", "TERM", "KILL"]


class CloseTerminal(Ask, frozen=True, kw_only=True):
    """`Terminal.close`; answered with its last status."""

    name: str


class Spawn(Ask, frozen=True, kw_only=True):
    """`Host.spawn`; taking it back stops the process."""

    command: tuple[str, ...]
    seconds: float
    writable: bool
    parcels: dict[str, str]
    """`extra_read`: a folder at the near end → its parcel. A word of the command that is such a
    folder becomes the one there."""
    environment: dict[str, str]
    output_limit: int
    cwd: str
    network: bool


class NotBroughtBack(Ask, frozen=True):
    """`Host.not_brought_back`."""


class LimitsMet(Ask, frozen=True):
    """`Host.limits_met`."""


class TakeSnapshot(Ask, frozen=True, kw_only=True):
    """`Snapshots.take`."""

    message: str
    hints: tuple[str, ...]
    mark: bool
    since: str


class Restore(Ask, frozen=True, kw_only=True):
    """`Snapshots.restore`; `into` is a folder there."""

    commit: str
    into: str


class DestroyTerminals(Ask, frozen=True):
    """`Host.destroy_terminals`."""


class Free(Ask, frozen=True, kw_only=True):
    """`freeing.free` of a rollout that is over. Answer: `freeing.Freed`."""

    snapshots: bool


class Pack(Ask, frozen=True, kw_only=True):
    """Have the workspace as it was at a snapshot packed as a tar file. Answer: Packed."""

    commit: str


class Packed(msgspec.Struct, frozen=True, kw_only=True):
    """What `Pack` made."""

    size: int
    lost: tuple[str, ...]
    """Paths that could not be brought back."""


class PartOf(Ask, frozen=True, kw_only=True):
    """Bytes of what was packed last, from an offset on; fewer where it ends."""

    at: int


class LogOf(Ask, frozen=True, kw_only=True):
    """Bytes of [start, end) of a terminal's log, a part of them where they are many."""

    name: str
    start: int
    end: int


class Ping(Ask, frozen=True):
    """Nothing but an answer."""


class Other(Ask, frozen=True, kw_only=True):
    """Something for a service that was given to the far end, in its own words."""

    service: str
    body: msgspec.Raw


Asks = (
    Hello
    | Prepare
    | Present
    | HasParcel
    | Piece
    | FindTerminal
    | Terminals
    | RunIn
    | WaitFor
    | TypeInto
    | StatusOf
    | LinesOf
    | SignalTo
    | CloseTerminal
    | Spawn
    | NotBroughtBack
    | LimitsMet
    | TakeSnapshot
    | Restore
    | DestroyTerminals
    | Free
    | Pack
    | PartOf
    | LogOf
    | Ping
    | Other
)


SHORT = (
    Present
    | HasParcel
    | FindTerminal
    | Terminals
    | RunIn
    | TypeInto
    | StatusOf
    | LinesOf
    | SignalTo
    | CloseTerminal
    | NotBroughtBack
    | LimitsMet
    | PartOf
    | LogOf
)
"""What takes no time by its nature; all else may take long where much is to be done."""


class Request(msgspec.Struct, frozen=True, tag=True):
    """One thing asked."""

    number: int
    ask: Asks


class TakeBack(msgspec.Struct, frozen=True, tag=True):
    """What was asked need go on no longer; it is still answered."""

    number: int


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """An error on its way back."""

    kind: str
    """Name of its class."""
    words: tuple[Any, ...]
    """What the class is made from."""


class Answer(msgspec.Struct, frozen=True):
    """What came of a request: a value, or an error."""

    number: int
    value: msgspec.Raw
    trouble: Trouble | None = None


Said = Request | TakeBack
"""All that the near end says."""
