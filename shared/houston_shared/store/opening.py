"""Opening the databases of a home for reading only (DESIGN §3).

`mode=ro` first; where that fails and no `-wal` is there (a clean stop, a reader of the group who
may not create the shared-memory file), `immutable=1` until the daemon is back. Nothing here can
write: `PRAGMA query_only` is on in every connection.
"""

import sqlite3
from pathlib import Path
from typing import NamedTuple

from houston_shared.errors import HoustonError
from houston_shared.home import Home, unreadable
from houston_shared.store import older, schema

BUSY_MS = 2_000
"""How long a read waits for a lock (only recovery and checkpoints ever hold one)."""


class Opened(NamedTuple):
    """An open connection and how it was opened."""

    connection: sqlite3.Connection
    immutable: bool
    """Whether SQLite was told that the file does not change; to be reopened once a `-wal` is."""
    older: bool = False
    """Whether the home had an older schema; to be reopened once it is migrated."""
    inode: int = 0
    """Which file it was; to be reopened once another has its name."""


class NoSearchIndex(Exception):
    """The home has no `search.db` that could be read; search falls back to the journal."""


def open_journal(home: Home) -> Opened:
    """The journal for reading. Raises HoustonError: no database, unreadable, newer schema."""
    path = home.database
    if not written(home):
        raise HoustonError(
            f"There is no database in the home {home.path}.",
            "There is nothing to read yet.",
            "houston daemon start, or name the right folder with --home",
        )
    inode = path.stat().st_ino  # before it is opened: one that is replaced meanwhile is noticed
    opened = _open(path)
    try:
        _check(opened.connection, home)
        version = schema.version_of(opened.connection)
        older.stand_in(opened.connection, version)
        opened.connection.execute("PRAGMA query_only = 1")
    except HoustonError:
        opened.connection.close()
        raise
    return opened._replace(older=version < schema.VERSION, inode=inode)


def replaced(home: Home, opened: Opened) -> bool:
    """Whether another file has the database's name since: a repair, or a backup in its place."""
    try:
        return home.database.stat().st_ino != opened.inode
    except OSError:
        return False  # between two files, or gone: what is open is still read


def migrated(opened: Opened) -> bool:
    """Whether a home that was opened with an older schema has this one's by now."""
    return opened.older and schema.version_of(opened.connection) == schema.VERSION


def written(home: Home) -> bool:
    """Whether there is a database; raises HoustonError where this user may not look."""
    try:
        return home.database.is_file() and home.database.stat().st_size > 0
    except OSError as problem:
        raise unreadable(home.path, problem) from None


def _check(connection: sqlite3.Connection, home: Home) -> None:
    schema.check(connection, str(home.path))
    if not schema.version_of(connection):
        raise HoustonError(
            f"The database in the home {home.path} has no tables yet.",
            "There is nothing to read yet.",
            "houston daemon start",
        )


def open_search(home: Home) -> Opened:
    """The search index for reading; raises NoSearchIndex when there is none."""
    path = home.search_database
    if not path.is_file():
        raise NoSearchIndex
    try:
        opened = _open(path)
        opened.connection.execute("PRAGMA query_only = 1")
        opened.connection.execute("SELECT seq FROM indexed").fetchone()
    except (HoustonError, sqlite3.DatabaseError):
        raise NoSearchIndex from None
    return opened


def has_wal(path: Path) -> bool:
    """Whether somebody has the database open for writing, or left without closing it."""
    return path.with_name(path.name + "-wal").exists()


def _open(path: Path) -> Opened:
    try:
        return Opened(_connect(path, "mode=ro"), immutable=False)
    except sqlite3.OperationalError as problem:
        if has_wal(path):
            raise _unreadable(path, problem) from None
    except sqlite3.DatabaseError as problem:
        raise _unreadable(path, problem) from None
    try:
        return Opened(_connect(path, "mode=ro&immutable=1"), immutable=True)
    except sqlite3.DatabaseError as problem:
        raise _unreadable(path, problem) from None


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """Connect and read once, so that a failure shows here and not in the first query."""
    uri = f"file:{_in_uri(path)}?{mode}"
    connection = sqlite3.connect(
        uri,
        uri=True,
        isolation_level=None,
        timeout=BUSY_MS / 1000,
        check_same_thread=False,  # used by one thread at a time, not always the one that opened it
    )
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _in_uri(path: Path) -> str:
    """The path with what SQLite's URIs give a meaning to (sqlite.org/uri.html) escaped."""
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _unreadable(path: Path, problem: sqlite3.DatabaseError) -> HoustonError:
    if isinstance(problem, sqlite3.OperationalError):
        return HoustonError(
            f"{path} cannot be opened for reading ({problem}).",
            "Nothing was read.",
            "check that this user may read the home (and its -wal file), then try again",
        )
    return HoustonError(f"{path} is damaged ({problem}).", "Nothing was read.", "houston verify")
