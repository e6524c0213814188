"""Backups of a home: made while the daemon writes, listed, pruned, found by name, and restored.

A backup is itself a home: database, head, blobs, adapters, configuration and the commits of models
of the hub, checked by `verify`, its manifest written last. It leaves out the search index, full
weights, training runs, and what rollouts own on hosts. Rollouts of a restored home are paused,
because the original home may still run them.
"""

import contextlib
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_daemon.environments.environment_registry import kind
from houston_daemon.maintenance import damage_report, durable_copy
from houston_daemon.maintenance.home_verification import verify_home
from houston_daemon.recorder import rollout_states
from houston_daemon.recorder.disk import home_files
from houston_daemon.recorder.disk.writer_connection import open_writer
from houston_daemon.recorder.journal_writer import EventKey, JournalWriter
from houston_daemon.recorder.live_workers import LiveWorkers
from houston_daemon.recorder.recorder_store import Store
from houston_shared import atomic_file, hub_models
from houston_shared.errors import ConfigurationError, Damaged, HoustonError, NotFound
from houston_shared.home import Home, unreadable_home
from houston_shared.policy_and_run_files import policies_folder
from houston_shared.records import RolloutSpec
from houston_shared.store import schema, store_reader
from houston_shared.store.event_bodies import StoredState
from houston_shared.task import parse_task_record
from houston_shared.times_and_counts import iso_time, now_us


def find_backups(home: Home, named: Path) -> list[Path]:
    """Folders of the backups that `named` means, newest first, at least one.

    named: a backup, a folder of backups, or the name of one in the home's own `backups/`. Raises
    HoustonError where it is none of them, or this user may not look.
    """
    try:
        for folder in dict.fromkeys((named.absolute(), home.backups / named)):
            check_readable(folder)
            if backups := _backups_in(folder):
                return backups
        exists = named.exists()
    except OSError as problem:
        raise unreadable_backups(named, problem) from None
    reason = f"holds no backup (no {damage_report.BACKUP_MANIFEST})" if exists else "does not exist"
    raise NotFound(f"{named} {reason}.", "Nothing was done.", _next_command(home))


def find_one_backup(home: Home, named: Path) -> Path:
    """The one backup that `named` means; raises HoustonError, also where there are several."""
    backups = find_backups(home, named)
    if len(backups) > 1:
        names = ", ".join(path.name for path in backups)
        raise HoustonError(
            f"{named} holds {len(backups)} backups: {names}.",
            "Nothing was done.",
            f"Name one of them, such as {backups[0]}.",
        )
    return backups[0]


def check_readable(folder: Path) -> None:
    """Raise HoustonError where this user may not see what backups a folder holds."""
    try:
        if folder.is_dir():
            list(folder.iterdir())
    except OSError as problem:
        raise unreadable_backups(folder, problem) from None


def unreadable_backups(folder: Path, problem: OSError) -> HoustonError:
    """The sentence for a folder into which this user may not look."""
    return HoustonError(
        f"The backups in {folder} cannot be read by this user: {problem.strerror}.",
        "Nothing was done.",
        "Ask the user who owns the home; `houston daemon status` shows how old the newest is.",
    )


def _backups_in(folder: Path) -> list[Path]:
    if (folder / damage_report.BACKUP_MANIFEST).is_file():
        return [folder]
    if not folder.is_dir():
        return []
    folders = (path.parent for path in folder.glob(f"*/{damage_report.BACKUP_MANIFEST}"))
    return sorted((path for path in folders if not path.name.startswith(".")), reverse=True)


def _next_command(home: Home) -> str:
    names = damage_report.list_backup_names(home)
    return f"Known backups: {', '.join(names)}." if names else "houston backup --list --out FOLDER"


_SELECT_SELF_STARTING = (
    "SELECT id, head_seq IS NOT NULL, body, blob FROM rollouts JOIN events ON seq = spec_seq"
    " WHERE cancelling = '' AND (state IN ('queued', 'running')"
    " OR (state = 'paused' AND paused_by IN (?, ?, ?))) ORDER BY spec_seq"
)
"""Rollouts that would go on by themselves, whether they have begun, and their specs."""


