"""A rollout as a file: the messages its worker sent and the guidance people gave, as JSON Lines.

`python -m houston_daemon.demo.rollout_recording HOME ROLLOUT FILE` writes one, packed with zstd
where FILE ends with `.zst`; `recording_player` plays it into another home, where it becomes a
rollout like any other. Times are those of the playback.
"""

import sys
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from houston_shared import wire
from houston_shared.home import Home
from houston_shared.records import (
    CallIntent,
    ContextHead,
    ForkBody,
    Guidance,
    ObservationBody,
    SampleBody,
    ToolResult,
)
from houston_shared.store import annotation_queries, journal_events
from houston_shared.store.journal_events import ReadPlan, RunSql
from houston_shared.store.store_reader import Reader

RecordedMessage = (
    wire.StoreHead
    | wire.StoreSample
    | wire.StoreIntent
    | wire.StoreResult
    | wire.StoreObservation
    | wire.StoreFork
    | wire.Guide
)


class RecordingLine(msgspec.Struct, frozen=True):
    """One line of a recording."""

    seq: int
    """The journal sequence that the message had where it was recorded; 0 for guidance."""
    message: RecordedMessage


decode_line = msgspec.json.Decoder(RecordingLine).decode
PACKED_SUFFIX = ".zst"
_ZSTD_LEVEL = 19
"""Of zstd: a recording is written once and read often."""

_BODY_TYPES = {
    "head": ContextHead,
    "sample": SampleBody,
    "intent": CallIntent,
    "result": ToolResult,
    "observation": ObservationBody,
    "fork": ForkBody,
}


def plan_recording(rollout: str) -> ReadPlan[list[RecordingLine]]:
    """Everything that made the rollout what it is, in the order it was stored.

    Guidance stands before the observation that it was joined to.
    """
    events = yield from journal_events.select_events(
        "rollout = ? AND part IS NOT NULL ORDER BY seq", (rollout,)
    )
    all_guidance = yield from annotation_queries.list_guidance(rollout)
    active = dict((yield RunSql("SELECT step, active_us FROM steps WHERE rollout = ?", (rollout,))))
    lines: list[RecordingLine] = []
    for event in events:
        raw = yield from journal_events.read_event_body(event)
        if raw is None:
            raise SystemExit(f"event {event.seq} was erased: this rollout cannot be recorded")
        if event.kind == "observation":
            lines += [
                RecordingLine(0, _guidance_message(guidance))
                for guidance in all_guidance
                if guidance.step == event.step
            ]
        lines.append(
            RecordingLine(event.seq, _stored_message(event, raw, active.get(event.step, 0)))
        )
    return lines


def _guidance_message(guidance: Guidance) -> wire.Guide:
    return wire.Guide(
        id="", rollout="", text=guidance.text, mode=guidance.mode, claimed=guidance.author
    )


def _stored_message(
    event: journal_events.JournalEvent, raw: bytes, active_us: int
) -> RecordedMessage:
    """The message that stored an event; active_us: of the rollout when its step was closed."""
    body = msgspec.msgpack.decode(raw, type=_BODY_TYPES[event.kind])
    place: dict[str, Any] = {"rollout": "", "lease": 0, "active_us": active_us}
    at: dict[str, Any] = {**place, "step": event.step, "attempt": event.attempt}
    index = int((event.part or "").rpartition(".")[2]) if "." in (event.part or "") else 0
    match body:
        case ContextHead():
            return wire.StoreHead(**place, head=body)
        case SampleBody():
            return wire.StoreSample(**at, part=event.part or "sample", sample=body)
        case CallIntent():
            return wire.StoreIntent(**at, index=index, intent=body)
        case ToolResult():
            return wire.StoreResult(**at, index=index, result=body)
        case ObservationBody():
            return wire.StoreObservation(**at, observation=body)
        case _:
            return wire.StoreFork(**place, step=event.step, fork=body)


def read_recording(file: Path) -> list[RecordingLine]:
    """The lines of a recording, packed or not. Raises msgspec.DecodeError for what is none."""
    data = file.read_bytes()
    if file.suffix == PACKED_SUFFIX:
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    return [decode_line(line) for line in data.splitlines()]


def write_recording(home: Home, rollout: str, file: Path) -> None:
    """Write the recording of one rollout."""
    with Reader(home) as reader:
        lines = reader.run(plan_recording(rollout))
    data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    file.write_bytes(
        zstandard.compress(data, _ZSTD_LEVEL) if file.suffix == PACKED_SUFFIX else data
    )


def main(arguments: list[str]) -> None:
    """Write the recording of one rollout into a file."""
    home, rollout, file = arguments
    write_recording(Home(Path(home).absolute()), rollout, Path(file))


if __name__ == "__main__":
    main(sys.argv[1:])
