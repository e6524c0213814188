"""Beginning an epoch: the database opened, the start counted, what a crash left over settled.

On a full disk the ballast is given up first, so that a home can always be opened.
"""

import os
import sqlite3
from importlib.metadata import version

from houston_daemon.recorder.disk import ballast, head_file
from houston_daemon.recorder.disk.connection import open_writer
from houston_daemon.recorder.people import erasing
from houston_daemon.recorder.refusal import is_full
from houston_daemon.recorder.steps import assignments
from houston_daemon.recorder.steps.journal import Journal, Key
from houston_daemon.recorder.store import Store
from houston_daemon.recorder.workers import Workers
from houston_shared.errors import HoustonError
from houston_shared.faults import point
from houston_shared.home import Home
from houston_shared.store.bodies import DaemonDied, DaemonStarted

_REFUSED = (sqlite3.Error, OSError, UnicodeDecodeError)
"""How a database or a disk says no; SQLite's words about damage may quote the damage."""


def begin(home: Home, configuration: str = "", died: DaemonDied | None = None) -> tuple[Store, int]:
    """Open the home for writing; returns the store and its epoch. Raises HoustonError.

    configuration: fingerprint of what the daemon runs with; died: the daemon before it. Both for
    the audit.
    """
    try:
        return _begin(home, configuration, died)
    except _REFUSED as problem:
        if not is_full(problem, home.path) or not ballast.release(home):
            raise _unusable(home, problem) from problem
    try:
        return _begin(home, configuration, died)
    except _REFUSED as problem:
        raise _unusable(home, problem) from problem


def _begin(home: Home, configuration: str, died: DaemonDied | None) -> tuple[Store, int]:
    point("recorder.open.before")
    connection = open_writer(home)
    try:
        store = Store(home, connection, Journal(connection), Workers())
        if not home.head_file.exists():  # a new home: from now on a missing one is noticed
            head_file.write(home, store.journal.seq, store.journal.chain)
        epoch = _raise_epoch(store, configuration, died)
        erasing.finish(store)
        return store, epoch
    except BaseException:
        connection.close()
        raise


def _raise_epoch(store: Store, configuration: str, died: DaemonDied | None) -> int:
    connection = store.connection
    connection.execute("BEGIN IMMEDIATE")
    row = connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
    epoch = int(row[0]) + 1 if row else 1
    started = DaemonStarted(
        epoch=epoch,
        pid=os.getpid(),
        version=version("houston-agents"),
        configuration=configuration,
        uid=os.geteuid(),
        died=died,
    )
    store.journal.append(Key(), "daemon", started)
    assignments.settle(store)
    point("recorder.epoch.before")
    connection.execute("COMMIT")
    point("recorder.epoch.after")
    store.journal.appended.clear()
    store.tells.clear()
    return epoch


def _unusable(home: Home, problem: Exception) -> HoustonError:
    if is_full(problem, home.path):
        return HoustonError(
            f"The disk of {home.path} is full.", "The daemon was not started.", "Make room there."
        )
    return HoustonError(
        f"The database {home.database} cannot be opened ({problem}).",
        "The daemon was not started and nothing was changed.",
        "houston verify",
    )
