"""Notices within a second that the files which the recorder writes are no longer those of the home.

A file that was removed or replaced goes on taking bytes as long as it is open, and every answer
about it would be a lie: nothing is left of it after the next start. So what is stored is put back
into the home from the open files, and the recorder ends with the cause. What it does not see is a
file that was overwritten in place; `verify` does.
"""

import logging
import os
import sqlite3
from pathlib import Path

from houston_daemon.recorder.disk import head_file
from houston_daemon.recorder.store import Store
from houston_daemon.recorder.upkeep import copying
from houston_shared.home import Home

LOGGER = logging.getLogger("houston.recorder")

LOOK_SECONDS = 1.0


class FilesGone(Exception):
    """The home's files are not the open ones: which, and where what was stored is now."""


class OwnFiles:
    """The database, its WAL and its index of that, and the lock; asked by the recorder's thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        database = store.home.database
        self._wal = [database.with_name(f"{database.name}-{end}") for end in ("wal", "shm")]
        self._watched = [database, *self._wal, store.home.lock_file]
        self._known = {path: found for path in self._watched if (found := _identity(path))}
        self._due = 0.0

    def look(self, now: float) -> None:
        """Raises FilesGone when a file is missing or another; what is stored is saved by then.

        now: monotonic seconds.
        """
        if now < self._due:
            return
        self._due = now + LOOK_SECONDS
        gone = [path for path, was in self._known.items() if _identity(path) != was]
        if gone:
            names = " and ".join(path.name for path in gone)
            LOGGER.error("%s removed or replaced while open: nothing more is taken", names)
            raise FilesGone(
                f"{names} of {self._store.home.path} removed or replaced while the daemon ran; "
                f"{self._saved(gone)}"
            )

    def _saved(self, gone: list[Path]) -> str:
        """Save what is stored; what became of it."""
        home, connection = self._store.home, self._store.connection
        if not home.path.is_dir():
            return "the home itself is gone, so nothing was put back"
        try:
            if home.database in gone:
                saved = _copy(home, connection)
            elif any(path in gone for path in self._wal) and not _copied(connection):
                saved = _aside(home, connection)
            else:
                saved = "everything stored is in houston.db"
            head_file.write(home, self._store.journal.seq, self._store.journal.chain)
        except (OSError, sqlite3.Error) as problem:
            return f"what was stored could not be saved ({problem})"
        return saved


def _copied(connection: sqlite3.Connection) -> bool:
    """Copy all of a WAL without a name into the database, which has one."""
    busy, log, copied = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return bool(busy == 0 and log == copied)


def _copy(home: Home, connection: sqlite3.Connection) -> str:
    """The open database under its name again; beside it where somebody put another there."""
    beside = home.path / f"{home.database.name}.new"
    _write(connection, beside)
    try:
        os.link(beside, home.database)
    except FileExistsError:
        beside.unlink()
        return _aside(home, connection)
    beside.unlink()
    copying.sync(home.path)
    return "everything stored was put back into houston.db"


def _aside(home: Home, connection: sqlite3.Connection) -> str:
    folder = home.damaged / copying.stamp()
    folder.mkdir(mode=0o700, parents=True)
    _write(connection, folder / home.database.name)
    copying.sync_tree(home.damaged)
    copying.sync(home.path)
    return f"everything stored is in {folder / home.database.name}"


def _write(connection: sqlite3.Connection, path: Path) -> None:
    """All that the connection sees, WAL and all, as one file on disk with the database's mode."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    target = sqlite3.connect(path, isolation_level=None)
    try:
        connection.backup(target)
    finally:
        target.close()
    copying.sync(path)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:  # missing, or in a folder that is
        return None
    return found.st_dev, found.st_ino
