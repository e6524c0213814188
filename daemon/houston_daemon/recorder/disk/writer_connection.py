"""Opens the writer's connection: checks the journal's end and migrates an older schema.

A database of an older schema is copied into `backups/` first. Nothing is written after an end that
was cut or damaged, because that would hide what was lost. WAL and synchronous=FULL ensure that a
commit is on disk when it returns; only this connection writes and checkpoints. Damage further back
is found by `verify`, and before a rollout continues.
"""

import contextlib
import logging
import sqlite3

from houston_daemon.maintenance import durable_copy
from houston_daemon.maintenance.damage_report import UNKNOWN_SEQ, damage_error
from houston_daemon.recorder import hash_chain
from houston_daemon.recorder.disk import home_files, wal_inspection
from houston_shared import atomic_file
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.store import schema
from houston_shared.store.store_reader import WAL_KEPT_BYTES

_SELECT_LAST_EVENTS = (
    f"SELECT {', '.join(hash_chain.EventHeader._fields)}, body_hash, chain FROM events"
    " ORDER BY seq DESC LIMIT 2"
)


def check_journal_end(home: Home) -> int:
    """The schema version found (0 for a new home).

    Raises HoustonError with exit code 65 for a damaged end, and sqlite3.OperationalError.
    """
    try:
        recorded_head = home_files.read_chain_head(home)
    except HoustonError as problem:
        raise damage_error(home, problem.cause, seq=UNKNOWN_SEQ) from None
    if not home.database.is_file() or not home.database.stat().st_size:
        _check_not_shorter(home, 0, recorded_head)
        return 0
    _sync_wal(home)
    connection = durable_copy.open_read_only(home.database)
    try:
        _roll_back_creation(home)
        schema.check_schema(connection, str(home.path))
        version = schema.read_schema_version(connection)
        _check_wal(home)
        _check_last_events(home, connection if version else None, recorded_head)
        return version
    except sqlite3.OperationalError as problem:
        if "decode" in str(problem):  # text of damaged bytes
            raise damage_error(home, "The last event cannot be read.") from None
        raise
    except (sqlite3.DatabaseError, UnicodeDecodeError) as problem:
        detail = problem.reason if isinstance(problem, UnicodeDecodeError) else str(problem)
        raise damage_error(home, f"SQLite cannot read {home.database} ({detail}).") from None
    finally:
        connection.close()


def _sync_wal(home: Home) -> None:
    """Have on the disk what a killed recorder wrote to the log and had not synced: SQLite takes it
    for stored. Behind it the next commit would be a second one that a power cut may tear.
    """
    with contextlib.suppress(FileNotFoundError):
        atomic_file.sync_to_disk(home.database.with_name(home.database.name + "-wal"))


def _roll_back_creation(home: Home) -> None:
    """Let SQLite roll back a home whose making was cut short: before there is a WAL, it keeps a
    rollback journal, which a connection that only reads may not apply. Nothing is stored by then.
    """
    if home.database.with_name(home.database.name + "-journal").exists():
        connection = sqlite3.connect(home.database, isolation_level=None, timeout=5)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        finally:
            connection.close()


def _check_wal(home: Home) -> None:
    wal = wal_inspection.inspect_wal(home.database)
    if wal.header_damaged or wal.unread_commits > 1:
        lost = "all of it is" if wal.header_damaged else f"{wal.unread_commits} transactions are"
        raise damage_error(home, f"{home.database}-wal is damaged: {lost} unreadable.")


