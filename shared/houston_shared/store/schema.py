"""Schema version: what this Houston reads and writes, and how an older home gets there.

Migrations are numbered SQL files in `migrations/`. The recorder runs them before its sockets open
and after an online backup; readers only check. An unknown (newer) version is refused with a
sentence. A home of an older schema that no daemon has migrated yet is read all the same: what it
lacks stands in SQLite's `temp` schema, whose names come before those of the file, and nothing is
written to the home.
"""

import sqlite3

from houston_shared.errors import ExitCode, HoustonError

SCHEMA_VERSION = 15
"""Newest schema this code knows: the number of the last file in `migrations/`."""


def read_schema_version(connection: sqlite3.Connection) -> int:
    """Schema version of an open database; 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def check_schema(connection: sqlite3.Connection, where: str) -> None:
    """Refuse a database that this code cannot read; raises HoustonError."""
    version = read_schema_version(connection)
    if version > SCHEMA_VERSION:
        raise HoustonError(
            f"The home {where} has schema {version}; this Houston knows up to {SCHEMA_VERSION}.",
            "Nothing was opened or changed.",
            "Install the Houston that wrote it, or name another --home.",
            ExitCode.CONFIGURATION,
        )


def pending_migrations(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    """Numbers and SQL of the migrations that an open database still needs, in order."""
    from importlib import resources  # 5 ms that readers do not pay

    version = read_schema_version(connection)
    folder = resources.files(__package__) / "migrations"
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    numbered = [(int(name[:4]), (folder / name).read_text()) for name in files]
    return [(number, sql) for number, sql in numbered if number > version]


def migrate_schema(connection: sqlite3.Connection, to: int | None = None) -> None:
    """Bring an open, writable database to `SCHEMA_VERSION`, or a version before it, in one
    transaction.

    Raises sqlite3.Error; the transaction is then still open, or was never begun.
    """
    steps = [step for step in pending_migrations(connection) if to is None or step[0] <= to]
    if steps:
        sql = "\n".join(sql for _, sql in steps)
        connection.executescript(f"BEGIN;\n{sql}\nPRAGMA user_version = {steps[-1][0]};\nCOMMIT;")


_VIEWS_BEFORE_4 = """
CREATE TEMP VIEW guidance AS SELECT *, number AS place FROM main.guidance;
CREATE TEMP TABLE claims (rollout TEXT, holder TEXT, uid INTEGER, verified INTEGER, since INTEGER,
    seq INTEGER, note_seq INTEGER, note_to TEXT, read_by TEXT, read_at INTEGER);
CREATE TEMP TABLE looks (rollout TEXT, name TEXT, uid INTEGER, verified INTEGER, first INTEGER,
    last INTEGER, here INTEGER, visits INTEGER, visit_at INTEGER, seq INTEGER, step INTEGER,
    seen_at INTEGER, before_seq INTEGER, before_step INTEGER, before_at INTEGER,
    looked_us INTEGER, active_us INTEGER);
"""
_VIEWS_BEFORE_5 = """
CREATE TEMP TABLE policies (name TEXT, family TEXT, number INTEGER, kind TEXT, base TEXT,
    base_hash TEXT, hash TEXT, folder TEXT, parent TEXT, run TEXT, manifest TEXT, seq INTEGER,
    created_at INTEGER);
CREATE TEMP TABLE training_runs (id TEXT, kind TEXT, state TEXT, reason TEXT, alone INTEGER,
    cancelling TEXT, policy TEXT, starts INTEGER, by TEXT, seq INTEGER, queued_at INTEGER,
    started_at INTEGER, ended_at INTEGER, last_seq INTEGER);
CREATE TEMP TABLE activations (seq INTEGER, engine TEXT, policy TEXT, rollback INTEGER, state TEXT,
    reason TEXT, by TEXT, at INTEGER, ended_at INTEGER);
"""
_VIEWS_BEFORE_6 = """
CREATE TEMP VIEW samples AS
    SELECT *, NULL AS completion_tokens, NULL AS reasoning_tokens, NULL AS cost FROM main.samples;
"""
_VIEWS_BEFORE_8 = """
CREATE TEMP VIEW rollouts AS SELECT *, '{}' AS role_engines FROM main.rollouts;
"""
_VIEWS_BEFORE_9 = """
CREATE TEMP TABLE process_rewards (rollout TEXT, step INTEGER, attempt INTEGER, policy TEXT,
    score REAL, weak INTEGER, seq INTEGER, at INTEGER);
"""
_VIEWS_BEFORE_11 = """
CREATE TEMP TABLE refinements (rollout TEXT, refines TEXT, critic TEXT, seq INTEGER);
"""
_VIEWS_BEFORE_12 = """
CREATE TEMP TABLE critic_drafts (id TEXT, rollout TEXT, step INTEGER, critic TEXT, state TEXT,
    by TEXT, guidance TEXT, seq INTEGER, at INTEGER);
"""
_VIEWS_BEFORE_13 = """
CREATE TEMP TABLE review_costs (seq INTEGER, rollout TEXT, reviewer TEXT, request TEXT,
    requests INTEGER, prompt_tokens INTEGER, sampled_tokens INTEGER, reckoned INTEGER, cost REAL,
    at INTEGER);
"""
_VIEWS_BEFORE_14 = """
CREATE TEMP TABLE jobs (rollout TEXT, host TEXT, id TEXT, step INTEGER, session TEXT, command TEXT,
    started_at INTEGER, ended_at INTEGER, exit_code INTEGER, failed INTEGER, stopped_by TEXT,
    ending TEXT, log_start INTEGER, log_end INTEGER, output TEXT, last_line TEXT, seq INTEGER);
"""
_CLAIMS_BEFORE_15 = """
CREATE TEMP VIEW claims AS
    SELECT *, '' AS note_to, '' AS read_by, NULL AS read_at FROM main.claims;
"""
_SAMPLES_BEFORE_13 = """
CREATE TEMP VIEW samples AS SELECT *, NULL AS cost FROM main.samples;
"""


def add_missing_tables(connection: sqlite3.Connection, version: int) -> None:
    """Give an open reader what a home of schema `version` lacks; raises sqlite3.Error."""
    if 0 < version < 15:
        connection.execute("PRAGMA temp_store = MEMORY")
    if 4 <= version < 15:
        connection.executescript(_CLAIMS_BEFORE_15)
    if 0 < version < 14:
        connection.executescript(_VIEWS_BEFORE_14)
    if 0 < version < 13:
        connection.executescript(_VIEWS_BEFORE_13)
    if 6 <= version < 13:
        connection.executescript(_SAMPLES_BEFORE_13)
    if 0 < version < 12:
        connection.executescript(_VIEWS_BEFORE_12)
    if 0 < version < 11:
        connection.executescript(_VIEWS_BEFORE_11)
    if 0 < version < 9:
        connection.executescript(_VIEWS_BEFORE_9)
    if 0 < version < 8:
        connection.executescript(_VIEWS_BEFORE_8)
    if 0 < version < 6:
        connection.executescript(_VIEWS_BEFORE_6)
    if 0 < version < 5:
        connection.executescript(_VIEWS_BEFORE_5)
    if 0 < version < 4:
        connection.executescript(_VIEWS_BEFORE_4)
