"""A copy of a live database, and of single files, each on disk before it has its name."""

import contextlib
import hashlib
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

EVENTS = 2_000
"""Events of one read transaction of the copy (about 5 MB)."""
PAUSE_SECONDS = 0.02
"""Between two of them: without a moment in which nobody reads, the WAL is never begun anew."""
_BLOCK = 1024 * 1024


def database(source: Path, target: Path) -> float:
    """Copy a database while others write; the longest time for which a read mark was held (s).

    Events are only ever added, so they are copied in short transactions; what is derived from them
    goes with the last of these. SQLite's backup API would begin again with every commit of another
    connection, or hold one mark for the whole copy, in which the WAL grows by 50 MB a second.
    Raises sqlite3.Error, OSError.
    """
    while True:
        target.unlink(missing_ok=True)
        connection = sqlite3.connect(target, isolation_level=None, uri=True, timeout=5)
        try:
            for pragma in ("page_size = 8192", "journal_mode = OFF", "synchronous = OFF"):
                connection.execute(f"PRAGMA {pragma}").fetchall()
            connection.execute("ATTACH ? AS home", (f"file:{quote(str(source))}?mode=ro",))
            held = _copied(connection)
        finally:
            connection.close()
        if held is not None:
            break
    target.chmod(0o600)
    sync(target)
    return held


def _copied(connection: sqlite3.Connection) -> float | None:
    """Copy `home` into `main`; None when bodies were erased meanwhile, which the copy still has."""
    made: list[tuple[str, str, str]] = connection.execute(
        "SELECT type, name, sql FROM home.sqlite_master WHERE sql IS NOT NULL"
        " ORDER BY type <> 'table'"
    ).fetchall()
    tables = [name for kind, name, _ in made if kind == "table"]
    for kind, _, sql in made:
        if kind == "table":
            connection.execute(sql)
    (begun,) = connection.execute("SELECT coalesce(max(seq), 0) FROM home.events").fetchone()
    seq, held = _events(connection, begun)
    held = max(held, _rest(connection, seq, [name for name in tables if name != "events"]))
    erased = connection.execute(
        "SELECT 1 FROM events WHERE seq > ? AND kind = 'erased'", (begun,)
    ).fetchone()
    for kind, _, sql in made:
        if kind != "table":
            connection.execute(sql)
    return None if erased else held


def _events(connection: sqlite3.Connection, last: int) -> tuple[int, float]:
    """Copy events at least up to `last`, in short transactions; the last one, and the longest."""
    held, seq = 0.0, 0
    while seq < last:
        began = time.monotonic()
        connection.execute(
            "INSERT INTO events SELECT * FROM home.events WHERE seq > ? ORDER BY seq LIMIT ?",
            (seq, EVENTS),
        )
        (seq,) = connection.execute("SELECT max(seq) FROM events").fetchone()
        held = max(held, time.monotonic() - began)
        time.sleep(PAUSE_SECONDS)
    return seq, held


def _rest(connection: sqlite3.Connection, seq: int, tables: list[str]) -> float:
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


def file(source: Path, target: Path) -> None:
    """Copy one file durably, however large; raises OSError."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with source.open("rb") as data, whole(target) as handle:
        shutil.copyfileobj(data, handle, _BLOCK)


def write(target: Path, data: bytes) -> None:
    """Write a file durably; raises OSError."""
    with whole(target) as handle:
        handle.write(data)


@contextlib.contextmanager
def whole(target: Path) -> Iterator[BinaryIO]:
    """A file to write, beside its place: synced and renamed at the end, gone after an exception."""
    beside = target.with_name(target.name + ".new")
    try:
        with beside.open("wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        beside.chmod(0o600)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync(target.parent)


def sync(path: Path) -> None:
    """Make a file's content, or the names in a folder, durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Make the names in a folder and all below it durable."""
    for below, _, _ in os.walk(folder):
        sync(Path(below))


def sha256(path: Path) -> str:
    """SHA-256 of a file, hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def stamp() -> str:
    """A name for a folder made now: UTC, sorts by time."""
    now = time.time_ns()
    second = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now // 1_000_000_000))
    return f"{second}.{now // 1_000_000 % 1000:03d}Z"
