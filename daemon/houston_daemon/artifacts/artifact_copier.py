"""Copies what a home commits into a store, in an order that allows a restore at any time.

For each run of new events it copies first the bodies, snapshots and adapters that they name, then
the head, then the run: what can be restored never names missing objects. Progress is read from the
store; nothing here is removed because of it. Erased and repaired events replace the earlier ones
there too. `journal_segments` and `snapshot_bundles` define the objects.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import msgspec

from houston_daemon.artifacts import journal_segments, store_owner
from houston_daemon.artifacts.artifact_store import ArtifactStore, StoreRefused
from houston_daemon.artifacts.journal_segments import Segment
from houston_daemon.artifacts.snapshot_bundles import RolloutSnapshots
from houston_daemon.artifacts.store_head import (
    StoreHead,
    blob_object,
    file_object,
    find_head,
)
from houston_daemon.artifacts.store_owner import StoreNote, StoreOwner, StoreTaken
from houston_daemon.maintenance.durable_copy import hash_file, open_read_only
from houston_daemon.maintenance.home_backup import list_adapter_files
from houston_daemon.maintenance.projection_replay import fetch_events
from houston_daemon.recorder.hash_chain import EventRow
from houston_shared import hub_models
from houston_shared.errors import Damaged, HoustonError, UsageError
from houston_shared.home import Home
from houston_shared.store import store_reader
from houston_shared.store.event_bodies import VOUCHING_KINDS
from houston_shared.terminal_log_files import rollout_folder
from houston_shared.times_and_counts import iso_time

RUN_EVENTS = 2_000
"""Events of one run at most (about 5 MB)."""
RUN_BYTES = 16 * 1024 * 1024
"""Bytes of their bodies at most."""
SNAPSHOT_KINDS = ("observation", "result", "head")
"""Events that may name a snapshot which is not there yet."""
OWNER_SECONDS = 60.0
"""How often is looked who owns the prefix while nothing happens."""


AnswerT = TypeVar("AnswerT")


class _SpecRoot(msgspec.Struct):
    """Of a rollout's spec, what counts here."""

    host_root: str = ""


