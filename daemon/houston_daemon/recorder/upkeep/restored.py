"""What a restored home must not do by itself: go on with rollouts that another home may still run.

Both have the same rollouts, and the same workspaces on the hosts. A person decides, by resuming.
"""

import sqlite3

from houston_daemon.recorder.disk import head_file
from houston_daemon.recorder.disk.connection import open_writer
from houston_daemon.recorder.steps import states
from houston_daemon.recorder.steps.journal import Journal, Key
from houston_daemon.recorder.store import Store
from houston_daemon.recorder.workers import Workers
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.store.bodies import StoredState

_GOING_ON = (
    "SELECT id FROM rollouts WHERE cancelling = '' AND (state IN ('queued', 'running')"
    " OR (state = 'paused' AND paused_by = ?)) ORDER BY spec_seq"
)


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
    ids = [id for (id,) in store.connection.execute(_GOING_ON, (states.ENGINE,)).fetchall()]
    store.connection.execute("BEGIN IMMEDIATE")
    for id in ids:  # also over an engine's pause, which would end by itself
        body = StoredState(state="paused", by=states.RESTORE, reason=reason)
        store.journal.append(Key(id), "state", body)
        states.stands(store, id)
    store.connection.execute("COMMIT")
    head_file.write(store.home, store.journal.seq, store.journal.chain)
    return ids