def pause_restored_rollouts(home: Home, origin: str, at: str, store: str = "") -> list[str]:
    """Pause what would go on by itself in a home that nobody has open; the rollouts' ids.

    origin: the home that was backed up; at: when. store: the URL that has their snapshots, too.
    Raises HoustonError.
    """
    try:
        connection = open_writer(home)
        try:
            opened = Store(home, connection, JournalWriter(connection), LiveWorkers())
            reason = f"restored as it was at {at}; {origin} may still run it"
            return _append_pauses(opened, reason, store)
        finally:
            connection.close()
    except sqlite3.Error as problem:
        raise Damaged(
            f"The restored home {home.path} cannot be opened ({problem}).",
            "Nothing was restored.",
            "Make room there, or restore another backup: houston backup --list",
        ) from None


def _append_pauses(store: Store, reason: str, snapshots: str) -> list[str]:
    rollouts = store.connection.execute(
        _SELECT_SELF_STARTING, sorted(rollout_states.SELF_ENDING_PAUSES)
    ).fetchall()
    store.connection.execute("BEGIN IMMEDIATE")
    for id, has_steps, body, blob in rollouts:  # also over a pause that would end by itself
        data = store_reader.read_blob(store.home, blob) if blob else body
        missing = _explain_missing_files(
            msgspec.msgpack.decode(data, type=RolloutSpec), id, has_steps, snapshots
        )
        pause = StoredState(
            state="paused", by=rollout_states.PAUSED_BY_RESTORE, reason=f"{reason}{missing}"
        )
        store.journal.append(EventKey(id), "state", pause)
        rollout_states.mark_unattended(store, id)
    store.connection.execute("COMMIT")
    home_files.write_chain_head(store.home, store.journal.seq, store.journal.chain)
    return [id for id, *_ in rollouts]


def _explain_missing_files(spec: RolloutSpec, rollout: str, has_steps: bool, snapshots: str) -> str:
    """What the rollout needs and this machine does not have, as the end of a reason."""
    if not _has_workspace(parse_task_record(spec.task).environment):
        return ""
    own = Path(spec.host_root) / "rollouts" / rollout
    folder = Path(spec.task.folder)
    if has_steps and not (own / "workspace").is_dir() and snapshots:
        return f". Its workspace comes from {snapshots} when it resumes"
    if has_steps and not (own / "workspace").is_dir():
        return (
            f". Its workspace is not on this machine: copy {own} from the old machine, then "
            f"houston rollout resume {rollout}; or give it up: houston rollout cancel {rollout}"
        )
    if not folder.is_dir():
        return (
            f". The folder of its task is not on this machine: copy {folder} from the old "
            f"machine, then houston rollout resume {rollout}"
        )
    return ""


def _has_workspace(environment: str) -> bool:
    """Whether its rollouts need one; not known of what another package brings and is not here."""
    try:
        return kind(environment).workspace
    except ConfigurationError:
        return False


KEPT_HOME_ENTRIES = ("houston.toml", "logs", "backups", "archives", "damaged", "service.env")
"""What may lie in a home that is restored: no part of its store."""

CORRUPT_MANIFEST = "manifest.rotten"
"""What the manifest is called once the backup was found changed: it is none any more."""
UNFINISHED_BACKUPS = ".20??????T??????.???Z.new"
"""Names of half backups."""


class BackupManifest(msgspec.Struct, frozen=True):
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


def make_backup(home: Home, to: Path | None = None, periodic: bool = False) -> BackupManifest:
    """Back a home up into a new folder of `to` (default: its own `backups/`).

    periodic: it may be pruned when newer ones of its kind are there.

    Raises HoustonError when there is nothing to back up, when the copy is not sound (exit code 65;
    nothing is left then), or when it cannot be written.
    """
    _require_database(home)
    return write_backup(home, to or home.backups, lambda target: _copy_home(home, target), periodic)


