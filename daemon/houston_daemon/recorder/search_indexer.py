"""The indexer of `search.db`: a process that makes the text of committed events searchable.

`python -m houston_daemon.recorder.search_indexer PARENT HOME`, started and watched by
`search_indexer_process`. It is a separate process, at a lower priority, because a thread would
compete with the recorder's for the interpreter. Bytes on its stdin announce new events, and the end
of stdin means that the daemon stops; on its stdout it writes one `IndexReport` per line.

The index is never part of an ack, of `verify` or of a backup. It is rebuilt whenever it is missing,
damaged or ahead of the journal. Its schema:

    CREATE VIRTUAL TABLE entries USING fts5(tag, text, content='', tokenize='unicode61');
    CREATE TABLE indexed(id INTEGER PRIMARY KEY CHECK(id=1), seq INTEGER);

`entries.rowid` is the event's sequence; `tag` is `r` and the letters and digits of the rollout's id
(`tag:rcountwords4f2a` filters by rollout); `indexed.seq` is the last event that was looked at. The
table is contentless: it finds events, and the journal holds their text.
"""

import contextlib
import os
import select
import sqlite3
import sys
from pathlib import Path

import msgspec

from houston_daemon.service.parent_death import end_with_parent
from houston_shared.errors import HoustonError
from houston_shared.faults import point
from houston_shared.home import Home
from houston_shared.store import search_matching, store_reader

INDEX_PAGE_EVENTS = 500
"""Events of one read transaction and of one write transaction."""
RETRY_SECONDS = 1.0
GATHER_SECONDS = 0.25
"""News gathers this long before it is indexed: a page costs the same for one event and for many."""
NICENESS = 10
"""What this process gives way to the recorder and to workers by."""
_SEARCH_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE VIRTUAL TABLE IF NOT EXISTS entries
    USING fts5(tag, text, content='', tokenize='unicode61');
CREATE TABLE IF NOT EXISTS indexed(id INTEGER PRIMARY KEY CHECK(id=1), seq INTEGER);
INSERT OR IGNORE INTO indexed (id, seq) VALUES (1, 0);
"""


class IndexReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far the index is, and what is wrong."""

    seq: int
    """Newest event that was looked at."""
    problem: str = ""
    """Why the index lags; empty when it does not."""
    note: str = ""
    """Something for the daemon's log."""


class DaemonEnded(Exception):
    """The daemon stops, or has ended."""


class StaleIndex(sqlite3.DatabaseError):
    """The index holds words that were erased from the journal: its file must go."""


class DaemonPipe:
    """What comes from the recorder on stdin and goes to it on stdout."""

    def __init__(self) -> None:
        self._end = select.poll()
        # Without any event asked for, only the end of the pipe is reported: bytes wake nobody.
        self._end.register(sys.stdin.fileno(), 0)

    def wait(self, seconds: float) -> None:
        """Wait, whatever comes; raises DaemonEnded."""
        if self._end.poll(seconds * 1000):
            raise DaemonEnded

    def wait_for_news(self) -> None:
        """Wait until there is news, and let more of it gather; raises DaemonEnded."""
        if not os.read(sys.stdin.fileno(), 1):
            raise DaemonEnded
        self.wait(GATHER_SECONDS)
        while select.select([sys.stdin], [], [], 0)[0]:
            if not os.read(sys.stdin.fileno(), 65_536):
                raise DaemonEnded

    def send(self, report: IndexReport) -> None:
        """One line; raises DaemonEnded when nobody listens any more."""
        try:
            os.write(sys.stdout.fileno(), msgspec.json.encode(report) + b"\n")
        except BrokenPipeError:
            raise DaemonEnded from None


