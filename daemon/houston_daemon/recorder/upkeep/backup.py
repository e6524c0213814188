"""`houston backup`: a copy of a home that is a home itself, made while the daemon runs and writes.

Holds the database, its head, the blobs that its events name, adapters of policies, and the
configuration; not the search index, which is rebuilt, and no full weights or training runs. Made
beside its place, checked by `verify`, its manifest written last, and then renamed: what has a
manifest is whole. Of what rollouts own on hosts it knows nothing.
"""

import contextlib
import shutil
import sqlite3
import time
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import msgspec

from houston_daemon.recorder.disk import damage, head_file
from houston_daemon.recorder.upkeep import copying, places, restored
from houston_daemon.recorder.upkeep.verify import verify
from houston_shared.clock import iso, now_us
from houston_shared.errors import ConfigurationError, ExitCode, HoustonError
from houston_shared.home import Home, unreadable
from houston_shared.policy_names import policies_folder
from houston_shared.store import blobs, schema

LEFT_ALONE = ("houston.toml", "logs", "backups", "archives", "damaged", "service.env")
"""What may lie in a home that is restored: no part of its store."""

ROTTEN = "manifest.rotten"
"""What the manifest is called once the backup was found changed: it is none any more."""
UNFINISHED = ".20??????T??????.???Z.new"
"""Names of half backups."""


class Manifest(msgspec.Struct, frozen=True):
    """What a backup holds: `manifest.json`, and the JSON of `houston backup`."""

    name: str
    at: str
    home: str
    """Of which home."""
    version: str
    schema: int
    seq: int
    chain: str
    """Chain value of event `seq`, hex."""
    events: int
    bytes: int
    """Of all files."""
    files: dict[str, str]
    """SHA-256 (hex) by path; blobs are named by theirs."""
    blobs: int
    held_seconds: float
    """For how long the copy held a read mark in the daemon's WAL."""
    periodic: bool = False
    """Whether it is one of a series, of which only the newest are kept."""


def make(home: Home, to: Path | None = None, periodic: bool = False) -> Manifest:
    """Back a home up into a new folder of `to` (default: its own `backups/`).

    periodic: it may be pruned when newer ones of its kind are there.

    Raises HoustonError when there is nothing to back up, when the copy is not sound (exit code 65;
    nothing is left then), or when it cannot be written.
    """
    parent = to or home.backups
    _there(home)
    with places.alone(home, parent, home.backups, UNFINISHED):
        return _make(home, parent, periodic)


def _make(home: Home, parent: Path, periodic: bool) -> Manifest:
    name = copying.stamp()
    beside = Home(parent / f".{name}.new")
    try:
        beside.blobs.mkdir(mode=0o700, parents=True)
        held = _copy(home, beside)
        manifest = _checked(home, beside, name, held, periodic)
        copying.write(beside.path / damage.MANIFEST, msgspec.json.encode(manifest) + b"\n")
        copying.sync_tree(beside.path)
        beside.path.rename(parent / name)
        copying.sync(parent)
    except (OSError, sqlite3.Error) as problem:
        raise HoustonError(
            f"The backup cannot be made in {parent}: {problem}.",
            "None was kept.",
            "Make room or permission there, or name another folder with --to.",
        ) from None
    finally:
        shutil.rmtree(beside.path, ignore_errors=True)  # gone already when all went well
    return manifest


def listed(home: Home, folder: Path | None = None) -> list[Manifest]:
    """The complete backups of a home (or in `folder`), oldest first; for the others `rotten`."""
    found = []
    for path in sorted((folder or home.backups).glob(f"[0-9]*/{damage.MANIFEST}")):
        with contextlib.suppress(HoustonError):
            found.append(read(path.parent))
    return found


