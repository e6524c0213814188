"""Who served a rollout on this machine before: a far end whose connection was cut may not know yet.

`<root>/serving/<rollout>.json` names the process, and for whom it serves: the home and the lease of
its worker. A new one ends it, unless it serves a later worker of the same home (then the new one is
of a worker that was stopped or cut off, and has a successor), or another home, of which this one is
a copy. A process that is gone keeps nobody away: a home restored from a backup begins with lower
leases, and one that was moved is another.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from houston_daemon.hosts import processes
from houston_daemon.hosts.processes import ProcessKey
from houston_daemon.hosts.ssh.turns import locked
from houston_shared.errors import ExitCode, HoustonError

_PATIENCE_SECONDS = 2.0
_TURN_SECONDS = 10.0


class _Note(msgspec.Struct, frozen=True):
    pid: int
    started: int
    key: str
    lease: int


def replace(root: Path, rollout: str, key: str, lease: int) -> None:
    """End the process that served `rollout` here before, and note this one.

    key: of the home. Raises HoustonError while it serves a later worker, or another home.
    """
    note = root / "serving" / f"{rollout}.json"
    note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _turn(note):
        before = _noted(note)
        if before is not None and before.pid != os.getpid():
            _check(before, rollout, key, lease)
            _end(ProcessKey(before.pid, before.started))
        own = processes.key_of(os.getpid())
        beside = note.with_suffix(f".{own.pid}")
        beside.write_bytes(msgspec.json.encode(_Note(own.pid, own.started, key, lease)))
        beside.replace(note)


def forget(root: Path, rollout: str) -> None:
    """Remove the note of a rollout that has nothing here any more."""
    note = root / "serving" / f"{rollout}.json"
    note.unlink(missing_ok=True)
    note.with_suffix(".turn").unlink(missing_ok=True)


def _check(before: _Note, rollout: str, key: str, lease: int) -> None:
    """Raise HoustonError where the process before is still needed."""
    if not processes.is_alive(ProcessKey(before.pid, before.started)):
        return
    if before.key != key:
        cause = f"Another home is at work on {rollout} there."
    elif before.lease > lease:
        cause = f"A later worker of {rollout} is at work there (lease {before.lease}, not {lease})."
    else:
        return
    raise HoustonError(cause, "Nothing was done there.", code=ExitCode.BUSY)


@contextlib.contextmanager
def _turn(note: Path) -> Iterator[None]:
    """One at a time decides whom a rollout has here. Raises HoustonError after ten seconds."""
    descriptor = os.open(note.with_suffix(".turn"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + _TURN_SECONDS
        while not locked(descriptor):
            if time.monotonic() > deadline:
                raise HoustonError(f"Another process has held {note.stem} there for ten seconds.")
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _noted(note: Path) -> _Note | None:
    try:
        return msgspec.json.decode(note.read_bytes(), type=_Note)
    except (OSError, msgspec.DecodeError):  # none, or a power cut left half of it
        return None


def _end(key: ProcessKey) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not processes.is_alive(key):
            return
        processes.send([key.pid], number)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while processes.is_alive(key) and time.monotonic() < deadline:
            time.sleep(0.02)
