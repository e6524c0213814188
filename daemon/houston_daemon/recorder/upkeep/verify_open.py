"""How the checks open a home: read only, and beside empty tables to replay into."""

import sqlite3
from typing import Any
from urllib.parse import quote

from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.store import opening, schema


def open_home(home: Home) -> sqlite3.Connection:
    """The home's database, read only; raises HoustonError when it cannot be opened."""
    return sqlite3.connect(_uri(home), uri=True, isolation_level=None)


def open_beside(home: Home) -> sqlite3.Connection:
    """Empty tables (`main`, a temporary file), and the home, read only (`home`)."""
    uri = _uri(home)
    connection = sqlite3.connect("", isolation_level=None, uri=True)
    schema.migrate(connection)
    for pragma in ("synchronous = OFF", "journal_mode = OFF", "cache_size = -131072"):
        connection.execute(f"PRAGMA main.{pragma}").fetchall()
    connection.execute("ATTACH ? AS home", (uri,))
    return connection


def _uri(home: Home) -> str:
    """The file, checked to be a database of ours that opens; raises HoustonError."""
    try:
        opened = opening.open_journal(home)
    except UnicodeDecodeError as problem:  # SQLite's own words about damage quote the damage
        raise HoustonError(
            f"{home.database} is damaged: its schema cannot be read ({problem.reason}).",
            "Nothing was checked.",
            "houston repair",
            ExitCode.DAMAGED,
        ) from None
    opened.connection.close()
    mode = "mode=ro&immutable=1" if opened.immutable else "mode=ro"
    return f"file:{quote(str(home.database))}?{mode}"


def fetch(connection: sqlite3.Connection, sql: str, *parameters: Any) -> list[Any]:
    """All rows; damaged text is named like any other damage, and does not end the reading of it.

    A decoder of our own for every text would cost a tenth of the whole check.
    """
    try:
        return connection.execute(sql, parameters).fetchall()
    except (sqlite3.OperationalError, UnicodeDecodeError):
        connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        return connection.execute(sql, parameters).fetchall()
