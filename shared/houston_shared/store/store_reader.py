"""The synchronous reader: opens the databases of a home for reading, and runs plans.

`mode=ro` first; where that fails and no `-wal` is there (a clean stop, a reader of the group who
may not create the shared-memory file), `immutable=1` until the daemon is back. `PRAGMA query_only`
is on in every connection: nothing here can write. Every plan is one short read transaction; one
that is long and keeps the WAL from beginning anew is ended. Bodies over 64 KB are zstd files under
`blobs/`. `async_reader` is its twin for the console.
"""

import sqlite3
import time
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from houston_shared.errors import DaemonNotRunning, HoustonError, NotFound
from houston_shared.home import Home, unreadable_home
from houston_shared.store import schema
from houston_shared.store.journal_events import FetchBlob, ReadPlan, Row, RunSql

EXPIRY_SECONDS = 1.0
"""A transaction of this age may be cut."""
WAL_KEPT_BYTES = 32 * 1024 * 1024
"""Bytes that the WAL file keeps; only a reader that does harm makes it longer."""
OPERATIONS_BETWEEN_LOOKS = 20_000
"""Steps of SQLite's machine between two looks (about a millisecond)."""


class ReadExpiry:
    """Expiry of one connection's transactions, one after the other."""

    def __init__(self, home: Home) -> None:
        self._wal = home.database.with_name(home.database.name + "-wal")
        self._started_at = time.monotonic()
        self.cut = False
        """Whether the transaction was cut."""

    def begin(self) -> None:
        """A transaction begins."""
        self._started_at = time.monotonic()
        self.cut = False

    def look(self) -> bool:
        """Whether the transaction must end now; SQLite's progress handler."""
        if time.monotonic() - self._started_at < EXPIRY_SECONDS:
            return False
        try:
            self.cut = self._wal.stat().st_size > WAL_KEPT_BYTES
        except OSError:
            return False  # there is no WAL that could be held
        return self.cut


def blob_path(home: Home, sha256: str) -> Path:
    """Where the blob of this name (hex) lies."""
    return home.blobs / sha256[:2] / f"{sha256}.zst"


def read_blob(home: Home, sha256: str) -> bytes:
    """The body, decompressed; raises HoustonError when it is missing or damaged."""
    path = blob_path(home, sha256)
    try:
        packed = path.read_bytes()
    except OSError as problem:
        raise _blob_lost(f"The body {path} cannot be read ({problem.strerror}).") from None
    return unpack_blob(home, sha256, packed)


def unpack_blob(home: Home, sha256: str, packed: bytes) -> bytes:
    """The body from the bytes of its file; raises HoustonError when they are damaged."""
    import zstandard  # only when a body is large: 5 ms

    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    except zstandard.ZstdError as problem:
        path = blob_path(home, sha256)
        raise _blob_lost(f"The body {path} is damaged ({problem}).") from None


def _blob_lost(cause: str) -> HoustonError:
    return HoustonError(cause, "What it holds cannot be shown.", "houston verify")


BUSY_MS = 2_000
"""How long a read waits for a lock (only recovery and checkpoints ever hold one)."""


class OpenedDatabase(NamedTuple):
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


def open_journal(home: Home) -> OpenedDatabase:
    """The journal for reading. Raises HoustonError: no database, unreadable, newer schema."""
    path = home.database
    if not has_database(home):
        raise NotFound(
            f"There is no database in the home {home.path}.",
            "There is nothing to read yet.",
            "houston daemon start, or name the right folder with --home",
        )
    inode = path.stat().st_ino  # before it is opened: one that is replaced meanwhile is noticed
    opened = _open_database(path)
    try:
        _check_opened(opened.connection, home)
        version = schema.read_schema_version(opened.connection)
        schema.add_missing_tables(opened.connection, version)
        opened.connection.execute("PRAGMA query_only = 1")
    except HoustonError:
        opened.connection.close()
        raise
    return opened._replace(older=version < schema.SCHEMA_VERSION, inode=inode)


