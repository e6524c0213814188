"""What is looked at before anything is written to a home: an end that was cut or damaged.

Writing behind such an end would hide what was lost; so would SQLite itself, which throws a damaged
WAL away when the last writer closes. Therefore this reads through a connection that cannot write.
Damage further back stays visible to `verify`, and `resumable` finds it before a rollout goes on.
"""

import contextlib
import sqlite3
from urllib.parse import quote

from houston_daemon.recorder.disk import head_file
from houston_daemon.recorder.disk.damage import UNKNOWN, damaged
from houston_daemon.recorder.upkeep import verify_wal
from houston_shared import synced_file
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import chain, schema

_LAST = (
    "SELECT seq, rollout, step, attempt, part, kind, at, body_hash, chain FROM events"
    " ORDER BY seq DESC LIMIT 2"
)


def preflight(home: Home) -> int:
    """The schema version found (0 for a new home).

    Raises HoustonError with exit code 65 for a damaged end, and sqlite3.OperationalError.
    """
    try:
        vouched = head_file.read(home)
    except HoustonError as problem:
        raise damaged(home, problem.cause, seq=UNKNOWN) from None
    if not home.database.is_file() or not home.database.stat().st_size:
        _not_shorter(home, 0, vouched)
        return 0
    _settle(home)
    uri = f"file:{quote(str(home.database))}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=5)
    try:
        _undo_beginning(home)
        schema.check(connection, str(home.path))
        version = schema.version_of(connection)
        _wal(home)
        _end(home, connection if version else None, vouched)
        return version
    except sqlite3.OperationalError as problem:
        if "decode" in str(problem):  # text of damaged bytes
            raise damaged(home, "The last event cannot be read.") from None
        raise
    except (sqlite3.DatabaseError, UnicodeDecodeError) as problem:
        said = problem.reason if isinstance(problem, UnicodeDecodeError) else str(problem)
        raise damaged(home, f"SQLite cannot read {home.database} ({said}).") from None
    finally:
        connection.close()


def _settle(home: Home) -> None:
    """Have on the disk what a killed recorder wrote to the log and had not synced: SQLite takes it
    for stored. Behind it the next commit would be a second one that a power cut may tear.
    """
    with contextlib.suppress(FileNotFoundError):
        synced_file.sync(home.database.with_name(home.database.name + "-wal"))


def _undo_beginning(home: Home) -> None:
    """Let SQLite roll back a home whose making was cut short: before there is a WAL, it keeps a
    rollback journal, which a connection that only reads may not apply. Nothing is stored by then.
    """
    if home.database.with_name(home.database.name + "-journal").exists():
        connection = sqlite3.connect(home.database, isolation_level=None, timeout=5)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        finally:
            connection.close()


def _wal(home: Home) -> None:
    wal = verify_wal.look(home.database)
    if wal.header_damaged or wal.unread > 1:
        lost = "all of it is" if wal.header_damaged else f"{wal.unread} transactions are"
        raise damaged(home, f"{home.database}-wal is damaged: {lost} unreadable.")


def _end(home: Home, connection: sqlite3.Connection | None, vouched: head_file.Head | None) -> None:
    rows = connection.execute(_LAST).fetchall() if connection else []
    newest = rows[0][0] if rows else 0
    if rows:
        before = rows[1][-1] if len(rows) == 2 else chain.GENESIS
        if chain.link(before, *rows[0][:-1]) != rows[0][-1]:
            cause = f"Event {newest}, the last of the journal, does not fit its chain."
            raise damaged(home, cause, str(rows[0][1]), newest)
    _not_shorter(home, newest, vouched)
    if vouched is None and newest:
        cause = f"{home.head_file} is missing: whether the end was cut cannot be seen."
        raise damaged(home, cause, seq=UNKNOWN)
    if vouched is None or not vouched.seq or connection is None:
        return
    found = connection.execute(
        "SELECT chain, rollout FROM events WHERE seq = ?", (vouched.seq,)
    ).fetchone()
    if found is None or found[0] != vouched.value:
        cause = f"Event {vouched.seq} is not the one that {home.head_file} names."
        raise damaged(home, cause, str(found[1]) if found else "", vouched.seq)


def _not_shorter(home: Home, newest: int, vouched: head_file.Head | None) -> None:
    if vouched is not None and newest < vouched.seq:
        cause = f"The journal ends at event {newest}, but {vouched.seq} events were stored."
        raise damaged(home, cause, seq=newest + 1)