def _check_last_events(
    home: Home, connection: sqlite3.Connection | None, recorded_head: home_files.ChainHead | None
) -> None:
    rows = connection.execute(_SELECT_LAST_EVENTS).fetchall() if connection else []
    newest = rows[0][0] if rows else 0
    if rows:
        before = rows[1][-1] if len(rows) == 2 else hash_chain.GENESIS
        *header, digest, link = rows[0]
        if hash_chain.chain_value(before, hash_chain.EventHeader(*header), digest) != link:
            cause = f"Event {newest}, the last of the journal, does not fit its chain."
            raise damage_error(home, cause, str(rows[0][1]), newest)
    _check_not_shorter(home, newest, recorded_head)
    if recorded_head is None and newest:
        cause = f"{home.head_file} is missing: it cannot be told whether the end was cut off."
        raise damage_error(home, cause, seq=UNKNOWN_SEQ)
    if recorded_head is None or not recorded_head.seq or connection is None:
        return
    named = connection.execute(
        "SELECT chain, rollout FROM events WHERE seq = ?", (recorded_head.seq,)
    ).fetchone()
    if named is None or named[0] != recorded_head.value:
        cause = f"Event {recorded_head.seq} is not the one that {home.head_file} names."
        raise damage_error(home, cause, str(named[1]) if named else "", recorded_head.seq)


def _check_not_shorter(home: Home, newest: int, recorded_head: home_files.ChainHead | None) -> None:
    if recorded_head is not None and newest < recorded_head.seq:
        cause = f"The journal ends at event {newest}, but {recorded_head.seq} events were stored."
        raise damage_error(home, cause, seq=newest + 1)


LOGGER = logging.getLogger("houston.recorder")


def back_up_old_schema(home: Home, older: int) -> None:
    """Copy the database of an older schema into `backups/`; raises HoustonError."""
    target = (
        home.backups / f"before-schema-{schema.SCHEMA_VERSION}-{durable_copy.make_timestamp()}.db"
    )
    try:
        home.backups.mkdir(mode=0o700, exist_ok=True)
        durable_copy.copy_database(home.database, target)
        atomic_file.sync_to_disk(home.backups)
    except (OSError, sqlite3.Error) as problem:
        target.unlink(missing_ok=True)
        raise HoustonError(
            f"The home {home.path} has schema {older} and must be backed up first: {problem}.",
            "It was not changed, and the daemon was not started.",
            "Make room there.",
        ) from None
    LOGGER.info(
        "schema %s becomes %s; the database as it was: %s", older, schema.SCHEMA_VERSION, target
    )


def migrate_schema(home: Home, connection: sqlite3.Connection) -> None:
    """Bring an open database to this version's schema; raises HoustonError when it cannot be."""
    try:
        schema.migrate_schema(connection)
    except sqlite3.Error as problem:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        older = schema.read_schema_version(connection)
        if not older:
            raise
        raise HoustonError(
            f"The home {home.path} cannot be migrated from schema {older} to "
            f"{schema.SCHEMA_VERSION} ({problem}).",
            "It was left as it was, and the daemon was not started.",
            "Install the Houston that wrote it, and report this.",
        ) from problem


_WRITER_PRAGMAS = (
    "page_size = 8192",  # bodies are 1 to 8 KB: a quarter less disk than pages of 4 KB
    "journal_mode = WAL",
    "synchronous = FULL",
    "wal_autocheckpoint = 0",
    # More than it grows to between checkpoints: to write over blocks that are there costs half.
    f"journal_size_limit = {WAL_KEPT_BYTES}",
    "cache_size = -32768",
    "temp_store = MEMORY",
    "trusted_schema = OFF",
)


def open_writer(home: Home) -> sqlite3.Connection:
    """Open, check and migrate the home's database; raises HoustonError and sqlite3.Error.

    A home of an older schema is backed up first, online.
    """
    version = check_journal_end(home)
    if 0 < version < schema.SCHEMA_VERSION:
        back_up_old_schema(home, version)
    connection = sqlite3.connect(
        home.database,
        isolation_level=None,
        timeout=5,
        cached_statements=512,
        check_same_thread=False,  # a large commit runs in a thread of its own (`group_commit`)
    )
    try:
        schema.check_schema(connection, str(home.path))
        for pragma in _WRITER_PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").fetchall()
        migrate_schema(home, connection)
    except (sqlite3.Error, HoustonError):
        connection.close()
        raise
    return connection