def is_database_replaced(home: Home, opened: OpenedDatabase) -> bool:
    """Whether another file has the database's name since: a repair, or a backup in its place."""
    try:
        return home.database.stat().st_ino != opened.inode
    except OSError:
        return False  # between two files, or gone: what is open is still read


def is_schema_current(opened: OpenedDatabase) -> bool:
    """Whether a home that was opened with an older schema has this one's by now."""
    return opened.older and schema.read_schema_version(opened.connection) == schema.SCHEMA_VERSION


def require_database(home: Home) -> None:
    """Raise DaemonNotRunning where there is no database because no daemon ever ran."""
    if not has_database(home):
        raise DaemonNotRunning(f"No daemon runs on {home.path}, and none ever did.")


def has_database(home: Home) -> bool:
    """Whether there is a database; raises HoustonError where this user may not look."""
    try:
        return home.database.is_file() and home.database.stat().st_size > 0
    except OSError as problem:
        raise unreadable_home(home.path, problem) from None


def _check_opened(connection: sqlite3.Connection, home: Home) -> None:
    schema.check_schema(connection, str(home.path))
    if not schema.read_schema_version(connection):
        raise HoustonError(
            f"The database in the home {home.path} has no tables yet.",
            "There is nothing to read yet.",
            "houston daemon start",
        )


def open_search_index(home: Home) -> OpenedDatabase:
    """The search index for reading; raises NoSearchIndex when there is none."""
    path = home.search_database
    if not path.is_file():
        raise NoSearchIndex
    try:
        opened = _open_database(path)
        opened.connection.execute("PRAGMA query_only = 1")
        opened.connection.execute("SELECT seq FROM indexed").fetchone()
    except (HoustonError, sqlite3.DatabaseError):
        raise NoSearchIndex from None
    return opened


def has_wal(path: Path) -> bool:
    """Whether somebody has the database open for writing, or left without closing it."""
    return path.with_name(path.name + "-wal").exists()


def _open_database(path: Path) -> OpenedDatabase:
    try:
        return OpenedDatabase(_connect_and_read(read_only_uri(path)), immutable=False)
    except sqlite3.OperationalError as problem:
        if has_wal(path):
            raise _unreadable_database(path, problem) from None
    except sqlite3.DatabaseError as problem:
        raise _unreadable_database(path, problem) from None
    try:
        uri = read_only_uri(path) + "&immutable=1"
        return OpenedDatabase(_connect_and_read(uri), immutable=True)
    except sqlite3.DatabaseError as problem:
        raise _unreadable_database(path, problem) from None


def _connect_and_read(uri: str) -> sqlite3.Connection:
    """Connect and read once, so that a failure shows here and not in the first query."""
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


def read_only_uri(database: Path) -> str:
    """What SQLite opens a database file by (sqlite.org/uri.html), to read it."""
    return f"file:{quote(bytes(database))}?mode=ro"


def _unreadable_database(path: Path, problem: sqlite3.DatabaseError) -> HoustonError:
    if isinstance(problem, sqlite3.OperationalError):
        return HoustonError(
            f"{path} cannot be opened for reading ({problem}).",
            "Nothing was read.",
            "check that this user may read the home (and its -wal file), then try again",
        )
    return HoustonError(f"{path} is damaged ({problem}).", "Nothing was read.", "houston verify")


T = TypeVar("T")


class ReadFailed(HoustonError):
    """A read that may succeed when it is tried again: locked, being recovered, or expired."""


