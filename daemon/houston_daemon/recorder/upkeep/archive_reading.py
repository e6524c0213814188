"""An archive as a home that can be read: its events in a database of their own, rows derived.

The home is a temporary folder and goes with its reader. Of an archive's own form, `archive` knows.
"""

import base64
import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from houston_daemon.recorder.derived.rules import Event
from houston_daemon.recorder.upkeep import archive
from houston_daemon.recorder.upkeep.archive import Manifest
from houston_daemon.recorder.upkeep.verify_events import COLUMNS
from houston_daemon.recorder.upkeep.verify_findings import Findings
from houston_daemon.recorder.upkeep.verify_replay import Replay
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.store import schema

_NAMES = COLUMNS.split(", ")
_BYTES = ("body", "body_hash", "chain")
_INSERT = f"INSERT INTO events ({COLUMNS}) VALUES ({', '.join('?' * len(_NAMES))})"


@contextlib.contextmanager
def home_of(path: Path) -> Iterator[tuple[Home, Manifest]]:
    """A home that holds the rollout of an archive as it was, and the archive's manifest.

    Raises HoustonError where the file is no archive, damaged, or of a newer Houston.
    """
    manifest = archive.read(path)
    if manifest.schema > schema.VERSION:
        raise HoustonError(
            f"The archive {path} has schema {manifest.schema}; this Houston knows up to"
            f" {schema.VERSION}.",
            "Nothing was read.",
            f"Read it with houston {manifest.version}.",
            ExitCode.CONFIGURATION,
        )
    try:
        place = tempfile.TemporaryDirectory(prefix="houston-archive-")
    except OSError as problem:
        raise _no_room(path, problem) from None
    with place as folder:
        home = Home(Path(folder))
        try:
            _write(home, archive.events(path))
        except (OSError, sqlite3.OperationalError) as problem:
            raise _no_room(path, problem) from None
        yield home, manifest


def _no_room(path: Path, problem: Exception) -> HoustonError:
    return HoustonError(
        f"The archive {path} cannot be unpacked for reading: {problem}.",
        "Nothing was read.",
        f"Make room in {tempfile.gettempdir()}, or name another folder: TMPDIR=DIR houston rollout"
        f" archive --read {path}",
    )


def _write(home: Home, events: Iterator[dict[str, Any]]) -> None:
    connection = sqlite3.connect(home.database, isolation_level=None)
    try:
        schema.migrate(connection)
        connection.execute("PRAGMA synchronous = OFF").fetchall()
        connection.execute("BEGIN")
        findings = Findings()
        replay = Replay(home, connection, findings)
        for event in events:
            row = _row(event)
            connection.execute(_INSERT, row)
            replay.one(Event(*row[:7]), *row[7:10])
        replay.finish()
        connection.execute("COMMIT")
    finally:
        connection.close()
    if findings.all:
        raise HoustonError(
            f"The archive cannot be replayed: {findings.all[0].text}",
            "Nothing was read.",
            "Read it with the Houston that wrote it.",
            ExitCode.DAMAGED,
        )


def _row(event: dict[str, Any]) -> tuple[Any, ...]:
    """A row of `events`; a large body stands in it, and no blob is named."""
    row = dict(event, blob=None)
    for name in _BYTES:
        row[name] = None if event[name] is None else base64.b64decode(event[name])
    return tuple(row[name] for name in _NAMES)
