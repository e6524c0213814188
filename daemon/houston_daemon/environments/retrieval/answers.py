"""Answers that are kept for a while: one SQLite file under the host root, shared by all rollouts.

Bounded in size (the oldest make room) and age. A cache is never a reason for a search to fail: a
file that cannot be used is said in the log and passed over, one that is no database is made anew.
"""

import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from houston_daemon.environments.retrieval.protocol import Hit

log = logging.getLogger(__name__)
T = TypeVar("T")
_WAIT_SECONDS = 5.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers (
    provider TEXT NOT NULL, query TEXT NOT NULL, top_k INTEGER NOT NULL,
    at REAL NOT NULL, hits BLOB NOT NULL,
    PRIMARY KEY (provider, query, top_k)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answers_at ON answers (at);
CREATE TABLE IF NOT EXISTS held (bytes INTEGER NOT NULL);
INSERT INTO held SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM held);
CREATE TRIGGER IF NOT EXISTS answers_added AFTER INSERT ON answers
BEGIN UPDATE held SET bytes = bytes + length(NEW.hits) + length(NEW.query); END;
CREATE TRIGGER IF NOT EXISTS answers_gone AFTER DELETE ON answers
BEGIN UPDATE held SET bytes = bytes - length(OLD.hits) - length(OLD.query); END;
"""


class Answers:
    """The kept answers. Every call opens the file anew, so it may be used from any thread."""

    def __init__(self, file: Path, seconds: float, megabytes: int) -> None:
        """seconds: how old an answer may be; 0 keeps none. megabytes: of 1,048,576 bytes."""
        self._file = file
        self._seconds = seconds
        self._most = megabytes * 1_048_576

    def find(self, provider: str, query: str, top_k: int) -> list[Hit] | None:
        """The kept answer to a question, if there is one that is young enough."""

        def found(database: sqlite3.Connection) -> list[Hit] | None:
            row = database.execute(
                "SELECT hits FROM answers"
                " WHERE provider = ? AND query = ? AND top_k = ? AND at BETWEEN ? AND ?",
                (provider, query, top_k, time.time() - self._seconds, time.time()),
            ).fetchone()
            return msgspec.msgpack.decode(row[0], type=list[Hit]) if row else None

        return self._with(found)

    def keep(self, provider: str, query: str, top_k: int, hits: list[Hit]) -> None:
        """Keep an answer; what is too old goes, then the oldest until the size is right."""
        data = msgspec.msgpack.encode(hits)

        def kept(database: sqlite3.Connection) -> None:
            database.execute("BEGIN IMMEDIATE")
            key = (provider, query, top_k)
            database.execute(
                "DELETE FROM answers WHERE provider = ? AND query = ? AND top_k = ?", key
            )
            database.execute(
                "INSERT INTO answers VALUES (?, ?, ?, ?, ?)", (*key, time.time(), data)
            )
            database.execute("DELETE FROM answers WHERE at < ?", (time.time() - self._seconds,))
            while database.execute("SELECT bytes > ? FROM held", (self._most,)).fetchone()[0]:
                database.execute(
                    "DELETE FROM answers WHERE at <= (SELECT max(at) FROM"
                    " (SELECT at FROM answers ORDER BY at LIMIT 20))"
                )
            database.execute("COMMIT")

        self._with(kept)

    def _with(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """What `work` returns; None where answers are not kept or the file fails, which is said."""
        if not self._seconds:
            return None
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.closing(self._opened()) as database:
                return work(database)
        except (sqlite3.Error, OSError, ValueError) as problem:
            log.warning("the kept answers in %s are not used: %s", self._file, problem)
            return None

    def _opened(self) -> sqlite3.Connection:
        try:
            return self._connected()
        except sqlite3.OperationalError:  # busy, full, not writable: as it is
            raise
        except sqlite3.DatabaseError:
            log.warning("%s is no database any more and is made anew", self._file)
            for end in ("", "-wal", "-shm"):
                Path(f"{self._file}{end}").unlink(missing_ok=True)
            return self._connected()

    def _connected(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._file, timeout=_WAIT_SECONDS, isolation_level=None)
        try:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'held'").fetchone():
                database.execute("PRAGMA journal_mode = WAL")
                database.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}COMMIT;")
            database.execute("PRAGMA synchronous = OFF")  # losing it at a power cut costs a search
        except sqlite3.Error:
            database.close()
            raise
        return database
