"""A copy of a live database, and of single files, each on disk before it has its name."""

import hashlib
import os
import sqlite3
import time
from pathlib import Path
from urllib.parse import quote

PAGES = 2_048
"""Pages of one step of the copy (16 MB); between steps other threads and processes have a turn."""


def database(source: Path, target: Path) -> float:
    """Copy by SQLite's backup API while others write; seconds for which a read mark was held.

    One read transaction holds the whole copy: without it SQLite begins again with every commit of
    another connection (sqlite.org/c3ref/backup_finish.html), and under load never ends. While it
    is held the WAL cannot be cut, only grow. Raises sqlite3.Error, OSError.
    """
    reading = sqlite3.connect(
        f"file:{quote(str(source))}?mode=ro", uri=True, isolation_level=None, timeout=5
    )
    writing = sqlite3.connect(target, isolation_level=None)
    try:
        began = time.monotonic()
        reading.execute("BEGIN")
        reading.execute("SELECT count(*) FROM sqlite_master").fetchone()
        reading.backup(writing, pages=PAGES, sleep=0)
        reading.execute("ROLLBACK")
        held = time.monotonic() - began
        writing.execute("PRAGMA journal_mode = DELETE")  # one file, without -wal and -shm
    finally:
        writing.close()
        reading.close()
    target.chmod(0o600)
    sync(target)
    return held


def file(source: Path, target: Path) -> None:
    """Copy one file durably; raises OSError."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write(target, source.read_bytes())


def write(target: Path, data: bytes) -> None:
    """Write a file beside its place, sync it and rename it; raises OSError."""
    beside = target.with_name(target.name + ".new")
    with beside.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    beside.chmod(0o600)
    beside.replace(target)
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
