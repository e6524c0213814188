"""Durable copies: of a live database, of single files, into a folder that one process writes.

A copy is written under a name ending in `.new`, synced, and renamed when it is complete; partial
copies of killed processes are removed. A live database is copied in short read transactions, so its
WAL stays bounded. The caller decides what a copy holds.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from houston_shared.atomic_file import open_atomically, sync_to_disk
from houston_shared.errors import Busy, HoustonError, UsageError
from houston_shared.home import Home
from houston_shared.store import store_reader

COPY_PAGE_EVENTS = 2_000
"""Events of one read transaction of the copy (about 5 MB)."""
COPY_PAUSE_SECONDS = 0.02
"""Between two of them: without a moment in which nobody reads, the WAL is never begun anew."""
_BLOCK_BYTES = 1024 * 1024


def open_read_only(database: Path, seconds: float = 5.0) -> sqlite3.Connection:
    """A connection that reads, without any check; raises sqlite3.Error.

    seconds: how long it waits for a lock.
    """
    uri = store_reader.read_only_uri(database)
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=seconds)


def copy_database(source: Path, target: Path) -> float:
    """Copy a database while others write; returns the longest time a read mark was held (s).

    Events are only ever added, so they are copied in short transactions; derived rows are copied
    with the last of these. SQLite's backup API would start again with every commit of another
    connection, or hold one mark for the whole copy, while the WAL grows by 50 MB a second. Raises
    sqlite3.Error, OSError.
    """
    while True:
        target.unlink(missing_ok=True)
        connection = sqlite3.connect(target, isolation_level=None, uri=True, timeout=5)
        try:
            for pragma in ("page_size = 8192", "journal_mode = OFF", "synchronous = OFF"):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            connection.execute("ATTACH ? AS home", (store_reader.read_only_uri(source),))
            hold_seconds = _copy_attached(connection)
        finally:
            connection.close()
        if hold_seconds is not None:
            break
    target.chmod(0o600)
    sync_to_disk(target)
    return hold_seconds


def _copy_attached(connection: sqlite3.Connection) -> float | None:
    """Copy `home` into `main`; None when bodies were erased meanwhile, which the copy still has."""
    definitions: list[tuple[str, str, str]] = connection.execute(
        "SELECT type, name, sql FROM home.sqlite_master WHERE sql IS NOT NULL"
        " ORDER BY type <> 'table'"
    ).fetchall()
    tables = [name for kind, name, _ in definitions if kind == "table"]
    for kind, _, sql in definitions:
        if kind == "table":
            connection.execute(sql)
    (first_seq,) = connection.execute("SELECT coalesce(max(seq), 0) FROM home.events").fetchone()
    seq, hold_seconds = _copy_events(connection, first_seq)
    hold_seconds = max(
        hold_seconds,
        _copy_remainder(connection, seq, [name for name in tables if name != "events"]),
    )
    erased = connection.execute(
        "SELECT 1 FROM events WHERE seq > ? AND kind = 'erased'", (first_seq,)
    ).fetchone()
    for kind, _, sql in definitions:
        if kind != "table":
            connection.execute(sql)
    return None if erased else hold_seconds


def _copy_events(connection: sqlite3.Connection, last: int) -> tuple[int, float]:
    """Copy events at least up to `last`, in short transactions; the last one, and the longest."""
    hold_seconds, seq = 0.0, 0
    while seq < last:
        began = time.monotonic()
        connection.execute(
            "INSERT INTO events SELECT * FROM home.events WHERE seq > ? ORDER BY seq LIMIT ?",
            (seq, COPY_PAGE_EVENTS),
        )
        (seq,) = connection.execute("SELECT max(seq) FROM events").fetchone()
        hold_seconds = max(hold_seconds, time.monotonic() - began)
        time.sleep(COPY_PAUSE_SECONDS)
    return seq, hold_seconds


def _copy_remainder(connection: sqlite3.Connection, seq: int, tables: list[str]) -> float:
    """Copy the events behind `seq` and what is derived, all as at one moment; how long it took."""
    began = time.monotonic()
    connection.execute("BEGIN")
    connection.execute("INSERT INTO events SELECT * FROM home.events WHERE seq > ?", (seq,))
    for name in tables:
        connection.execute(f"INSERT INTO {name} SELECT * FROM home.{name}")
    (version,) = connection.execute("PRAGMA home.user_version").fetchone()
    connection.execute("COMMIT")
    connection.execute(f"PRAGMA user_version = {version}")
    return time.monotonic() - began


def copy_file(source: Path, target: Path) -> None:
    """Copy one file durably, however large; raises OSError."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with source.open("rb") as data, open_atomically(target, mode=0o600) as handle:
        shutil.copyfileobj(data, handle, _BLOCK_BYTES)


def sync_tree(folder: Path) -> None:
    """Make the names in a folder and all below it durable."""
    for below, _, _ in os.walk(folder):
        sync_to_disk(Path(below))


def hash_file(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def make_timestamp() -> str:
    """A name for a folder made now: UTC, sorts by time."""
    now = time.time_ns()
    second = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now // 1_000_000_000))
    return f"{second}.{now // 1_000_000 % 1000:03d}Z"


@contextlib.contextmanager
def lock_copy_folder(home: Home, folder: Path, own: Path, unfinished: str) -> Iterator[None]:
    """Become the only writer of copies in `folder`, and remove partial copies of earlier ones.

    own: the home's own folder for them, the only one allowed inside the home; unfinished: pattern
    of the names of partial copies. Raises HoustonError. If a folder cannot be locked (network file
    systems), nothing is removed.
    """
    resolved = folder.resolve()
    if resolved != own.resolve() and resolved.is_relative_to(home.path.resolve()):
        raise UsageError(
            f"{folder} is inside the home {home.path}, which is only for Houston's own files.",
            "Nothing was copied.",
            f"Name a folder outside of it; without --out it is {own}.",
        )
    with contextlib.suppress(OSError):  # said by who writes there
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = _try_lock_folder(folder)
    try:
        if fd is not None:
            for path in folder.glob(unfinished):
                remove_path(path)
        yield
    finally:
        if fd is not None:
            _unlock_folder(fd)


def find_unfinished_copies(folder: Path, unfinished: str) -> list[Path]:
    """Half copies in `folder` that nobody is making any more."""
    copies = sorted(folder.glob(unfinished))
    try:
        fd = _try_lock_folder(folder) if copies else None
    except HoustonError:
        return []
    if fd is not None:
        _unlock_folder(fd)
    return copies


def _try_lock_folder(folder: Path) -> int | None:
    """The folder, locked; None where it cannot be. Raises HoustonError while another has it."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise Busy(
            f"Another copy is being written into {folder}.",
            "Nothing was copied.",
            "Try again when it is done.",
        ) from None
    except OSError:
        os.close(fd)
        return None
    return fd


def _unlock_folder(fd: int) -> None:
    """Unlock and close: a child that was forked meanwhile may hold the descriptor until it runs its
    program, and closing alone would leave the folder locked as long."""
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def remove_path(path: Path) -> None:
    """Remove a file, a link, or a folder with all in it. Raises OSError."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
