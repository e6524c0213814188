"""The index side of `search.db`: a thread that reads committed events and makes them findable.

Never part of an ack, of `verify` or of a backup, and rebuilt whenever it is missing, damaged or
ahead of the journal. Its schema:

    CREATE VIRTUAL TABLE entries USING fts5(tag, text, content='', tokenize='unicode61');
    CREATE TABLE indexed(id INTEGER PRIMARY KEY CHECK(id=1), seq INTEGER);

`entries.rowid` is the event's sequence; `tag` is `r` and the rollout's id without everything that
is no letter or digit (`tag:rcountwords4f2a` filters by rollout); `indexed.seq` is the last event
that was looked at. The table is contentless: it finds events, the journal holds their text.
"""

import logging
import sqlite3
import threading
from pathlib import Path

import msgspec

from houston_shared.errors import HoustonError
from houston_shared.faults import point
from houston_shared.home import Home
from houston_shared.store import blobs, opening, searchable

LOGGER = logging.getLogger("houston.search")
PAGE = 500
"""Events of one read transaction and of one write transaction."""
RETRY_SECONDS = 5.0
LULL_SECONDS = 0.25
"""News gathers this long before it is indexed, so that commits and the index do not take turns."""
_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE VIRTUAL TABLE IF NOT EXISTS entries
    USING fts5(tag, text, content='', tokenize='unicode61');
CREATE TABLE IF NOT EXISTS indexed(id INTEGER PRIMARY KEY CHECK(id=1), seq INTEGER);
INSERT OR IGNORE INTO indexed (id, seq) VALUES (1, 0);
"""


class SearchIndexer:
    """The thread; `start` it when the journal is open, `wake` it after commits."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._news = threading.Event()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="houston-search", daemon=True)
        self.seq = 0
        """Newest event that was looked at; read by the status."""
        self.problem = ""
        """Why the index lags; empty when it does not."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """There are new events."""
        self._news.set()

    def stop(self) -> None:
        """End at the next page; waits for it."""
        self._ends.set()
        self._news.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                self._follow()
            except (sqlite3.DatabaseError, OSError, HoustonError) as problem:
                self._ends.wait(self._stumble(problem))

    def _stumble(self, problem: Exception) -> float:
        """Say why the index lags; seconds until the next try."""
        if str(problem) != self.problem:
            LOGGER.warning("search.db lags: %s", problem)
        self.problem = str(problem)
        if isinstance(problem, sqlite3.OperationalError | OSError | HoustonError):
            return RETRY_SECONDS
        # Anything but a lack of space or a lock means a damaged file: make a new one.
        _remove(self._home.search_database)
        return 0.0

    def _follow(self) -> None:
        index = _open(self._home)
        try:
            self.seq = index.execute("SELECT seq FROM indexed").fetchone()[0]
            self.problem = ""
            while not self._ends.is_set():
                if not self._page(index):
                    self._news.wait()
                    self._ends.wait(LULL_SECONDS)
                    self._news.clear()
        finally:
            index.close()

    def _page(self, index: sqlite3.Connection) -> bool:
        """Index the next events; whether there were any."""
        newest, events = _read(self._home, self.seq)
        if newest < self.seq:
            LOGGER.warning("search.db is ahead of the journal and is made anew")
            index.executescript(
                "BEGIN; INSERT INTO entries(entries) VALUES ('delete-all');"
                " UPDATE indexed SET seq = 0; COMMIT;"
            )
            self.seq = 0
            return True
        if not events:
            return False
        index.execute("BEGIN")
        try:
            for seq, rollout, kind, body in events:
                text = _text(seq, kind, body)
                if text:
                    index.execute(
                        "INSERT INTO entries (rowid, tag, text) VALUES (?, ?, ?)",
                        (seq, searchable.tag(rollout), text),
                    )
            index.execute("UPDATE indexed SET seq = ?", (events[-1][0],))
            point("recorder.search.before")
            index.execute("COMMIT")
        except BaseException:
            if index.in_transaction:
                index.execute("ROLLBACK")
            raise
        point("recorder.search.after")
        self.seq = events[-1][0]
        return True


def _text(seq: int, kind: str, body: bytes) -> str:
    """What can be found of an event; nothing of one that is erased or damaged."""
    try:
        return searchable.text_of(kind, body) if body else ""
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        LOGGER.warning("event %s is not searchable: %s", seq, problem)
        return ""


def _open(home: Home) -> sqlite3.Connection:
    connection = sqlite3.connect(home.search_database, isolation_level=None, timeout=5)
    try:
        connection.executescript(_SCHEMA)
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _remove(path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def _read(home: Home, after: int) -> tuple[int, list[tuple[int, str, str, bytes]]]:
    """The journal's newest sequence, and a page of events after `after` with their bodies."""
    journal = opening.open_journal(home).connection
    try:
        newest = journal.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0]
        rows = journal.execute(
            "SELECT seq, rollout, kind, body, blob FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
            (after, PAGE),
        ).fetchall()
    finally:
        journal.close()
    return newest, [(*row[:3], _body(home, *row[3:])) for row in rows]


def _body(home: Home, body: bytes | None, blob: str | None) -> bytes:
    if body is not None or blob is None:
        return body or b""
    try:
        return blobs.read(home, blob)
    except HoustonError as problem:
        LOGGER.warning("not searchable: %s", problem)
        return b""
