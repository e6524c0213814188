"""The writer's connection: how it is opened, what it demands of SQLite, and what it checks first.

WAL and synchronous=FULL, so that a commit is on disk when it returns. This connection alone writes
and checkpoints: SQLite before 3.51.3 can corrupt a WAL when two do. Checkpoints run between
batches (`maintenance`), never inside a commit that an ack waits for.
"""

import sqlite3

from houston_daemon.recorder import head_file
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import chain, schema

WAL_LIMIT = 48 * 1024 * 1024
"""Bytes to which SQLite truncates the WAL file after a checkpoint that emptied it. More than it
grows to between two checkpoints: writing over blocks that are there costs half as much."""

_PRAGMAS = (
    "page_size = 8192",  # bodies are 1 to 8 KB: a quarter less disk than pages of 4 KB
    "journal_mode = WAL",
    "synchronous = FULL",
    "wal_autocheckpoint = 0",
    f"journal_size_limit = {WAL_LIMIT}",
    "cache_size = -32768",
    "temp_store = MEMORY",
    "trusted_schema = OFF",
)


def open_writer(home: Home) -> sqlite3.Connection:
    """Open, check and migrate the home's database; raises HoustonError and sqlite3.Error."""
    connection = sqlite3.connect(
        home.database, isolation_level=None, timeout=5, cached_statements=512
    )
    try:
        schema.check(connection, str(home.path))
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").fetchall()
        schema.migrate(connection)
        _check_end(home, connection)
    except (sqlite3.Error, HoustonError):
        connection.close()
        raise
    return connection


def _check_end(home: Home, connection: sqlite3.Connection) -> None:
    """Refuse to write behind a cut tail or a damaged end: it would hide what was lost."""
    vouched = head_file.read(home)
    rows = connection.execute(
        "SELECT seq, rollout, step, attempt, part, kind, at, body_hash, chain FROM events"
        " ORDER BY seq DESC LIMIT 2"
    ).fetchall()
    newest = rows[0][0] if rows else 0
    if rows:
        before = rows[1][-1] if len(rows) == 2 else chain.GENESIS
        if chain.link(before, *rows[0][:-1]) != rows[0][-1]:
            raise _unsound(
                home, f"Event {newest}, the last of the journal, does not fit its chain."
            )
    if vouched is None:
        return
    if newest < vouched.seq:
        raise _unsound(
            home, f"The journal ends at event {newest}, but {vouched.seq} events were stored."
        )
    found = connection.execute("SELECT chain FROM events WHERE seq = ?", (vouched.seq,)).fetchone()
    if vouched.seq and (found is None or found[0] != vouched.value):
        raise _unsound(home, f"Event {vouched.seq} is not the one that {home.head_file} names.")


def _unsound(home: Home, cause: str) -> HoustonError:
    return HoustonError(
        cause,
        f"The home {home.path} was not opened for writing.",
        "houston verify; then restore a backup, or remove chain.head to go on without what is lost",
    )
