"""A rollout as one archive file: written and read back, or unpacked for reading.

JSON Lines under zstd: the manifest, each event with its columns (bytes in base64, large bodies
whole), then the SHA-256 of all lines before. For reading, a temporary home holds the events with
their derived rows; it is removed with its reader. `event_erasure` erases what was archived.
"""

import base64
import contextlib
import hashlib
import io
import sqlite3
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import zstandard

from houston_daemon.maintenance import durable_copy
from houston_daemon.maintenance.damage_report import IntegrityFindings
from houston_daemon.maintenance.projection_replay import ProjectionReplay
from houston_daemon.recorder import hash_chain
from houston_daemon.recorder.hash_chain import EVENT_COLUMNS, EventRow
from houston_shared import atomic_file
from houston_shared.errors import Damaged, ExitCode, HoustonError, unreadable_file_code
from houston_shared.home import Home
from houston_shared.store import schema, store_reader
from houston_shared.store.journal_events import EVENTS_OF_ROLLOUT, split_for_in
from houston_shared.times_and_counts import iso_time, now_us

ARCHIVE_SUFFIX = ".houston.zst"
UNFINISHED_ARCHIVES = f"*{ARCHIVE_SUFFIX}.new"
_BYTES_COLUMNS = ("body", "body_hash", "chain")


class ArchiveManifest(msgspec.Struct, frozen=True):
    """The first line of an archive."""

    rollout: str
    events: int
    first: int
    last: int
    """First and last event."""
    at: str
    version: str
    schema: int


def write_archive(home: Home, rollout: str, to: Path | None = None) -> tuple[Path, ArchiveManifest]:
    """Write a rollout's archive, synced and read back; raises HoustonError."""
    folder = to or home.archives
    path = folder / f"{rollout}-{durable_copy.make_timestamp()}{ARCHIVE_SUFFIX}"
    try:
        with durable_copy.lock_copy_folder(home, folder, home.archives, UNFINISHED_ARCHIVES):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with atomic_file.open_atomically(path, mode=0o600) as file:
                _pack_events(home, rollout, file)
    except (OSError, sqlite3.Error) as problem:
        raise HoustonError(
            f"The archive {path} cannot be written: {problem}.",
            "Nothing was archived, and nothing was erased.",
            "Free space or grant permission there, or name another folder with --out.",
        ) from None
    return path, check_archive(path)


def check_archive(path: Path) -> ArchiveManifest:
    """An archive's manifest, after every byte of it was checked.

    Raises HoustonError: with 65 where it is damaged, with 1 where it cannot be looked at.
    """
    try:
        lines = _read_lines(path)
        first = next(lines)
        manifest = msgspec.json.decode(first, type=ArchiveManifest)
        digest = hashlib.sha256(first)
        for number, line in enumerate(lines):
            event = msgspec.json.decode(line)
            if "sha256" in event:
                if event["sha256"] == digest.hexdigest() and number == manifest.events:
                    return manifest
                break
            digest.update(line)
            if not _is_body_sound(event):
                raise _archive_damaged(path, f"event {event.get('seq')} is not what was stored")
    except OSError as problem:
        raise HoustonError(
            f"The archive {path} cannot be read by this user: {problem.strerror}.",
            "Nothing was done.",
            "houston rollout show R says where an archived rollout's file is",
            unreadable_file_code(problem),
        ) from None
    except StopIteration:
        raise _archive_damaged(path, "even its first line is incomplete") from None
    except (zstandard.ZstdError, msgspec.MsgspecError) as problem:
        raise _archive_damaged(path, str(problem)) from None
    raise _archive_damaged(path, "its end is missing or wrong")


def read_archive_events(path: Path) -> Iterator[dict[str, Any]]:
    """The events of an archive that was checked, in order; bytes are base64."""
    lines = _read_lines(path)
    next(lines)
    for line in lines:
        event = msgspec.json.decode(line)
        if "sha256" not in event:
            yield event


def _pack_events(home: Home, rollout: str, file: BinaryIO) -> None:
    digest = hashlib.sha256()
    with zstandard.ZstdCompressor(level=9).stream_writer(file, closefd=False) as packer:
        for line in _archive_lines(home, rollout):
            packer.write(line + b"\n")
            digest.update(line)
        packer.write(msgspec.json.encode({"sha256": digest.hexdigest()}) + b"\n")


