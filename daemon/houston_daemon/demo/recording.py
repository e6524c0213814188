"""A rollout as a file: the messages its worker sent and the guidance people gave, as JSON Lines.

`python -m houston_daemon.demo.recording HOME ROLLOUT FILE` writes one, packed with zstd where FILE
ends with `.zst`; `playback` plays it into another home, where it becomes a rollout like any other.
Times are those of the playback.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from houston_shared import wire
from houston_shared.home import Home
from houston_shared.records import (
    ForkBody,
    Guidance,
    Head,
    Intent,
    ObservationBody,
    Result,
    SampleBody,
)
from houston_shared.store import journal
from houston_shared.store.plan import Ask, Plan
from houston_shared.store.queries import guidance
from houston_shared.store.reader import Reader

Line = (
    wire.StoreHead
    | wire.StoreSample
    | wire.StoreIntent
    | wire.StoreResult
    | wire.StoreObservation
    | wire.StoreFork
    | wire.Guide
)


class Recorded(msgspec.Struct, frozen=True):
    """One line of a recording."""

    seq: int
    """The journal sequence that the message had where it was recorded; 0 for guidance."""
    message: Line


decode = msgspec.json.Decoder(Recorded).decode
PACKED = ".zst"
_LEVEL = 19
"""Of zstd: a recording is written once and read often."""

_BODIES = {
    "head": Head,
    "sample": SampleBody,
    "intent": Intent,
    "result": Result,
    "observation": ObservationBody,
    "fork": ForkBody,
}


def recorded(rollout: str) -> Plan[list[Recorded]]:
    """Everything that made the rollout what it is, in the order it was stored.

    Guidance stands before the observation that it was joined to.
    """
    events = yield from journal.events("rollout = ? AND part IS NOT NULL ORDER BY seq", (rollout,))
    spoken = yield from guidance.of_rollout(rollout)
    active = dict((yield Ask("SELECT step, active_us FROM steps WHERE rollout = ?", (rollout,))))
    lines: list[Recorded] = []
    for event in events:
        raw = yield from journal.body(event)
        if raw is None:
            raise SystemExit(f"event {event.seq} was erased: this rollout cannot be recorded")
        if event.kind == "observation":
            lines += [Recorded(0, _guide(said)) for said in spoken if said.step == event.step]
        lines.append(Recorded(event.seq, _message(event, raw, active.get(event.step, 0))))
    return lines


def _guide(said: Guidance) -> wire.Guide:
    return wire.Guide(id="", rollout="", text=said.text, mode=said.mode, claimed=said.author)


def _message(event: journal.Event, raw: bytes, active_us: int) -> Line:
    """The message that stored an event; active_us: of the rollout when its step was closed."""
    body = msgspec.msgpack.decode(raw, type=_BODIES[event.kind])
    place: dict[str, Any] = {"rollout": "", "lease": 0, "active_us": active_us}
    at: dict[str, Any] = {**place, "step": event.step, "attempt": event.attempt}
    index = int((event.part or "").rpartition(".")[2]) if "." in (event.part or "") else 0
    match body:
        case Head():
            return wire.StoreHead(**place, head=body)
        case SampleBody():
            return wire.StoreSample(**at, part=event.part or "sample", sample=body)
        case Intent():
            return wire.StoreIntent(**at, index=index, intent=body)
        case Result():
            return wire.StoreResult(**at, index=index, result=body)
        case ObservationBody():
            return wire.StoreObservation(**at, observation=body)
        case _:
            return wire.StoreFork(**place, step=event.step, fork=body)


def read(file: Path) -> list[Recorded]:
    """The lines of a recording, packed or not. Raises msgspec.DecodeError for what is none."""
    data = file.read_bytes()
    if file.suffix == PACKED:
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return [decode(line) for line in data.splitlines()]


def write(home: Home, rollout: str, file: Path) -> None:
    """Write the recording of one rollout."""
    with Reader(home) as reader:
        lines = reader.run(recorded(rollout))
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    file.write_bytes(zstandard.compress(data, _LEVEL) if file.suffix == PACKED else data)


def main(arguments: list[str]) -> None:
    """Write the recording of one rollout into a file."""
    home, rollout, file = arguments
    write(Home(Path(home).absolute()), rollout, Path(file))


if __name__ == "__main__":
    main(sys.argv[1:])
