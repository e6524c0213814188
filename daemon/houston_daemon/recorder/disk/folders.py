"""The home's folders and their modes: the owner's alone, or open to the annotators' group.

0700 (group: 02750, so that what SQLite creates beside the database belongs to the group too).
"""

import grp
import os
from collections.abc import Iterable
from pathlib import Path

from houston_daemon.recorder.disk.durable import sync_above
from houston_shared import synced_file
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.home import Home

FOLDERS = ("path", "run", "blobs", "logs")


def prepare(home: Home, group: str) -> None:
    """Make the home and what lies in it, durably; raises HoustonError when it is not possible."""
    gid = _gid(group)
    mode = 0o700 if gid is None else 0o2750
    try:
        for folder in (home.path, home.run, home.blobs, home.logs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _own(folder)
            if gid is not None:
                _open_within(home, folder, gid)  # first: cut short, it is done again
                os.chown(folder, -1, gid)
            folder.chmod(mode)
        _database(home, gid)
        synced_file.sync(home.path)
        sync_above(home.path)
    except OSError as problem:
        raise HoustonError(
            f"The home {home.path} cannot be prepared: {problem.strerror} ({problem.filename}).",
            "The daemon was not started.",
            "Make it writable for this user, or name another --home.",
        ) from None


def _open_within(home: Home, folder: Path, gid: int) -> None:
    """Let the group read what was written before it was let in.

    Of blobs only where the folder is not yet the group's: there may be very many. Logs of
    workers and engines stay their owner's; the daemon's of this start has been begun already.
    """
    files: Iterable[Path] = ()
    if folder == home.logs:
        files = folder.glob("daemon.log*")
    elif folder == home.blobs and folder.stat().st_gid != gid:
        files = folder.rglob("*")
    for path in files:
        os.chown(path, -1, gid)
        path.chmod(0o2750 if path.is_dir() else 0o640)


def open_run(home: Home, group: str) -> None:
    """Make the sockets' folder again, with its mode; raises OSError."""
    gid = _gid(group)
    home.run.mkdir(mode=0o700, exist_ok=True)
    _own(home.run)
    if gid is not None:
        os.chown(home.run, -1, gid)
    home.run.chmod(0o700 if gid is None else 0o2750)


def open_socket(home: Home, name: str, group: str) -> None:
    """Give a bound socket its mode: connecting needs write permission."""
    path = home.run / f"{name}.sock"
    gid = _gid(group)
    if gid is not None:
        os.chown(path, -1, gid)
    path.chmod(0o600 if gid is None else 0o660)


def _database(home: Home, gid: int | None) -> None:
    """Create the database file with its mode; SQLite gives -wal and -shm the same.

    Those that a daemon which was killed has left are given it here.
    """
    for database in (home.database, home.search_database):
        database.touch(mode=0o600)
    for path in home.path.glob("*.db*"):
        if gid is not None:
            os.chown(path, -1, gid)
        path.chmod(0o600 if gid is None else 0o640)


def _own(folder: Path) -> None:
    """A folder of somebody else (a guessed name under /tmp) is never used."""
    if folder.stat().st_uid != os.geteuid():
        raise PermissionError(1, "it belongs to another user", str(folder))


def _gid(group: str) -> int | None:
    if not group:
        return None
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigurationError(
            f"`daemon.group` names {group!r}, which is no group of this machine.",
            "The daemon was not started.",
        ) from None