class Reader:
    """Reads one home. Not for use from several threads at once; `interrupt` is the exception."""

    def __init__(self, home: Home) -> None:
        """home: where the database is; opened by the first `run`, or by `open`."""
        self.home = home
        self._journal: OpenedDatabase | None = None
        self._search: OpenedDatabase | None = None
        self._openings = 0
        self._expiry = ReadExpiry(home)

    def open(self) -> "Reader":
        """Open now; raises HoustonError when there is no database or it cannot be read."""
        self._connection()
        return self

    def run(self, plan: ReadPlan[T]) -> T:
        """What the plan returns; raises HoustonError for what the plan or the file cannot give."""
        connection = self._connection()
        try:
            connection.execute("BEGIN")
            self._expiry.begin()
            try:
                return self._answer(plan, connection)
            finally:
                connection.execute("ROLLBACK")
        except sqlite3.DatabaseError as problem:
            raise read_failure(self.home, problem, self._expiry) from problem

    def data_version(self) -> tuple[int, int]:
        """Changes whenever somebody else committed: the poll for when `live` is not there."""
        connection = self._connection()
        try:
            version: int = connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.DatabaseError as problem:
            raise read_failure(self.home, problem) from problem
        return self._openings, version

    def interrupt(self) -> None:
        """Cut a running statement short, from another thread; `run` then raises."""
        for opened in (self._journal, self._search):
            if opened is not None:
                opened.connection.interrupt()

    def close(self) -> None:
        """Close the files. The reader opens them again if it is used again."""
        for opened in (self._journal, self._search):
            if opened is not None:
                opened.connection.close()
        self._journal = self._search = None

    def __enter__(self) -> "Reader":
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _answer(self, plan: ReadPlan[T], journal: sqlite3.Connection) -> T:
        try:
            request = next(plan)
            while True:
                try:
                    answer = self._fetch(request, journal)
                except NoSearchIndex as missing:
                    request = plan.throw(missing)
                else:
                    request = plan.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _fetch(self, request: RunSql | FetchBlob, journal: sqlite3.Connection) -> list[Row] | bytes:
        check_expiry(self.home, self._expiry)
        if isinstance(request, FetchBlob):
            return read_blob(self.home, request.sha256)
        connection = self._index() if request.where == "search" else journal
        return connection.execute(request.sql, request.parameters).fetchall()

    def _connection(self) -> sqlite3.Connection:
        if self._journal is not None and is_stale(self.home, self._journal):
            self._journal.connection.close()
            self._journal = None
        if self._journal is None:
            self._journal = open_journal(self.home)
            self._journal.connection.set_progress_handler(
                self._expiry.look, OPERATIONS_BETWEEN_LOOKS
            )
            self._openings += 1
        return self._journal.connection

    def _index(self) -> sqlite3.Connection:
        """The search index, opened afresh: it may have been rebuilt since (0.2 ms)."""
        if self._search is not None:
            self._search.connection.close()
            self._search = None
        self._search = open_search_index(self.home)
        return self._search.connection


def is_stale(home: Home, opened: OpenedDatabase) -> bool:
    """Whether what was opened is no longer the home: a file opened as unchanging may change again,
    has been migrated (the daemon is back), or was replaced by a repair."""
    changes = opened.immutable and has_wal(home.database)
    return changes or is_schema_current(opened) or is_database_replaced(home, opened)


def check_expiry(home: Home, expiry: ReadExpiry) -> None:
    """End a transaction that must end; raises ReadFailed."""
    if expiry.look():
        raise _expired_error(home)


def read_failure(
    home: Home, problem: sqlite3.DatabaseError, expiry: ReadExpiry | None = None
) -> HoustonError:
    """What SQLite says during a read, as an error for people."""
    if expiry is not None and expiry.cut:
        return _expired_error(home)
    if isinstance(problem, sqlite3.OperationalError):
        return ReadFailed(f"Reading {home.database} failed ({problem}).", "", "try again")
    return HoustonError(f"{home.database} is damaged ({problem}).", "", "houston verify")


def _expired_error(home: Home) -> ReadFailed:
    return ReadFailed(
        f"The read timed out while rollouts wrote to {home.database}.",
        "Nothing was changed.",
        "try again, or ask for less",
    )
