"""The limit of a disk: rows a second that SQLite commits in groups, and nothing else."""

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

CHECKPOINT_ROWS = 1_000
"""Between copies of the WAL; the recorder copies twice as often, which costs it and not this."""


def group_commit(
    folder: Path, bodies: Sequence[bytes], group: int, seconds: float, page_size: int
) -> float:
    """Rows a second, `group` a commit, as durably as the recorder does."""
    path = folder / f"raw-{group}-{time.monotonic_ns()}.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA page_size = {page_size}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("CREATE TABLE rows (seq INTEGER PRIMARY KEY, body BLOB)")
    done = copied = 0
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        connection.execute("BEGIN IMMEDIATE")
        for number in range(group):
            body = bodies[(done + number) % len(bodies)]
            connection.execute("INSERT INTO rows (body) VALUES (?)", (body,))
        connection.execute("COMMIT")
        done += group
        if done - copied >= CHECKPOINT_ROWS:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            copied = done
    took = time.perf_counter() - began
    connection.close()
    path.unlink()
    return done / took
