"""A rollout as one file: every event with its body, compressed, checked by reading it back.

JSON Lines under zstd. The first line is the `Manifest`; then each event with its columns (bytes in
base64, large bodies whole); the last line holds the SHA-256 of all lines before it. Erasing what
was archived is `erasure`'s, reading it as a home `archive_reading`'s.
"""

import base64
import hashlib
import io
import sqlite3
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import zstandard

from houston_daemon.recorder.upkeep import copying, places
from houston_daemon.recorder.upkeep.verify_events import COLUMNS
from houston_shared.clock import iso, now_us
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.store import blobs, chain, opening, schema
from houston_shared.store.in_order import OF_ROLLOUT

SUFFIX = ".houston.zst"
UNFINISHED = f"*{SUFFIX}.new"
PAGE = 500
"""Events of one read transaction."""
_NAMES = COLUMNS.split(", ")
_BODY, _BLOB, _ERASED, _HASH = 7, 8, 9, 10


class Manifest(msgspec.Struct, frozen=True):
    """The first line of an archive."""

    rollout: str
    events: int
    first: int
    last: int
    """First and last event."""
    at: str
    version: str
    schema: int


def write(home: Home, rollout: str, to: Path | None = None) -> tuple[Path, Manifest]:
    """Write a rollout's archive, synced and read back; raises HoustonError."""
    folder = to or home.archives
    path = folder / f"{rollout}-{copying.stamp()}{SUFFIX}"
    try:
        with places.alone(home, folder, home.archives, UNFINISHED):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with copying.whole(path) as file:
                _pack(home, rollout, file)
    except (OSError, sqlite3.Error) as problem:
        raise HoustonError(
            f"The archive {path} cannot be written: {problem}.",
            "Nothing was archived, and nothing was erased.",
            "Make room or permission there, or name another folder with --to.",
        ) from None
    return path, read(path)


def read(path: Path) -> Manifest:
    """An archive's manifest, after every byte of it was checked.

    Raises HoustonError: with 65 where it is damaged, with 1 where it cannot be looked at.
    """
    try:
        lines = _unpacked(path)
        manifest = msgspec.json.decode(next(lines), type=Manifest)
        digest = hashlib.sha256(msgspec.json.encode(manifest))
        for found, line in enumerate(lines):
            event = msgspec.json.decode(line)
            if "sha256" in event:
                if event["sha256"] == digest.hexdigest() and found == manifest.events:
                    return manifest
                break
            digest.update(line)
            if not _sound(event):
                raise _damaged(path, f"event {event.get('seq')} is not what was stored")
    except OSError as problem:
        raise HoustonError(
            f"The archive {path} cannot be read by this user: {problem.strerror}.",
            "Nothing was done.",
            "houston rollout show R says where an archived rollout's file is",
        ) from None
    except StopIteration:
        raise _damaged(path, "not even its first line is whole") from None
    except (zstandard.ZstdError, msgspec.MsgspecError) as problem:
        raise _damaged(path, str(problem)) from None
    raise _damaged(path, "its end is missing or wrong")


def events(path: Path) -> Iterator[dict[str, Any]]:
    """The events of an archive that was checked (`read`), in order; bytes are base64."""
    lines = _unpacked(path)
    next(lines)
    for line in lines:
        event = msgspec.json.decode(line)
        if "sha256" not in event:
            yield event


def _pack(home: Home, rollout: str, file: BinaryIO) -> None:
    digest = hashlib.sha256()
    with zstandard.ZstdCompressor(level=9).stream_writer(file, closefd=False) as packer:
        for line in _lines(home, rollout):
            packer.write(line + b"\n")
            digest.update(line)
        packer.write(msgspec.json.encode({"sha256": digest.hexdigest()}) + b"\n")


def _lines(home: Home, rollout: str) -> Iterator[bytes]:
    """The manifest, then each event up to the newest of now."""
    connection = opening.open_journal(home).connection
    try:
        count, first, last = connection.execute(
            f"SELECT count(*), min(seq), max(seq) FROM events WHERE {OF_ROLLOUT}", (rollout,)
        ).fetchone()
        yield msgspec.json.encode(
            Manifest(
                rollout=rollout,
                events=count,
                first=first or 0,
                last=last or 0,
                at=iso(now_us()),
                version=version("houston-agents"),
                schema=schema.VERSION,
            )
        )
        for row in _rows(connection, rollout, last or 0):
            yield msgspec.json.encode(_event(home, row))
    finally:
        connection.close()


def _rows(connection: sqlite3.Connection, rollout: str, last: int) -> Iterator[tuple[Any, ...]]:
    """Rows up to `last`, in order; packing takes long, so each page is a transaction of its own."""
    sql = (
        f"SELECT {COLUMNS} FROM events WHERE {OF_ROLLOUT} AND seq > ?2 AND seq <= ?3"
        " ORDER BY seq LIMIT ?4"
    )
    seq = 0
    while page := connection.execute(sql, (rollout, seq, last, PAGE)).fetchall():
        yield from page
        seq = page[-1][0]


def _event(home: Home, row: tuple[Any, ...]) -> dict[str, Any]:
    event = dict(zip(_NAMES, row, strict=True))
    if row[_BLOB]:
        event["body"] = blobs.read(home, row[_BLOB])
    return {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in event.items()
    }


def _sound(event: dict[str, Any]) -> bool:
    """Whether the body is the one that was stored; of erased ones the journal vouches."""
    if event["erased"] or event["body"] is None:
        return bool(event["erased"])
    body, digest = (base64.b64decode(event[name]) for name in ("body", "body_hash"))
    return chain.body_hash(body) == digest


def _unpacked(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        reader = io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(file))
        for line in reader:
            yield line.rstrip(b"\n")


def _damaged(path: Path, why: str) -> HoustonError:
    return HoustonError(
        f"The archive {path} cannot be read back: {why}.",
        "Nothing was done.",
        "Take another copy of it; texts that are still in the home can be archived again.",
        ExitCode.DAMAGED,
    )