class CopiedHome(NamedTuple):
    """What a backup is a copy of."""

    path: str
    at: str
    held_seconds: float = 0.0


def write_backup(
    home: Home, parent: Path, copy: Callable[[Home], CopiedHome], periodic: bool = False
) -> BackupManifest:
    """Make a backup in a new folder of `parent`, checked, whole or not at all.

    home: whose `backups/` may be written. copy: fills an empty home, and says what it is a copy of.
    Raises HoustonError as `make_backup` does, and what `copy` raises.
    """
    with durable_copy.lock_copy_folder(home, parent, home.backups, UNFINISHED_BACKUPS):
        return _write_backup_in(parent, copy, periodic)


def _write_backup_in(
    parent: Path, copy: Callable[[Home], CopiedHome], periodic: bool
) -> BackupManifest:
    name = durable_copy.make_timestamp()
    staging_home = Home(parent / f".{name}.new")
    try:
        staging_home.path.mkdir(mode=0o700, parents=True)
        copied = copy(staging_home)
        manifest = _build_checked_manifest(copied, staging_home, name, periodic)
        atomic_file.write_atomically(
            staging_home.path / damage_report.BACKUP_MANIFEST,
            msgspec.json.encode(manifest) + b"\n",
            mode=0o600,
        )
        durable_copy.sync_tree(staging_home.path)
        staging_home.path.rename(parent / name)
        atomic_file.sync_to_disk(parent)
    except (OSError, sqlite3.Error) as problem:
        raise HoustonError(
            f"The backup cannot be made in {parent}: {problem}.",
            "No backup was kept.",
            "Free space or grant permission there, or name another folder with --out.",
        ) from None
    finally:
        shutil.rmtree(staging_home.path, ignore_errors=True)  # gone already when all went well
    return manifest


def list_backups(home: Home, folder: Path | None = None) -> list[BackupManifest]:
    """The complete backups of a home (or in `folder`), oldest first."""
    manifests = []
    for path in sorted((folder or home.backups).glob(f"[0-9]*/{damage_report.BACKUP_MANIFEST}")):
        with contextlib.suppress(HoustonError):
            manifests.append(read_backup_manifest(path.parent))
    return manifests


def read_backup_manifest(folder: Path) -> BackupManifest:
    """A backup's manifest; raises HoustonError where there is none or it is damaged."""
    try:
        return msgspec.json.decode(
            (folder / damage_report.BACKUP_MANIFEST).read_bytes(), type=BackupManifest
        )
    except (OSError, msgspec.MsgspecError) as problem:
        raise HoustonError(
            f"{folder} is not a backup: {problem}.", "Nothing was done.", "houston backup --list"
        ) from None


class PrunedBackups(NamedTuple):
    """What became of a series of backups; names of their folders."""

    removed: list[str]
    corrupt: list[str]
    """No longer what was backed up; they are none any more, and a person may remove them."""


def prune_backups(folder: Path, newest: BackupManifest, keep: int) -> PrunedBackups:
    """Remove old backups of `folder` that are of the same series as `newest`.

    Of the series (periodic, of one home) `newest` and the newest others are kept, `keep` in all;
    what a person made stays. Only unchanged backups count, so a good one is never removed in favour
    of a bad one. Newest by event, because the clock may have been set back.
    """
    series = [
        (manifest.seq, manifest.name, manifest)
        for manifest in list_backups(Home(folder), folder)
        if manifest.periodic and manifest.home == newest.home and manifest.name != newest.name
    ]
    room, result = keep - 1, PrunedBackups([], [])
    for _, name, manifest in sorted(series, key=lambda backup: backup[:2], reverse=True):
        if room <= 0:
            # Half a backup must never look whole.
            (folder / name / damage_report.BACKUP_MANIFEST).unlink()
            shutil.rmtree(folder / name, ignore_errors=True)
            result.removed.append(name)
        elif _find_changed_file(folder / name, manifest):
            (folder / name / damage_report.BACKUP_MANIFEST).rename(folder / name / CORRUPT_MANIFEST)
            result.corrupt.append(name)
        else:
            room -= 1
    return result


