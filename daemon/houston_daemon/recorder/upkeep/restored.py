"""What a restored home must not do by itself: go on with rollouts that another home may still run.

Both have the same rollouts, and the same workspaces on the hosts. A person decides, by resuming.
Where the machine is another one, what is missing there is named.
"""

import sqlite3
from pathlib import Path

import msgspec

from houston_daemon.environments.environment_registry import kind
from houston_daemon.recorder.disk import head_file
from houston_daemon.recorder.disk.connection import open_writer
from houston_daemon.recorder.steps import states
from houston_daemon.recorder.steps.journal import Journal, Key
from houston_daemon.recorder.store import Store
from houston_daemon.recorder.workers import Workers
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.records import RolloutSpec
from houston_shared.store import blobs
from houston_shared.store.bodies import StoredState
from houston_shared.task import parse_task

_GOING_ON = (
    "SELECT id, head_seq IS NOT NULL, body, blob FROM rollouts JOIN events ON seq = spec_seq"
    " WHERE cancelling = '' AND (state IN ('queued', 'running')"
    " OR (state = 'paused' AND paused_by IN (?, ?, ?))) ORDER BY spec_seq"
)
"""Rollouts that would go on by themselves, whether they have begun, and their specs."""


def pause(home: Home, origin: str, at: str) -> list[str]:
    """Pause what would go on by itself in a home that nobody has open; the rollouts' ids.

    origin: the home that was backed up; at: when. Raises HoustonError.
    """
    try:
        connection = open_writer(home)
        try:
            store = Store(home, connection, Journal(connection), Workers())
            return _pause(store, f"restored as it was at {at}; {origin} may still run it")
        finally:
            connection.close()
    except sqlite3.Error as problem:
        raise HoustonError(
            f"The restored home {home.path} cannot be opened ({problem}).",
            "Its rollouts were not paused: do not start it while the home before still runs.",
            "houston verify",
            ExitCode.DAMAGED,
        ) from None


def _pause(store: Store, reason: str) -> list[str]:
    found = store.connection.execute(_GOING_ON, sorted(states.BY_ITSELF)).fetchall()
    store.connection.execute("BEGIN IMMEDIATE")
    for id, begun, body, blob in found:  # also over a pause that would end by itself
        data = blobs.read(store.home, blob) if blob else body
        missing = _missing(msgspec.msgpack.decode(data, type=RolloutSpec), id, begun)
        stored = StoredState(state="paused", by=states.RESTORE, reason=f"{reason}{missing}")
        store.journal.append(Key(id), "state", stored)
        states.stands(store, id)
    store.connection.execute("COMMIT")
    head_file.write(store.home, store.journal.seq, store.journal.chain)
    return [id for id, *_ in found]


def _missing(spec: RolloutSpec, rollout: str, begun: bool) -> str:
    """What the rollout needs and this machine does not have, as the end of a reason."""
    if not _has_workspace(parse_task(spec.task).environment):
        return ""
    own = Path(spec.host_root) / "rollouts" / rollout
    folder = Path(spec.task.folder)
    if begun and not (own / "workspace").is_dir():
        return (
            f". Its workspace is not on this machine: copy {own} from the one before, then houston"
            f" rollout resume {rollout}; or give it up: houston rollout cancel {rollout}"
        )
    if not folder.is_dir():
        return (
            f". The folder of its task is not on this machine: copy {folder} from the one before,"
            f" then houston rollout resume {rollout}"
        )
    return ""


def _has_workspace(environment: str) -> bool:
    """Whether its rollouts need one; not known of what another package brings and is not here."""
    try:
        return kind(environment).workspace
    except ConfigurationError:
        return False