class ArtifactCopier:
    """`round` copies what is new. One thread."""

    def __init__(
        self, store: ArtifactStore, home: Home, host_root: Path, host: str | None = None
    ) -> None:
        """host_root: where rollouts keep their snapshots on this machine. host: its name, as
        `store_owner.this_host` gives it."""
        self._store, self._home, self._host_root = store, home, host_root
        self._host = host or store_owner.this_host()
        self._owner: StoreOwner | None = None
        self._owner_seen = -1e9
        self._segments: dict[Segment, int] = {}
        self._blobs: set[str] = set()
        self._files: dict[Path, tuple[tuple[int, int], str]] = {}
        self._adapters: dict[str, str] = {}
        self._snapshots: dict[str, RolloutSnapshots] = {}
        self.seq = 0
        """The last event that the store has."""
        self.unreadable: dict[str, str] = {}
        """By rollout, why its snapshots are not copied."""

    def round(self) -> int:
        """Copy all that is committed; return how many events that was.

        Raises StoreRefused, StoreTaken; HoustonError where the home cannot be read now.
        """
        copied = 0
        try:
            owner = self._owner or self._open()
            if self.unreadable:  # no event comes any more of one that has ended
                self._check_owner(owner)
                for rollout in list(self.unreadable):
                    self._copy_snapshots(rollout)
            while rows := self._read(self.seq, RUN_EVENTS):
                self._check_owner(owner)
                self._copy_run(owner, rows)
                copied += len(rows)
            if copied:
                self._merge(owner)
            elif time.monotonic() - self._owner_seen > OWNER_SECONDS:
                self._check_owner(owner)
        except StoreTaken:
            self._owner = None  # a person may take it back
            raise
        return copied

    def _open(self) -> StoreOwner:
        """Be the owner, and find out how far the store is."""
        owner = store_owner.claim(self._store, self._home, self._host)
        limits = store_owner.limits_of_owners(store_owner.read_owners(self._store))
        self._segments = journal_segments.list_segments(self._store)
        self._blobs = {name.rpartition("/")[2] for name in self._store.list("blobs")}
        chosen = journal_segments.choose_segments(self._segments, limits)
        self.seq = journal_segments.last_event(chosen[-1], limits) if chosen else 0
        if chosen and not self._is_as_stored(chosen[-1], limits):
            self._rewrite(owner)
        head = find_head(self._store)
        files = head.files if head else {}
        self._adapters = {path: files[path] for path in files if path.startswith("policies/")}
        self._owner, self._owner_seen = owner, time.monotonic()
        return owner

    def _is_as_stored(self, segment: Segment, limits: dict[int, int]) -> bool:
        rows = self._read_range(segment.first, segment.last)
        if not rows or rows[-1].seq < journal_segments.last_event(segment, limits):
            raise _shorter_home(self._store.url, self._home, segment.last)
        return journal_segments.make_segment(rows, segment.owner)[0].digest == segment.digest

    def _check_owner(self, owner: StoreOwner) -> None:
        store_owner.check_owner(self._store, owner)
        self._owner_seen = time.monotonic()

    def _copy_run(self, owner: StoreOwner, rows: Sequence[EventRow]) -> None:
        for name in dict.fromkeys(row.blob for row in rows if row.blob):
            if name not in self._blobs:
                self._copy_blob(name)
        for rollout in dict.fromkeys(row.rollout for row in rows if row.kind in SNAPSHOT_KINDS):
            self._copy_snapshots(rollout)
        if any(row.kind in VOUCHING_KINDS for row in rows):
            self._rewrite(owner)  # first: cut off by a kill, it is done again
        head = self._write_head(owner, rows[-1])
        segment, packed = journal_segments.make_segment(rows, owner.number)
        self._store.write(segment.name, packed)
        self._segments[segment] = len(packed)
        self.seq = rows[-1].seq
        note = StoreNote(owner.id, self._store.url, head.seq, head.at)
        store_owner.write_note(self._home, note)

    def _copy_blob(self, name: str) -> None:
        path = store_reader.blob_path(self._home, name)
        try:
            sound = hash_file(path) == name
        except OSError:
            sound = False
        if not sound:
            raise Damaged(
                f"The body {path} is missing or damaged.",
                "Nothing after it is copied to the store.",
                "houston verify",
            )
        self._store.write_file(blob_object(name), path, name)
        self._blobs.add(name)

    def _copy_snapshots(self, rollout: str) -> None:
        if rollout not in self._snapshots:
            shadow = rollout_folder(self._find_host_root(rollout), rollout) / "shadow"
            if not shadow.is_dir():
                return  # its environment keeps no files, they are elsewhere, or were freed
            self._snapshots[rollout] = RolloutSnapshots(self._store, rollout, shadow)
        try:
            self._snapshots[rollout].copy()
            self.unreadable.pop(rollout, None)
        except StoreRefused:
            raise
        except (HoustonError, OSError) as problem:  # of this machine: the others go on
            self.unreadable[rollout] = str(problem)

    def _find_host_root(self, rollout: str) -> Path:
        """Where a rollout keeps its files on this machine: what was set when it was started."""
        select = "SELECT body, blob FROM events JOIN rollouts ON seq = spec_seq WHERE id = ?"
        rows = query_home(self._home, lambda home: home.execute(select, (rollout,)).fetchall())
        for body, blob in rows:
            data = store_reader.read_blob(self._home, blob) if blob else body
            root = msgspec.msgpack.decode(data, type=_SpecRoot).host_root if data else ""
            return Path(root) if root else self._host_root
        return self._host_root

    def _copy_home_files(self) -> dict[str, str]:
        """Copy files of the home that are new or were changed; all of them, by digest. Adapters
        that are not here any more stay in the store."""
        files = dict(self._adapters)
        own = (self._home.configuration, hub_models.pins_file(self._home))
        for path in (*own, *list_adapter_files(self._home)):
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                mark = (status.st_size, status.st_mtime_ns)
                if path not in self._files or self._files[path][0] != mark:
                    digest = hash_file(path)
                    self._store.keep_file(file_object(digest), path, digest)
                    self._files[path] = (mark, digest)
                files[str(path.relative_to(self._home.path))] = self._files[path][1]
        self._adapters = {path: files[path] for path in files if path.startswith("policies/")}
        return files

    def _write_head(self, owner: StoreOwner, last: EventRow) -> StoreHead:
        at, files = iso_time(last.at), self._copy_home_files()
        head = StoreHead(last.seq, at, str(self._home.path), version("houston-agents"), files)
        self._store.write(f"heads/{owner.number:08d}.json", msgspec.json.encode(head))
        return head

    def _merge(self, owner: StoreOwner) -> None:
        """Make longer runs of short ones; those go once the long one is there."""
        while run := journal_segments.find_mergeable(self._segments, owner.number):
            rows = self._read_range(run[0].first, run[-1].last)
            self._replace(run, rows, owner, run[0].level + 1)

    def _rewrite(self, owner: StoreOwner) -> None:
        """Bring every run to what the journal says now, and remove what nobody names any more."""
        self._check_owner(owner)
        limits = store_owner.limits_of_owners(store_owner.read_owners(self._store))
        for segment in sorted(self._segments):
            last = journal_segments.last_event(segment, limits)
            rows = self._read_range(segment.first, min(last, self.seq))
            whole = rows and last == segment.last
            same = whole and (
                journal_segments.make_segment(rows, segment.owner)[0].digest == segment.digest
            )
            if not same:
                self._replace([segment], rows, owner, segment.level)
        named = self._named_blobs()
        unused_blobs = self._blobs - named
        self._store.remove([blob_object(name) for name in unused_blobs])
        self._blobs -= unused_blobs

    def _replace(
        self, old: Iterable[Segment], rows: Sequence[EventRow], owner: StoreOwner, level: int
    ) -> None:
        """Write the rows as one run, then remove the runs that held them."""
        old = list(old)
        if rows:
            segment, packed = journal_segments.make_segment(rows, owner.number, level)
            self._store.write(segment.name, packed)
            self._segments[segment] = len(packed)
            old = [each for each in old if each != segment]
        self._store.remove([segment.name for segment in old])
        for segment in old:
            self._segments.pop(segment, None)

    def _read(self, after: int, limit: int) -> list[EventRow]:
        """The next events, as many as fit into a run."""
        rows = query_home(self._home, lambda home: fetch_events(home, after, limit))
        size = 0
        for place, row in enumerate(rows):
            size += len(row.body or b"")
            if size > RUN_BYTES and place:
                return rows[:place]
        return rows

    def _read_range(self, first: int, last: int) -> list[EventRow]:
        return query_home(self._home, lambda home: fetch_events(home, first - 1, 2**31, last))

    def _named_blobs(self) -> set[str]:
        select = "SELECT DISTINCT blob FROM events WHERE blob IS NOT NULL"
        return query_home(self._home, lambda home: {name for (name,) in home.execute(select)})