def list_corrupt_backups(folder: Path) -> list[str]:
    """Names in `folder` of what was a backup: found changed, or its manifest cannot be read."""
    names = [path.parent.name for path in folder.glob(f"[0-9]*/{CORRUPT_MANIFEST}")]
    for path in folder.glob(f"[0-9]*/{damage_report.BACKUP_MANIFEST}"):
        try:
            read_backup_manifest(path.parent)
        except HoustonError:
            names.append(path.parent.name)
    return sorted(names)


def _find_changed_file(folder: Path, manifest: BackupManifest) -> str:
    """The first file of a backup that is not as it was made; empty where all are."""
    blobs_there = sorted(Home(folder).blobs.glob("*/*.zst"))
    files = [(folder / name, digest) for name, digest in manifest.files.items()]
    files += [(path, path.stem) for path in blobs_there]
    for path, digest in files:
        try:
            if durable_copy.hash_file(path) != digest:
                return str(path)
        except OSError:
            return str(path)
    return "" if len(blobs_there) == manifest.blobs else str(Home(folder).blobs)


def restore_backup(folder: Path, home: Home, store: str = "") -> tuple[BackupManifest, list[str]]:
    """Make a home out of a backup; its rollouts that had not ended are paused, and named.

    The home that the backup was made of may still run them. store: the URL that has their
    snapshots; empty without one. Raises HoustonError, also where there is a home already.
    """
    manifest = read_backup_manifest(folder)
    require_empty_home(home)
    if wrong := _find_changed_file(folder, manifest):
        raise Damaged(
            f"{wrong} is not the file that was backed up.",
            "Nothing was restored.",
            "Restore another backup: houston backup --list",
        )
    source = Home(folder)
    with _whole_or_nothing(home):
        for name in manifest.files:
            if name != "houston.toml" or not home.configuration.exists():
                durable_copy.copy_file(folder / name, home.path / name)
        home.blobs.mkdir(mode=0o700, exist_ok=True)
        for path in source.blobs.glob("*/*.zst"):
            durable_copy.copy_file(path, store_reader.blob_path(home, path.stem))
        home.path.chmod(0o700)
        durable_copy.sync_tree(home.path)
        return manifest, pause_restored_rollouts(home, manifest.home, manifest.at, store)


@contextlib.contextmanager
def _whole_or_nothing(home: Home) -> Iterator[None]:
    """Remove what was restored where that fails: half a home could be started, and rollouts that
    were not paused yet would go on in it. Raises HoustonError where the disk refuses."""
    own = set(KEPT_HOME_ENTRIES)
    if not home.configuration.exists():
        own.discard(home.configuration.name)
    try:
        yield
    except BaseException as problem:
        for entry in home.path.iterdir() if home.path.exists() else ():
            if entry.name not in own:
                durable_copy.remove_path(entry)
        if not isinstance(problem, OSError):
            raise
        raise HoustonError(
            f"{home.path} cannot be written: {problem.strerror or problem}.",
            "Nothing was restored.",
            "Free space or grant permission there, then try again.",
        ) from problem


def require_empty_home(home: Home) -> None:
    """Raise ConfigurationError unless a home can be made here."""
    if home.path.exists() and any(
        entry.name not in KEPT_HOME_ENTRIES for entry in home.path.iterdir()
    ):
        raise ConfigurationError(
            f"The home {home.path} is not empty.",
            "Nothing was restored.",
            "Move it away, or name an empty folder with --home.",
        )


def _require_database(home: Home) -> None:
    try:
        exists = home.database.is_file()
    except OSError as problem:
        raise unreadable_home(home.path, problem) from None
    if not exists:
        raise NotFound(
            f"There is no database in the home {home.path}.",
            "There is nothing to back up.",
            "houston daemon start, or name the right folder with --home",
        )


