"""Restores a home from a store: fetched as a backup, checked like any backup, then restored.

Nothing is written to the store. If something there is damaged or missing, it is named, and nothing
is restored; `until` leaves out what comes after an event. Workspaces are not fetched here, but by
the workers that continue in them (`missing_files`).
"""

import sqlite3
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import chain
from typing import NamedTuple

from houston_daemon.artifacts import journal_segments, store_owner
from houston_daemon.artifacts.artifact_store import (
    ArtifactStore,
    ObjectDamaged,
    ObjectMissing,
    disk_failure,
)
from houston_daemon.artifacts.journal_segments import Segment
from houston_daemon.artifacts.snapshot_bundles import FETCHES_AT_ONCE
from houston_daemon.artifacts.store_head import StoreHead, blob_object, file_object, find_head
from houston_daemon.maintenance.damage_report import IntegrityFindings
from houston_daemon.maintenance.home_backup import (
    BackupManifest,
    CopiedHome,
    require_empty_home,
    write_backup,
)
from houston_daemon.maintenance.projection_replay import ProjectionReplay
from houston_daemon.recorder.disk import home_files
from houston_daemon.recorder.hash_chain import EventRow
from houston_shared.errors import Damaged, HoustonError, NotFound
from houston_shared.home import Home
from houston_shared.store import schema, store_reader

NOTHING_RESTORED = "Nothing was restored."
RUNS_AHEAD = 4
"""Runs of events that are fetched before they are written."""


def fetch_backup(store: ArtifactStore, home: Home, until: int = 0) -> BackupManifest:
    """Fetch what the store has of a home as a backup into `backups/` of another, checked.

    home: an empty one. until: the last event that is wanted; 0 for all. Raises HoustonError where
    the store has no home, where the home is not empty, where something is damaged or missing there
    (exit codes 65, 66), and where the disk is full; nothing is left then.
    """
    require_empty_home(home)
    limits = store_owner.limits_of_owners(store_owner.read_owners(store))
    runs = _choose_runs(store, limits, until)
    head = find_head(store)
    if head is None:
        raise NotFound(f"{store.url} has no head: its first copy was cut short.", NOTHING_RESTORED)
    return write_backup(home, home.backups, lambda beside: _fill(store, head, runs, beside))


class JournalRun(NamedTuple):
    """A run of events, and which of them are wanted."""

    segment: Segment
    first: int
    last: int


def _choose_runs(store: ArtifactStore, limits: Mapping[int, int], until: int) -> list[JournalRun]:
    """Runs that hold every event from the first on. Raises HoustonError where one is missing."""
    segments = journal_segments.list_segments(store)
    newest = max((journal_segments.last_event(each, limits) for each in segments), default=0)
    if not newest:
        raise NotFound(
            f"{store.url} holds no home.",
            NOTHING_RESTORED,
            "Name the URL that `artifacts.url` of the home's houston.toml has.",
        )
    final_seq = min(newest, until) if until else newest
    runs: list[JournalRun] = []
    reached = 0
    for segment in journal_segments.choose_segments(segments, limits):
        if reached < final_seq:
            last = min(final_seq, journal_segments.last_event(segment, limits))
            runs.append(JournalRun(segment, reached + 1, last))
            reached = last
    if reached < final_seq:
        raise NotFound(
            f"{store.place(journal_segments.FOLDER)} lacks event {reached + 1}; there are events up"
            f" to {newest}.",
            NOTHING_RESTORED,
            f"Restore the sound part: the same command with --until {reached}" if reached else "",
        )
    return runs


def _read_runs(
    store: ArtifactStore, runs: Sequence[JournalRun], home: Home
) -> Iterator[list[EventRow]]:
    """The events of each run, with the bodies that they name in the home."""
    with ThreadPoolExecutor(FETCHES_AT_ONCE) as pool:
        waiting: deque[Future[list[EventRow]]] = deque()
        for number, run in enumerate(runs):
            for later in runs[number + len(waiting) : number + RUNS_AHEAD]:
                waiting.append(pool.submit(_read_segment, store, later.segment))
            rows = [row for row in waiting.popleft().result() if run.first <= row.seq <= run.last]
            blobs = dict.fromkeys(row.blob for row in rows if row.blob)
            list(pool.map(lambda name: _fetch_blob(store, home, name), blobs))
            yield rows


def _fetch_blob(store: ArtifactStore, home: Home, name: str) -> None:
    store.read_file(blob_object(name), store_reader.blob_path(home, name), name)


def _read_segment(store: ArtifactStore, segment: Segment) -> list[EventRow]:
    try:
        return journal_segments.read_segment(store, segment)
    except (ObjectDamaged, ObjectMissing) as lost:
        sound = segment.first - 1
        next = f"Restore the sound part: the same command with --until {sound}" if sound else ""
        raise HoustonError(lost.cause, NOTHING_RESTORED, next, lost.code) from None


def _fill(
    store: ArtifactStore, head: StoreHead, runs: Sequence[JournalRun], beside: Home
) -> CopiedHome:
    """Fill an empty home."""
    for path, digest in head.files.items():
        target = beside.path / path
        if not target.resolve().is_relative_to(beside.path.resolve()):
            raise Damaged(
                f"The head in {store.url} names a file outside of a home: {path}.", NOTHING_RESTORED
            )
        store.read_file(file_object(digest), target, digest)
    rows = chain.from_iterable(_read_runs(store, runs, beside))
    place = store.place(journal_segments.FOLDER)
    try:
        _build_database(beside, journal_segments.check_chain(rows, place))
    except sqlite3.Error as problem:
        raise disk_failure(beside.database, OSError(str(problem))) from problem
    return CopiedHome(head.home, head.at)


def _build_database(home: Home, rows: Iterable[EventRow]) -> None:
    """Make the database of events: the derived rows are replayed from them."""
    with closing(sqlite3.connect(home.database, isolation_level=None)) as connection:
        for pragma in ("page_size = 8192", "journal_mode = OFF", "synchronous = OFF"):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        schema.migrate_schema(connection)
        # What it finds wrong, the check of the backup finds again.
        replay = ProjectionReplay(home, connection, IntegrityFindings())
        last: EventRow | None = None
        connection.execute("BEGIN")
        for row in rows:
            replay.insert_event(row)
            last = row
        replay.finish()
        connection.execute("COMMIT")
    home.database.chmod(0o600)
    if last is not None:
        home_files.write_chain_head(home, last.seq, last.chain)