def query_home(home: Home, ask: Callable[[sqlite3.Connection], AnswerT]) -> AnswerT:
    """Ask the database of a home, read only. Raises HoustonError."""
    try:
        with contextlib.closing(open_read_only(home.database)) as connection:
            return ask(connection)
    except sqlite3.Error as problem:
        raise HoustonError(
            f"{home.database} cannot be read now: {problem}.", "Nothing was copied."
        ) from problem


def take_over(store: ArtifactStore, home: Home, host: str) -> StoreOwner:
    """Make this home the one that writes to the prefix. The former owner's daemon stops copying as
    soon as it notices.

    Raises HoustonError where the store holds another history than this home, StoreTaken where
    another was faster, StoreRefused.
    """
    owners = store_owner.read_owners(store)
    if owners and store_owner.is_owner(owners[-1], home, host):
        return owners[-1]
    limits = store_owner.limits_of_owners(owners)
    chosen = journal_segments.choose_segments(journal_segments.list_segments(store), limits)
    after = _find_shared_event(store, home, chosen, limits)
    if chosen and not after:
        raise UsageError(
            f"{store.url} holds the journal of another home: they share no event.",
            "Nothing was taken over.",
            "Name another prefix as `artifacts.url`, or restore it: houston --home NEW backup"
            f" --restore {store.url}",
        )
    return store_owner.take_over(store, home, host, after)


def _find_shared_event(
    store: ArtifactStore, home: Home, chosen: Sequence[Segment], limits: dict[int, int]
) -> int:
    """The newest event that is in both; 0 where there is none."""
    for segment in reversed(chosen):
        last = journal_segments.last_event(segment, limits)
        fetch = partial(fetch_events, after=segment.first - 1, limit=2**31, last=last)
        own: dict[int, bytes] = {row.seq: row.chain for row in query_home(home, fetch)}
        for row in reversed(journal_segments.read_segment(store, segment)):
            seq: int = row.seq
            if seq <= last and own.get(seq) == row.chain:
                return seq
    return 0


def _shorter_home(url: str, home: Home, seq: int) -> HoustonError:
    return Damaged(
        f"{url} holds event {seq} of this home, and {home.path} does not.",
        "Nothing is copied: an older copy of the home must not take the place of a newer one.",
        f"houston --home NEW backup --restore {url}",
    )