def _copy_home(home: Home, target: Home) -> CopiedHome:
    hold_seconds = durable_copy.copy_database(home.database, target.database)
    while not _copy_blobs(home, target):
        hold_seconds = max(hold_seconds, durable_copy.copy_database(home.database, target.database))
    newest = _query(target, "SELECT seq, chain FROM events ORDER BY seq DESC LIMIT 1")
    if newest:
        home_files.write_chain_head(target, *newest[0])
    for path in list_adapter_files(home):
        durable_copy.copy_file(path, target.path / path.relative_to(home.path))
    copies = {home.configuration: target.configuration}
    copies |= {hub_models.pins_file(home): hub_models.pins_file(target)}
    for path, copy in copies.items():
        if path.is_file():
            durable_copy.copy_file(path, copy)
    return CopiedHome(str(home.path), iso_time(now_us()), hold_seconds)


def _copy_blobs(home: Home, target: Home) -> bool:
    """Copy the files that the copied database names; False where one was erased meanwhile."""
    shutil.rmtree(target.blobs, ignore_errors=True)
    for (name,) in _query(target, "SELECT DISTINCT blob FROM events WHERE blob IS NOT NULL"):
        try:
            durable_copy.copy_file(
                store_reader.blob_path(home, name), store_reader.blob_path(target, name)
            )
        except FileNotFoundError:
            if not _query(home, "SELECT 1 FROM events WHERE blob = ? LIMIT 1", name):
                return False  # else it is said by the check of the copy
    return True


def _query(home: Home, sql: str, *parameters: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(durable_copy.open_read_only(home.database)) as connection:
        return connection.execute(sql, parameters).fetchall()


def list_adapter_files(home: Home) -> list[Path]:
    """Files of policies that are adapters: small, and nowhere else."""
    configs = policies_folder(home).glob("[!.]*/adapter_config.json")
    return [path for config in configs for path in sorted(config.parent.iterdir())]


def _build_checked_manifest(
    copied: CopiedHome, target: Home, name: str, periodic: bool
) -> BackupManifest:
    report = verify_home(target)
    if not report.sound:
        raise Damaged(
            f"The copy of {copied.path} is not sound: {report.findings[0].text}",
            "No backup was kept.",
            "houston verify",
        )
    head = home_files.read_chain_head(target) or home_files.ChainHead(0, "")
    files = [path for path in sorted(target.path.iterdir()) if path.is_file()]
    files += list_adapter_files(target)
    everything = [path for path in target.path.rglob("*") if path.is_file()]
    return BackupManifest(
        name=name,
        at=copied.at,
        home=copied.path,
        version=version("houston-agents"),
        schema=_read_schema_version(target),
        seq=head.seq,
        chain=head.chain,
        events=report.events,
        bytes=sum(path.stat().st_size for path in everything),
        files={str(path.relative_to(target.path)): durable_copy.hash_file(path) for path in files},
        blobs=len(report.blobs),
        held_seconds=round(copied.held_seconds, 3),
        periodic=periodic,
    )


def _read_schema_version(home: Home) -> int:
    with contextlib.closing(sqlite3.connect(home.database)) as connection:
        return schema.read_schema_version(connection)


def find_newest_backup(home: Home) -> tuple[float, int] | None:
    """When the home's newest backup was made (POSIX time of its folder's end), and its last event.

    A backup dated in the future, because the clock was set back, is ignored; None without another.
    """
    backups = []
    now = time.time()
    for path in home.backups.glob(f"[0-9]*/{damage_report.BACKUP_MANIFEST}"):
        with contextlib.suppress(HoustonError, OSError):  # damaged, or pruned this moment
            backups.append((path.stat().st_mtime, read_backup_manifest(path.parent).seq))
    return max((backup for backup in backups if backup[0] <= now), default=None)


def measure_backup_age(home: Home) -> float | None:
    """How old the newest backup is; None where there is none."""
    newest = find_newest_backup(home)
    return max(0.0, time.time() - newest[0]) if newest else None
