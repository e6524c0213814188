"""Schema version: what this Houston reads and writes, and how an older home gets there.

Migrations are numbered SQL files. The recorder runs them before its sockets open and after an
online backup; readers only check. An unknown (newer) version is refused with a sentence.
"""

import sqlite3

from houston_shared.errors import ExitCode, HoustonError

VERSION = 6
"""Newest schema this code knows: the number of the last file in `migrations/`."""


def version_of(connection: sqlite3.Connection) -> int:
    """Schema version of an open database; 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def check(connection: sqlite3.Connection, where: str) -> None:
    """Refuse a database that this code cannot read; raises HoustonError."""
    found = version_of(connection)
    if found > VERSION:
        raise HoustonError(
            f"The home {where} has schema {found}; this Houston knows up to {VERSION}.",
            "Nothing was opened or changed.",
            "Install the Houston that wrote it, or name another --home.",
            ExitCode.CONFIGURATION,
        )


def pending(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    """Numbers and SQL of the migrations that an open database still needs, in order."""
    from importlib import resources  # 5 ms that readers do not pay

    found = version_of(connection)
    folder = resources.files(__package__) / "migrations"
    files = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    numbered = [(int(name[:4]), (folder / name).read_text()) for name in files]
    return [(number, sql) for number, sql in numbered if number > found]


def migrate(connection: sqlite3.Connection, to: int | None = None) -> None:
    """Bring an open, writable database to `VERSION` (or a version before it), in one transaction.

    Raises sqlite3.Error; the transaction is then still open, or was never begun.
    """
    steps = [one for one in pending(connection) if to is None or one[0] <= to]
    if steps:
        sql = "\n".join(sql for _, sql in steps)
        connection.executescript(f"BEGIN;\n{sql}\nPRAGMA user_version = {steps[-1][0]};\nCOMMIT;")
