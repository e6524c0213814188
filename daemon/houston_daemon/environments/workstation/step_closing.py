"""Closing a step: its snapshot, what it changed in files, and what its terminals printed.

Closing the same step again gives the same bytes; this happens after a worker ended before its
observation was acknowledged. Later changes belong to the next step.
"""

import time
from typing import NamedTuple

import msgspec

from houston_daemon.environments.call_handling import recorded_change
from houston_daemon.environments.environment_protocol import Closing
from houston_daemon.environments.workstation.workstation_hosts import (
    WorkstationHost,
    WorkstationHosts,
)
from houston_daemon.environments.workstation.workstation_state import KeptClosing, WorkstationState
from houston_daemon.hosts.host_protocol import HostAway, RolloutHost
from houston_shared.records import FileChange, TerminalSpan


async def close_step(places: WorkstationHosts, state: WorkstationState, step: int) -> Closing:
    """Take the step's snapshots and spans, and keep them in `state` (the caller saves it).

    state: of the first host. A host that is away keeps what it has to tell for a later step.
    Raises NeedsPerson.
    """
    if state.closing is not None and state.closing.step == step:
        return state.closing.closing()
    looks = [
        (place, look) for place in places if (look := await _host_changes(place, step)) is not None
    ]
    for place, look in looks:
        _clear_pending(place.state(), look)
    other_places = [place for place in places if place is not places.first]
    kept_closing = KeptClosing(
        step=step,
        snapshot=state.told,
        files=tuple(
            file if place is places.first else _elsewhere(file, place.host.name)
            for place, look in looks
            for file in look.files
        ),
        more_files=sum(look.more for _, look in looks),
        spans=tuple(span for _, look in looks for span in look.spans),
        notes=state.notes,
        snapshots={place.host.name: place.state().told for place in other_places},
    )
    state.closing, state.notes = kept_closing, ()
    return kept_closing.closing()


class _HostChanges(NamedTuple):
    """What one host has to tell of a step."""

    commit: str
    files: tuple[FileChange, ...]
    more: int
    spans: tuple[TerminalSpan, ...]
    ends: dict[str, int]


async def _host_changes(place: WorkstationHost, step: int) -> _HostChanges | None:
    """What a host has to tell now; None while it is away. Raises NeedsPerson where it will be that
    until a person has seen to it."""
    state, touched = place.state(), place.files.take_written_paths()
    try:
        spans, ends = await place.sessions.spans()
        snapshot = await place.host.snapshots.take(f"step {step}", hints=touched, since=state.told)
    except HostAway as problem:
        if problem.needed is not None:
            raise problem.needed from problem
        return None
    files = merge_changes(state.pending, tuple(map(recorded_change, snapshot.files)))
    return _HostChanges(snapshot.commit, files, snapshot.more + state.more_pending, spans, ends)


def _clear_pending(state: WorkstationState, look: _HostChanges) -> None:
    state.pending, state.more_pending, state.told = (), 0, look.commit
    state.ends, state.finals, state.marked_at = look.ends, {}, time.time()


def _elsewhere(file: FileChange, host: str) -> FileChange:
    """A change on another host than the first: its path says where, as scp's does."""
    return msgspec.structs.replace(file, path=f"{host}:{file.path}")


async def snapshot_within_step(
    host: RolloutHost, state: WorkstationState, touched: list[str], message: str
) -> str:
    """Take a snapshot within a step, large files too; its changes still belong to the step.

    Returns its commit.
    """
    snapshot = await host.snapshots.take(message, hints=touched, mark=True, since=state.told)
    state.pending = merge_changes(state.pending, tuple(map(recorded_change, snapshot.files)))
    state.more_pending += snapshot.more
    state.told = snapshot.commit
    return snapshot.commit


def merge_changes(
    first: tuple[FileChange, ...], second: tuple[FileChange, ...]
) -> tuple[FileChange, ...]:
    """Two changes of the same file, one after the other, as one."""
    merged = {change.path: change for change in first}
    for change in second:
        before = merged.pop(change.path, None)
        joined = change if before is None else _merge_changes(before, change)
        if joined is not None:
            merged[change.path] = joined
    return tuple(merged.values())


def _merge_changes(before: FileChange, after: FileChange) -> FileChange | None:
    if before.kind == "added" and after.kind == "removed":
        return None
    kind = after.kind
    if before.kind == "added":
        kind = "added"
    elif before.kind == "removed":
        kind = "changed"
    return FileChange(
        path=after.path,
        kind=kind,
        added=before.added + after.added,
        removed=before.removed + after.removed,
        diff="\n".join(part.rstrip("\n") for part in (before.diff, after.diff) if part),
        note=after.note or before.note,
    )
