"""Derived tables against the replay: every row and every column, compared by SQLite."""

import sqlite3
from collections.abc import Collection
from contextlib import closing
from typing import Any

from houston_daemon.recorder.derived.rules import PRESENCE, TABLES
from houston_daemon.recorder.upkeep.verify_findings import Findings
from houston_daemon.recorder.upkeep.verify_open import fetch
from houston_shared.store import schema

_CHANGED = {("steps", "last_seq"): 2}
"""Columns that a migration gave another meaning: homes of a schema before hold the other values."""
ROWS = 20
"""Differing rows of one table that are named; the others are counted."""


def compare(
    connection: sqlite3.Connection, unreplayed: Collection[str], findings: Findings
) -> None:
    """Compare `main` (the replay) with `home`; rows of rollouts in `unreplayed` are left out.

    A home of an older schema, which the next start migrates, is held against its own schema.
    Raises sqlite3.DatabaseError where a table cannot be read.
    """
    (version,) = connection.execute("PRAGMA home.user_version").fetchone()
    _schema(connection, version, findings)
    there = {name for (name,) in connection.execute("SELECT name FROM home.sqlite_master")}
    for table, key in TABLES.items():
        if table not in there:
            continue  # its schema had none; one that is missing was said above
        left_out = {one for (of, one), since in _CHANGED.items() if of == table and version < since}
        left_out |= PRESENCE.get(table, frozenset())
        _table(connection, table, key.split(", "), left_out, unreplayed, findings)


def _schema(connection: sqlite3.Connection, version: int, findings: Findings) -> None:
    """Tables and indexes themselves."""
    query = "SELECT name, sql FROM {}.sqlite_master WHERE sql IS NOT NULL"
    found = set(fetch(connection, query.format("home")))
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        schema.migrate(empty, version)
        should = set(empty.execute(query.format("main")))
    for name, _ in sorted(should ^ found, key=repr):
        findings.add("table", f"The definition of {name} is not as it was made.", table=name)


def _table(
    connection: sqlite3.Connection,
    table: str,
    key: list[str],
    left_out: Collection[str],
    unreplayed: Collection[str],
    findings: Findings,
) -> None:
    there = {row[1] for row in connection.execute(f"PRAGMA home.table_info({table})")}
    names = [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")]
    there |= set(key)
    columns = [name for name in names if name in there and name not in left_out]
    should = _differing(connection, table, columns, key, "main", "home")
    found = _differing(connection, table, columns, key, "home", "main")
    owner = "id" if table == "rollouts" else "rollout"
    named = 0
    for at in dict.fromkeys([*should, *found]):
        row = should.get(at) or found[at]
        rollout = str(row[columns.index(owner)]) if owner in columns else ""
        if rollout in unreplayed:
            continue
        named += 1
        if named <= ROWS:
            text = _difference(table, key, columns, at, should.get(at), found.get(at))
            findings.add("table", text, rollout=rollout, table=table)
    if named > ROWS:
        findings.add("table", f"{table}: {named - ROWS} more rows differ.", table=table)


def _differing(
    connection: sqlite3.Connection,
    table: str,
    columns: list[str],
    key: list[str],
    one: str,
    other: str,
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Rows that `one` has and `other` has not, by key."""
    wanted = ", ".join(columns)
    rows = fetch(
        connection,
        f"SELECT {wanted} FROM {one}.{table} EXCEPT SELECT {wanted} FROM {other}.{table}",
    )
    places = [columns.index(name) for name in key]
    return {tuple(row[place] for place in places): row for row in rows}


def _difference(
    table: str,
    key: list[str],
    columns: list[str],
    at: tuple[Any, ...],
    should: tuple[Any, ...] | None,
    found: tuple[Any, ...] | None,
) -> str:
    where = ", ".join(f"{name} {value!r}" for name, value in zip(key, at, strict=True))
    if should is None or found is None:
        return f"{table}: the row with {where} {'is missing' if found is None else 'is too many'}."
    parts = [
        f"{name} is {has!r}, the events say {should_have!r}"
        for name, should_have, has in zip(columns, should, found, strict=True)
        if (type(should_have), should_have) != (type(has), has)
    ]
    return f"{table}: in the row with {where}, {'; '.join(parts)}."
