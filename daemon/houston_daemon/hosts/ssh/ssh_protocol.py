"""The protocol between the two ends of an SSH host: frames, a struct for each request, errors.

Four bytes of length, then msgpack. The near end sends numbered requests and may cancel one; the far
end answers each once, in any order, with the type that `Host` promises or an error, which keeps its
type. Names of the request structs are on the wire: changing one means a new protocol version.
"""

import asyncio
import errno
import struct
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from houston_daemon.hosts.host_protocol import (
    NeedsPerson,
    TerminalBusy,
    TerminalDead,
    TerminalMissing,
)
from houston_shared.errors import ExitCode, HoustonError

MAX_MESSAGE_BYTES = 96 * 1024 * 1024
"""Bytes of one message; the largest honest one is a process's output of 64 MB."""
GREETING = b"\nhouston-host 1\n"
"""What the far side says first; whatever a login shell printed comes before it and is no message.
"""
_MAX_GREETING_NOISE = 65_536
_READ_BYTES = 1 << 18
_LENGTH_PREFIX = struct.Struct(">I")


class GarbledMessage(Exception):
    """The other end does not speak this protocol; the text says what came instead."""


def pack_frame(body: bytes) -> bytes:
    """One message, ready to be written. Raises ValueError when it is too long."""
    if len(body) > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message of {len(body)} bytes is longer than {MAX_MESSAGE_BYTES}")
    return _LENGTH_PREFIX.pack(len(body)) + body


async def read_frame(
    reader: asyncio.StreamReader, on_received: Callable[[], None] | None = None
) -> bytes | None:
    """The next message; None when the other end has gone, even in the middle of one.

    on_received: called at every part of a message that arrives. Raises GarbledMessage for an
    impossible length.
    """
    head = await _read_exactly(reader, _LENGTH_PREFIX.size, on_received)
    if head is None:
        return None
    (length,) = _LENGTH_PREFIX.unpack(head)
    if length > MAX_MESSAGE_BYTES:
        raise GarbledMessage(f"a message of {length} bytes was announced")
    return await _read_exactly(reader, length, on_received)


async def _read_exactly(
    reader: asyncio.StreamReader, count: int, on_received: Callable[[], None] | None
) -> bytes | None:
    parts: list[bytes] = []
    while count:
        try:
            part = await reader.read(min(count, _READ_BYTES))
        except ConnectionError:
            part = b""
        if not part:
            return None
        if on_received is not None:
            on_received()
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


async def read_greeting(reader: asyncio.StreamReader) -> None:
    """Read up to and with the greeting. Raises GarbledMessage when it does not come."""
    received = b""
    while GREETING not in received:
        byte = await reader.read(1)
        if not byte or len(received) > _MAX_GREETING_NOISE:
            noise = received.decode(errors="replace").strip()[-200:]
            raise GarbledMessage(f"it said {noise!r}" if noise else "it said nothing")
        received += byte


PROTOCOL_VERSION = 3
"""Raised whenever an older end would misunderstand a newer one."""


CLEANUP_LEASE = 2**62
"""Lease of who ends or frees what a rollout that is over has left: later than any worker's."""