def _archive_lines(home: Home, rollout: str) -> Iterator[bytes]:
    """The manifest, then each event up to the newest of now."""
    connection = store_reader.open_journal(home).connection
    try:
        count, first, last = connection.execute(
            f"SELECT count(*), min(seq), max(seq) FROM events WHERE {EVENTS_OF_ROLLOUT}", (rollout,)
        ).fetchone()
        yield msgspec.json.encode(
            ArchiveManifest(
                rollout=rollout,
                events=count,
                first=first or 0,
                last=last or 0,
                at=iso_time(now_us()),
                version=version("houston-agents"),
                schema=schema.SCHEMA_VERSION,
            )
        )
        for row in _select_rows(connection, rollout, last or 0):
            yield msgspec.json.encode(_encode_event(home, row))
    finally:
        connection.close()


def _select_rows(connection: sqlite3.Connection, rollout: str, last: int) -> Iterator[EventRow]:
    """Rows up to `last`, in order; packing takes long, so each page is a transaction of its own."""
    sql = f"SELECT seq FROM events WHERE {EVENTS_OF_ROLLOUT} ORDER BY seq"
    seqs = [seq for (seq,) in connection.execute(sql, (rollout,)) if seq <= last]
    for marks, page in split_for_in(seqs):
        sql = f"SELECT {EVENT_COLUMNS} FROM events WHERE seq IN ({marks}) ORDER BY seq"
        yield from map(EventRow._make, connection.execute(sql, page).fetchall())


def _encode_event(home: Home, row: EventRow) -> dict[str, Any]:
    event = row._asdict()
    if row.blob:
        event["body"] = store_reader.read_blob(home, row.blob)
    return {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in event.items()
    }


def _is_body_sound(event: dict[str, Any]) -> bool:
    """Whether the body is the one that was stored; of erased ones the journal vouches."""
    if event["erased"] or event["body"] is None:
        return bool(event["erased"])
    body, digest = (base64.b64decode(event[name]) for name in ("body", "body_hash"))
    return hash_chain.body_hash(body) == digest


def _read_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        reader = io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(file))
        for line in reader:
            yield line.rstrip(b"\n")


def _archive_damaged(path: Path, reason: str) -> HoustonError:
    return Damaged(
        f"The archive {path} cannot be read back: {reason}.",
        "Nothing was done.",
        "Take another copy of it; texts that are still in the home can be archived again.",
    )


@contextlib.contextmanager
def unpack_archive(path: Path) -> Iterator[tuple[Home, ArchiveManifest]]:
    """A home that holds the rollout of an archive as it was, and the archive's manifest.

    Raises HoustonError where the file is no archive, damaged, or of a newer Houston.
    """
    manifest = check_archive(path)
    if manifest.schema > schema.SCHEMA_VERSION:
        raise HoustonError(
            f"The archive {path} has schema {manifest.schema}; this Houston knows up to"
            f" {schema.SCHEMA_VERSION}.",
            "Nothing was read.",
            f"Read it with houston {manifest.version}.",
            ExitCode.CONFIGURATION,
        )
    try:
        temporary = tempfile.TemporaryDirectory(prefix="houston-archive-")
    except OSError as problem:
        raise _no_room_error(path, problem) from None
    with temporary as folder:
        home = Home(Path(folder))
        try:
            _write_home(home, read_archive_events(path))
        except (OSError, sqlite3.OperationalError) as problem:
            raise _no_room_error(path, problem) from None
        yield home, manifest


def _no_room_error(path: Path, problem: Exception) -> HoustonError:
    return HoustonError(
        f"The archive {path} cannot be unpacked for reading: {problem}.",
        "Nothing was read.",
        f"Make room in {tempfile.gettempdir()}, or name another folder: TMPDIR=DIR houston rollout"
        f" archive --read {path}",
    )


def _write_home(home: Home, events: Iterator[dict[str, Any]]) -> None:
    connection = sqlite3.connect(home.database, isolation_level=None)
    try:
        schema.migrate_schema(connection)
        connection.execute("PRAGMA synchronous = OFF").fetchall()
        connection.execute("BEGIN")
        findings = IntegrityFindings()
        replay = ProjectionReplay(home, connection, findings)
        for event in events:
            replay.insert_event(_decode_row(event))
        replay.finish()
        connection.execute("COMMIT")
    finally:
        connection.close()
    if findings.findings:
        raise Damaged(
            f"The archive cannot be replayed: {findings.findings[0].text}",
            "Nothing was read.",
            "Read it with the Houston that wrote it.",
        )


def _decode_row(event: dict[str, Any]) -> EventRow:
    """A row of `events`; a large body stands in it, and no blob is named."""
    row = dict(event, blob=None)
    for name in _BYTES_COLUMNS:
        row[name] = None if event[name] is None else base64.b64decode(event[name])
    return EventRow(**{name: row[name] for name in EventRow._fields})
