"""An older home becomes one of this version's schema: kept as it was first, then changed at once.

All migrations run in one transaction: one that fails leaves the home as it was.
"""

import logging
import sqlite3

from houston_daemon.recorder.upkeep import copying
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import schema

LOGGER = logging.getLogger("houston.recorder")


def keep(home: Home, found: int) -> None:
    """Copy the database of an older schema into `backups/`; raises HoustonError."""
    target = home.backups / f"before-schema-{schema.VERSION}-{copying.stamp()}.db"
    try:
        home.backups.mkdir(mode=0o700, exist_ok=True)
        copying.database(home.database, target)
        copying.sync(home.backups)
    except (OSError, sqlite3.Error) as problem:
        target.unlink(missing_ok=True)
        raise HoustonError(
            f"The home {home.path} has schema {found} and must be backed up first: {problem}.",
            "It was not changed, and the daemon was not started.",
            "Make room there.",
        ) from None
    LOGGER.info("schema %s becomes %s; the database as it was: %s", found, schema.VERSION, target)


def migrate(home: Home, connection: sqlite3.Connection) -> None:
    """Bring an open database to this version's schema; raises HoustonError when it cannot be."""
    try:
        schema.migrate(connection)
    except sqlite3.Error as problem:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        found = schema.version_of(connection)
        if not found:
            raise
        raise HoustonError(
            f"The home {home.path} cannot be brought from schema {found} to {schema.VERSION}"
            f" ({problem}).",
            "It was left as it was, and the daemon was not started.",
            "Install the Houston that wrote it, and report this.",
        ) from problem