def read(folder: Path) -> Manifest:
    """A backup's manifest; raises HoustonError where there is none or it is damaged."""
    try:
        return msgspec.json.decode((folder / damage.MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError) as problem:
        raise HoustonError(
            f"{folder} is no backup: {problem}.", "Nothing was done.", "houston backup --list"
        ) from None


class Pruned(NamedTuple):
    """What became of a series of backups; names of their folders."""

    removed: list[str]
    rotten: list[str]
    """No longer what was backed up; they are none any more, and a person may remove them."""


def prune(folder: Path, made: Manifest, keep: int) -> Pruned:
    """Remove old backups of `folder` that are of the same series as `made`.

    Of the series (periodic, of one home) `made` and the newest others are left, `keep` in all; what
    a person made stays. Only those count that still are what was backed up: a good one never goes
    for a bad one. Newest by event: the clock may have been set back since.
    """
    series = [
        (one.seq, one.name, one)
        for one in listed(Home(folder), folder)
        if one.periodic and one.home == made.home and one.name != made.name
    ]
    left, done = keep - 1, Pruned([], [])
    for _, name, one in sorted(series, key=lambda found: found[:2], reverse=True):
        if left <= 0:
            # Half a backup must never look whole.
            (folder / name / damage.MANIFEST).unlink()
            shutil.rmtree(folder / name, ignore_errors=True)
            done.removed.append(name)
        elif _changed(folder / name, one):
            (folder / name / damage.MANIFEST).rename(folder / name / ROTTEN)
            done.rotten.append(name)
        else:
            left -= 1
    return done


def rotten(folder: Path) -> list[str]:
    """Names in `folder` of what was a backup: found changed, or its manifest cannot be read."""
    found = [path.parent.name for path in folder.glob(f"[0-9]*/{ROTTEN}")]
    for path in folder.glob(f"[0-9]*/{damage.MANIFEST}"):
        try:
            read(path.parent)
        except HoustonError:
            found.append(path.parent.name)
    return sorted(found)


def _changed(folder: Path, manifest: Manifest) -> str:
    """The first file of a backup that is not as it was made; empty where all are."""
    blobs_there = sorted(Home(folder).blobs.glob("*/*.zst"))
    files = [(folder / name, digest) for name, digest in manifest.files.items()]
    files += [(path, path.stem) for path in blobs_there]
    for path, digest in files:
        try:
            if copying.sha256(path) != digest:
                return str(path)
        except OSError:
            return str(path)
    return "" if len(blobs_there) == manifest.blobs else str(Home(folder).blobs)


def restore(folder: Path, home: Home) -> tuple[Manifest, list[str]]:
    """Make a home out of a backup; its rollouts that had not ended are paused, and named.

    The home that the backup was made of may still run them. Raises HoustonError, also where there
    is a home already.
    """
    manifest = read(folder)
    if home.path.exists() and any(entry.name not in LEFT_ALONE for entry in home.path.iterdir()):
        raise ConfigurationError(
            f"The home {home.path} is not empty.",
            "Nothing was restored.",
            "Move it away, or name an empty folder with --home.",
        )
    if wrong := _changed(folder, manifest):
        raise HoustonError(
            f"{wrong} is not the file that was backed up.",
            "Nothing was restored.",
            "Restore another backup: houston backup --list",
            ExitCode.DAMAGED,
        )
    source = Home(folder)
    for name in manifest.files:
        if name != "houston.toml" or not home.configuration.exists():
            copying.file(folder / name, home.path / name)
    home.blobs.mkdir(mode=0o700, exist_ok=True)
    for path in source.blobs.glob("*/*.zst"):
        copying.file(path, blobs.place(home, path.stem))
    home.path.chmod(0o700)
    copying.sync_tree(home.path)
    return manifest, restored.pause(home, manifest.home, manifest.at)


def _there(home: Home) -> None:
    try:
        there = home.database.is_file()
    except OSError as problem:
        raise unreadable(home.path, problem) from None
    if not there:
        raise HoustonError(
            f"There is no database in the home {home.path}.",
            "There is nothing to back up.",
            "houston daemon start, or name the right folder with --home",
        )


def _copy(home: Home, beside: Home) -> float:
    held = copying.database(home.database, beside.database)
    connection = sqlite3.connect(beside.database, isolation_level=None)
    try:
        newest = connection.execute(
            "SELECT seq, chain FROM events ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        named = connection.execute(
            "SELECT DISTINCT blob FROM events WHERE blob IS NOT NULL"
        ).fetchall()
    finally:
        connection.close()
    if newest:
        head_file.write(beside, *newest)
    for (name,) in named:
        with contextlib.suppress(FileNotFoundError):  # said by the check of the copy
            copying.file(blobs.place(home, name), blobs.place(beside, name))
    for path in _adapters(home):
        copying.file(path, beside.path / path.relative_to(home.path))
    if home.configuration.is_file():
        copying.file(home.configuration, beside.configuration)
    return held


def _adapters(home: Home) -> list[Path]:
    """Files of policies that are adapters: small, and nowhere else."""
    found = policies_folder(home).glob("[!.]*/adapter_config.json")
    return [path for config in found for path in sorted(config.parent.iterdir())]


def _checked(home: Home, beside: Home, name: str, held: float, periodic: bool) -> Manifest:
    report = verify(beside)
    if not report.sound:
        raise HoustonError(
            f"The copy of {home.path} is not sound: {report.findings[0].text}",
            "No backup was kept.",
            "houston verify",
            ExitCode.DAMAGED,
        )
    head = head_file.read(beside) or head_file.Head(0, "")
    files = [path for path in sorted(beside.path.iterdir()) if path.is_file()]
    files += _adapters(beside)
    everything = [path for path in beside.path.rglob("*") if path.is_file()]
    return Manifest(
        name=name,
        at=iso(now_us()),
        home=str(home.path),
        version=version("houston-agents"),
        schema=_schema(beside),
        seq=head.seq,
        chain=head.chain,
        events=report.events,
        bytes=sum(path.stat().st_size for path in everything),
        files={str(path.relative_to(beside.path)): copying.sha256(path) for path in files},
        blobs=len(report.blobs),
        held_seconds=round(held, 3),
        periodic=periodic,
    )


def _schema(home: Home) -> int:
    with contextlib.closing(sqlite3.connect(home.database)) as connection:
        return schema.version_of(connection)


def newest(home: Home) -> tuple[float, int] | None:
    """When the home's newest backup was made (POSIX time of its folder's end) and to which event.

    One that a clock set back puts into the future is not counted; None where there is no other.
    """
    found = []
    now = time.time()
    for path in home.backups.glob(f"[0-9]*/{damage.MANIFEST}"):
        with contextlib.suppress(HoustonError, OSError):  # damaged, or pruned this moment
            found.append((path.stat().st_mtime, read(path.parent).seq))
    return max((one for one in found if one[0] <= now), default=None)


def age_seconds(home: Home) -> float | None:
    """How old the newest backup is; None where there is none."""
    found = newest(home)
    return max(0.0, time.time() - found[0]) if found else None