class SearchIndexer:
    """Follows the journal until the pipe ends."""

    def __init__(self, home: Home, pipe: DaemonPipe) -> None:
        self._home = home
        self._pipe = pipe
        self._seq = 0
        self._start_seq = 0
        """The event up to which erased bodies were gone when the index was begun."""
        self._problem = ""

    def run(self) -> None:
        """Index; raises DaemonEnded."""
        while True:
            try:
                self._follow()
            except (sqlite3.DatabaseError, OSError, HoustonError) as problem:
                self._pipe.wait(self._report_problem(problem))

    def _report_problem(self, problem: Exception) -> float:
        """Say why the index lags; seconds until the next try."""
        if str(problem) != self._problem:
            text = f"search.db lags: {problem}"
            self._pipe.send(IndexReport(self._seq, text, text))
        self._problem = str(problem)
        if isinstance(problem, sqlite3.OperationalError | OSError | HoustonError):
            return RETRY_SECONDS
        # Anything but a lack of space or a lock means a damaged file: make a new one.
        _remove_database(self._home.search_database)
        return 0.0

    def _follow(self) -> None:
        index = _open_index(self._home)
        try:
            self._seq = index.execute("SELECT seq FROM indexed").fetchone()[0]
            while True:
                more = self._index_page(index)
                self._problem = ""
                self._pipe.send(IndexReport(self._seq))
                if more:
                    self._pipe.wait(0)
                else:
                    self._pipe.wait_for_news()
        finally:
            index.close()

    def _index_page(self, index: sqlite3.Connection) -> bool:
        """Index the next events; whether there were any."""
        newest, events = self._read()
        if newest < self._seq:
            self._note("search.db is ahead of the journal and is rebuilt")
            index.executescript(
                "BEGIN; INSERT INTO entries(entries) VALUES ('delete-all');"
                " UPDATE indexed SET seq = 0; COMMIT;"
            )
            self._seq = 0
            return True
        if self._seq == 0:
            self._start_seq = newest
        if any(kind == "erased" and seq > self._start_seq for seq, _, kind, _ in events):
            raise StaleIndex("bodies were erased, and the index is rebuilt without them")
        if not events:
            return False
        index.execute("BEGIN")
        try:
            for seq, rollout, kind, body in events:
                text = self._text(seq, kind, body)
                if text:
                    index.execute(
                        "INSERT INTO entries (rowid, tag, text) VALUES (?, ?, ?)",
                        (seq, search_matching.rollout_tag(rollout), text),
                    )
            index.execute("UPDATE indexed SET seq = ?", (events[-1][0],))
            point("search.page.before")
            index.execute("COMMIT")
        except BaseException:
            if index.in_transaction:
                index.execute("ROLLBACK")
            raise
        point("search.page.after")
        self._seq = events[-1][0]
        return True

    def _read(self) -> tuple[int, list[tuple[int, str, str, bytes]]]:
        """The journal's newest sequence, and a page of events with their bodies."""
        journal = store_reader.open_journal(self._home).connection
        try:
            newest = journal.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0]
            rows = journal.execute(
                "SELECT seq, rollout, kind, body, blob FROM events WHERE seq > ?"
                " ORDER BY seq LIMIT ?",
                (self._seq, INDEX_PAGE_EVENTS),
            ).fetchall()
        finally:
            journal.close()
        return newest, [(*row[:3], self._body(*row[3:])) for row in rows]

    def _body(self, body: bytes | None, blob: str | None) -> bytes:
        if body is not None or blob is None:
            return body or b""
        try:
            return store_reader.read_blob(self._home, blob)
        except HoustonError as problem:
            self._note(f"not searchable: {problem}")
            return b""

    def _text(self, seq: int, kind: str, body: bytes) -> str:
        """What can be found of an event; nothing of one that is erased or damaged."""
        try:
            return search_matching.searchable_text(kind, body) if body else ""
        except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
            self._note(f"event {seq} is not searchable: {problem}")
            return ""

    def _note(self, text: str) -> None:
        self._pipe.send(IndexReport(self._seq, self._problem, text))


def _open_index(home: Home) -> sqlite3.Connection:
    connection = sqlite3.connect(home.search_database, isolation_level=None, timeout=5)
    try:
        connection.executescript(_SEARCH_SCHEMA)
    except sqlite3.DatabaseError:
        connection.close()
        raise
    return connection


def _remove_database(path: Path) -> None:
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def main() -> None:
    """The process: ends with its parent, with its stdin, or by itself only through a fault."""
    parent, home = int(sys.argv[1]), Home(Path(sys.argv[2]))
    if end_with_parent(parent):
        os.nice(NICENESS)
        with contextlib.suppress(DaemonEnded):
            SearchIndexer(home, DaemonPipe()).run()


if __name__ == "__main__":
    main()
