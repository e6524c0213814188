"""Closing a step: its snapshot, what it changed in files, and what its terminals printed.

Closing the same step again, as a worker does that ended before the observation was acknowledged,
gives the same bytes. What changed after that belongs to the next step.
"""

import time

from houston_daemon.environments.protocol import Closing
from houston_daemon.environments.workstation.command.sessions import Sessions
from houston_daemon.environments.workstation.state import KeptClosing, State
from houston_daemon.hosts.protocol import ChangedFile, Host
from houston_shared.records import FileChange
from houston_shared.secret_values import redact


async def close_step(
    host: Host, sessions: Sessions, state: State, step: int, touched: list[str]
) -> Closing:
    """Take the step's snapshot and spans, and keep them in `state` (the caller saves it)."""
    if state.closing is not None and state.closing.step == step:
        return state.closing.closing()
    spans, ends = await sessions.spans()
    snapshot = await host.snapshots.take(f"step {step}", hints=touched, since=state.told)
    kept = KeptClosing(
        step=step,
        snapshot=snapshot.commit,
        files=merged(state.pending, tuple(map(_change, snapshot.files))),
        more_files=snapshot.more + state.more_pending,
        spans=spans,
        notes=state.notes,
    )
    state.closing, state.pending, state.more_pending, state.notes = kept, (), 0, ()
    state.told = snapshot.commit
    state.ends, state.finals, state.marked_at = ends, {}, time.time()
    return kept.closing()


async def mark(host: Host, state: State, touched: list[str], why: str) -> str:
    """Take a snapshot within a step, large files too; its changes still belong to the step.

    Returns its commit.
    """
    snapshot = await host.snapshots.take(why, hints=touched, mark=True, since=state.told)
    state.pending = merged(state.pending, tuple(map(_change, snapshot.files)))
    state.more_pending += snapshot.more
    state.told = snapshot.commit
    return snapshot.commit


def merged(first: tuple[FileChange, ...], second: tuple[FileChange, ...]) -> tuple[FileChange, ...]:
    """Two changes of the same file, one after the other, as one."""
    found = {change.path: change for change in first}
    for change in second:
        before = found.pop(change.path, None)
        joined = change if before is None else _joined(before, change)
        if joined is not None:
            found[change.path] = joined
    return tuple(found.values())


def _joined(before: FileChange, after: FileChange) -> FileChange | None:
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


def _change(file: ChangedFile) -> FileChange:
    return FileChange(
        path=redact(file.path),
        kind=file.kind,
        added=file.added,
        removed=file.removed,
        diff=redact(file.diff),
        note=redact(file.note),
    )
