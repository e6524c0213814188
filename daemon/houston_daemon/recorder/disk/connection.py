"""The writer's connection: how it is opened, what it demands of SQLite, and what it checks first.

WAL and synchronous=FULL, so that a commit is on disk when it returns. This connection alone writes
and checkpoints: SQLite before 3.51.3 can corrupt a WAL when two do. Checkpoints run between
batches (`maintenance`), never inside a commit that an ack waits for.
"""

import sqlite3

from houston_daemon.recorder.disk.preflight import preflight
from houston_daemon.recorder.upkeep import upgrade
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import schema
from houston_shared.store.expiry import WAL_KEPT

_PRAGMAS = (
    "page_size = 8192",  # bodies are 1 to 8 KB: a quarter less disk than pages of 4 KB
    "journal_mode = WAL",
    "synchronous = FULL",
    "wal_autocheckpoint = 0",
    # More than it grows to between checkpoints: to write over blocks that are there costs half.
    f"journal_size_limit = {WAL_KEPT}",
    "cache_size = -32768",
    "temp_store = MEMORY",
    "trusted_schema = OFF",
)


def open_writer(home: Home) -> sqlite3.Connection:
    """Open, check and migrate the home's database; raises HoustonError and sqlite3.Error.

    A home of an older schema is backed up first, online.
    """
    found = preflight(home)
    if 0 < found < schema.VERSION:
        upgrade.keep(home, found)
    connection = sqlite3.connect(
        home.database,
        isolation_level=None,
        timeout=5,
        cached_statements=512,
        check_same_thread=False,  # a large commit runs in a thread of its own (`batch`)
    )
    try:
        schema.check(connection, str(home.path))
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").fetchall()
        upgrade.migrate(home, connection)
    except (sqlite3.Error, HoustonError):
        connection.close()
        raise
    return connection