class HostRequest(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base of what can be asked."""


class Hello(HostRequest, frozen=True, kw_only=True):
    """The first request: whose part of the host this is, and its sandbox. Answer: HostWelcome."""

    protocol: int = PROTOCOL_VERSION
    version: str
    rollout: str
    """Empty to be told about the machine only (`houston doctor`)."""
    root: str
    """Folder there; empty for the user's state folder and `key`."""
    key: str
    """Of the home that the rollout began in, for a root of its own."""
    home: str = ""
    """The home that asks, as `remote_part.name_home` says it; empty for who only looks, and from an
    earlier Houston, which `key` tells from others."""
    owner: str
    """The same for who needs the rollout's folder for itself, else empty."""
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


class HostWelcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the far end is."""

    version: str
    workspace: str
    inside: str
    trouble: str = ""
    """Why no process can be shut in there; empty when a trial worked. Only for doctor."""


class Prepare(HostRequest, frozen=True, kw_only=True):
    """`RolloutHost.prepare`; `source` is the name of a bundle, empty for none."""

    source: str
    begun: bool
    data: dict[str, str] = {}
    """Name → parcel of what is mapped at `/data/NAME`."""


class Present(HostRequest, frozen=True):
    """Whether the workspace is there."""


class HasBundle(HostRequest, frozen=True, kw_only=True):
    """Whether a bundle is there already."""

    name: str


class Piece(HostRequest, frozen=True, kw_only=True):
    """The next part of a bundle, a tar file; with `last`, it is unpacked."""

    name: str
    token: str
    data: bytes
    last: bool


class FindTerminal(HostRequest, frozen=True, kw_only=True):
    """`RolloutHost.terminal`."""

    name: str
    create: bool


class Terminals(HostRequest, frozen=True):
    """`RolloutHost.terminals`."""


class RunInTerminal(HostRequest, frozen=True, kw_only=True):
    """`HostTerminal.run`."""

    name: str
    command: str


class WaitFor(HostRequest, frozen=True, kw_only=True):
    """`HostTerminal.wait`; cancelling it ends the wait."""

    name: str
    seconds: float


class TypeText(HostRequest, frozen=True, kw_only=True):
    """`HostTerminal.type_text`."""

    name: str
    text: str


class ReadTerminalStatus(HostRequest, frozen=True, kw_only=True):
    """`HostTerminal.status`."""

    name: str


class ReadTerminalLines(HostRequest, frozen=True, kw_only=True):
    """`HostTerminal.lines`."""

    name: str
    start: int
    end: int | None


class SignalTerminal(HostRequest, frozen=True, kw_only=True):
    """`HostTerminal.signal`."""

    name: str
    signal: Literal["INT", "TERM", "KILL"]


class CloseTerminal(HostRequest, frozen=True, kw_only=True):
    """`HostTerminal.close`; answered with its last status."""

    name: str


class Spawn(HostRequest, frozen=True, kw_only=True):
    """`RolloutHost.spawn`; cancelling it stops the process."""

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


class UnrestoredPaths(HostRequest, frozen=True):
    """`RolloutHost.unrestored_paths`."""


class TakeLimitHits(HostRequest, frozen=True):
    """`RolloutHost.take_limit_hits`."""


class TakeSnapshot(HostRequest, frozen=True, kw_only=True):
    """`Snapshots.take`."""

    message: str
    hints: tuple[str, ...]
    mark: bool
    since: str


class DestroyTerminals(HostRequest, frozen=True):
    """`RolloutHost.destroy_terminals`; HoustonError where another home drives the rollout."""


class Free(HostRequest, frozen=True, kw_only=True):
    """`clean_rollout` of a rollout that is over, with its files. Answer: FreedSpace."""

    snapshots: bool


class Pack(HostRequest, frozen=True, kw_only=True):
    """Pack the workspace as it was at a snapshot as a tar file. Answer: PackedWorkspace."""

    commit: str


class PackedWorkspace(msgspec.Struct, frozen=True, kw_only=True):
    """What `Pack` made."""

    size: int
    lost: tuple[str, ...]
    """Paths that could not be brought back."""


class ReadPackedPart(HostRequest, frozen=True, kw_only=True):
    """Bytes of what was packed last, from an offset on; fewer where it ends."""

    at: int


class ReadTerminalLog(HostRequest, frozen=True, kw_only=True):
    """Bytes of [start, end) of a terminal's log, a part of them where they are many."""

    name: str
    start: int
    end: int


class Ping(HostRequest, frozen=True):
    """Nothing but an answer."""


class Other(HostRequest, frozen=True, kw_only=True):
    """A request to a service that the far end was given, in the service's own format."""

    service: str
    body: msgspec.Raw


AnyHostRequest = (
    Hello
    | Prepare
    | Present
    | HasBundle
    | Piece
    | FindTerminal
    | Terminals
    | RunInTerminal
    | WaitFor
    | TypeText
    | ReadTerminalStatus
    | ReadTerminalLines
    | SignalTerminal
    | CloseTerminal
    | Spawn
    | UnrestoredPaths
    | TakeLimitHits
    | TakeSnapshot
    | DestroyTerminals
    | Free
    | Pack
    | ReadPackedPart
    | ReadTerminalLog
    | Ping
    | Other
)


SHORT_REQUESTS = (
    Present
    | HasBundle
    | FindTerminal
    | Terminals
    | RunInTerminal
    | TypeText
    | ReadTerminalStatus
    | ReadTerminalLines
    | SignalTerminal
    | CloseTerminal
    | UnrestoredPaths
    | TakeLimitHits
    | ReadPackedPart
    | ReadTerminalLog
)
"""What takes no time by its nature; all else may take long where much is to be done."""


class Request(msgspec.Struct, frozen=True, tag=True):
    """One thing asked."""

    number: int
    ask: AnyHostRequest


class CancelRequest(msgspec.Struct, frozen=True, tag=True):
    """A request need not be continued; it is still answered."""

    number: int


class RemoteError(msgspec.Struct, frozen=True, kw_only=True):
    """An error on its way back."""

    kind: str
    """Name of its class."""
    words: tuple[Any, ...]
    """What the class is made from."""


class HostAnswer(msgspec.Struct, frozen=True):
    """What came of a request: a value, or an error."""

    number: int
    value: msgspec.Raw
    trouble: RemoteError | None = None


NearEndMessage = Request | CancelRequest
"""All that the near end says."""


ErrorFactory = Callable[..., Exception]


def _make_needs_person(cause: str, effect: str, next: str, code: int) -> NeedsPerson:
    return NeedsPerson(cause, effect, next, ExitCode(code))


def _make_houston_error(cause: str, effect: str, next: str, code: int) -> HoustonError:
    return HoustonError(cause, effect, next, ExitCode(code))


_ERROR_FACTORIES: dict[str, ErrorFactory] = {
    "TerminalMissing": TerminalMissing,
    "TerminalBusy": TerminalBusy,
    "TerminalDead": TerminalDead,
    "NeedsPerson": _make_needs_person,
    "HoustonError": _make_houston_error,
    "OSError": OSError,
}


def pack_error(problem: Exception) -> RemoteError:
    """An error as it is sent."""
    match problem:
        case TerminalMissing() | TerminalBusy() | TerminalDead():
            return RemoteError(kind=type(problem).__name__, words=problem.words)
        case HoustonError():
            kind = "NeedsPerson" if isinstance(problem, NeedsPerson) else "HoustonError"
            words = (problem.cause, problem.effect, problem.next, int(problem.code))
            return RemoteError(kind=kind, words=words)
        case OSError():
            number = problem.errno or errno.EIO
            return RemoteError(kind="OSError", words=(number, problem.strerror or str(problem)))
    problem_text = f"{type(problem).__name__}: {problem}"[:500]
    return RemoteError(
        kind="HoustonError", words=(f"The far side failed: {problem_text}.", "", "", 1)
    )


def unpack_error(trouble: RemoteError) -> Exception:
    """The error that was sent."""
    return _ERROR_FACTORIES[trouble.kind](*trouble.words)
