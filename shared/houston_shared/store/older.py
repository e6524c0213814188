"""Reading a home of an older schema that no daemon has migrated yet: what it lacks stands in.

Names in SQLite's `temp` schema come before those of the file, so a query of today finds there what
its own schema would have: nothing of it is written to the home.
"""

import sqlite3

_BEFORE_4 = """
CREATE TEMP VIEW guidance AS SELECT *, number AS place FROM main.guidance;
CREATE TEMP TABLE claims (rollout TEXT, holder TEXT, uid INTEGER, verified INTEGER, since INTEGER,
    seq INTEGER, note_seq INTEGER);
CREATE TEMP TABLE looks (rollout TEXT, name TEXT, uid INTEGER, verified INTEGER, first INTEGER,
    last INTEGER, here INTEGER, visits INTEGER, visit_at INTEGER, seq INTEGER, step INTEGER,
    seen_at INTEGER, before_seq INTEGER, before_step INTEGER, before_at INTEGER,
    looked_us INTEGER, active_us INTEGER);
"""
_BEFORE_5 = """
CREATE TEMP TABLE policies (name TEXT, family TEXT, number INTEGER, kind TEXT, base TEXT,
    base_hash TEXT, hash TEXT, folder TEXT, parent TEXT, run TEXT, manifest TEXT, seq INTEGER,
    created_at INTEGER);
CREATE TEMP TABLE training_runs (id TEXT, kind TEXT, state TEXT, reason TEXT, alone INTEGER,
    cancelling TEXT, policy TEXT, starts INTEGER, by TEXT, seq INTEGER, queued_at INTEGER,
    started_at INTEGER, ended_at INTEGER, last_seq INTEGER);
CREATE TEMP TABLE activations (seq INTEGER, engine TEXT, policy TEXT, rollback INTEGER, state TEXT,
    reason TEXT, by TEXT, at INTEGER, ended_at INTEGER);
"""
_BEFORE_6 = """
CREATE TEMP VIEW samples AS
    SELECT *, NULL AS completion_tokens, NULL AS reasoning_tokens FROM main.samples;
"""


def stand_in(connection: sqlite3.Connection, version: int) -> None:
    """Give an open reader what a home of schema `version` lacks; raises sqlite3.Error."""
    if 0 < version < 6:
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.executescript(_BEFORE_6)
    if 0 < version < 5:
        connection.executescript(_BEFORE_5)
    if 0 < version < 4:
        connection.executescript(_BEFORE_4)
