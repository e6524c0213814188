"""What the recorder does for its disk between batches: checkpoints, head file, ballast, free space.

It also notices lost files. All of this runs after the acks have been sent. Rollouts are held back
while the disk is nearly full; a ballast file is deleted so that a home on a full disk can still be
opened. If the open files are no longer the home's, the stored data is saved and the recorder ends.
`rollout_assignment` pauses rollouts.
"""

import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from houston_daemon.maintenance import durable_copy
from houston_daemon.recorder.disk import home_files
from houston_daemon.recorder.disk.wal_checkpoints import WalCheckpoints
from houston_daemon.recorder.recorder_store import Store
from houston_daemon.recorder.request_checks import Refusal
from houston_shared import atomic_file
from houston_shared.faults import point
from houston_shared.home import Home
from houston_shared.records import LOW_DISK_BYTES

BALLAST_BYTES = 4 * 1024 * 1024
BALLAST_FREE_BYTES = 8 * BALLAST_BYTES
"""The ballast is made only where this much stays free."""


def release_ballast(home: Home) -> bool:
    """Remove the ballast; whether there was one."""
    try:
        (home.path / "ballast").unlink()
    except FileNotFoundError:
        return False
    return True


def restore_ballast(home: Home) -> None:
    """Make the ballast if it is missing or unfinished and there is room; raises OSError."""
    path = home.path / "ballast"
    if path.exists() and path.stat().st_size == BALLAST_BYTES:
        return
    if shutil.disk_usage(home.path).free < BALLAST_FREE_BYTES:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        point("recorder.ballast.made")
        os.posix_fallocate(descriptor, 0, BALLAST_BYTES)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


LOGGER = logging.getLogger("houston.recorder")

MB = 1_000_000
RESUME_FREE_BYTES = 2 * LOW_DISK_BYTES
"""Free bytes with which they go on."""
SPACE_CHECK_SECONDS = 0.5
REFUSED_WRITE_SECONDS = 2.0
"""How long a write that was refused speaks against the figures of the file system."""


class DiskSpaceWatch:
    """Looked at by the recorder's thread after every batch and when nothing happens."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._next_look = 0.0
        self._refused_at = -REFUSED_WRITE_SECONDS
        self.problem = ""
        """For people, while rollouts wait; empty while they do not."""
        self.reason = ""
        """The same as the reason of a pause."""

    def check(self) -> bool:
        """Ask the file system unless it was asked just now; returns whether it was asked."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + SPACE_CHECK_SECONDS
        try:
            usage = shutil.disk_usage(self._home.path)
        except FileNotFoundError:  # the home was removed: `HomeFilesWatch` says so
            return False
        refused = now - self._refused_at < REFUSED_WRITE_SECONDS
        limit = RESUME_FREE_BYTES if self.problem else LOW_DISK_BYTES
        # A file system that counts no blocks at all says nothing about its room.
        self._update(refused or (usage.total > 0 and usage.free < limit), usage.free)
        return True

    def note_refused_write(self) -> None:
        """A write found no space."""
        self._refused_at = time.monotonic()
        self._update(True, shutil.disk_usage(self._home.path).free)

    def refusal(self) -> Refusal | None:
        """What a worker hears that wants something stored; None while there is room."""
        return Refusal("DISK_FULL", self.problem) if self.problem else None

    def _update(self, full: bool, free: int) -> None:
        was, self.problem, self.reason = self.problem, "", ""
        if full:
            self.reason = (
                f"{free // MB} MB free on the disk of the home, {RESUME_FREE_BYTES // MB} MB needed"
            )
            self.problem = (
                f"DISK FULL: rollouts paused, {free // MB} MB free,"
                f" need {RESUME_FREE_BYTES // MB} MB"
            )
        if full and not was:
            LOGGER.error("%s", self.problem)
        elif was and not full:
            LOGGER.info("disk space is available again (%s MB free): rollouts resume", free // MB)


FILES_CHECK_SECONDS = 1.0


class HomeFilesGone(Exception):
    """The open files are no longer the home's: names them, and where the stored data is now."""


class HomeFilesWatch:
    """Watches the database, its WAL and WAL index, and the lock; used by the recorder's thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        database = store.home.database
        self._wal = [database.with_name(f"{database.name}-{end}") for end in ("wal", "shm")]
        self._watched = [database, *self._wal, store.home.lock_file]
        self._known = {
            path: identity for path in self._watched if (identity := _file_identity(path))
        }
        self._due = 0.0

    def check(self, now: float) -> None:
        """Raises HomeFilesGone if a file is missing or replaced, after saving what is stored.

        now: monotonic seconds.
        """
        if now < self._due:
            return
        self._due = now + FILES_CHECK_SECONDS
        gone_paths = [path for path, was in self._known.items() if _file_identity(path) != was]
        if gone_paths:
            names = " and ".join(path.name for path in gone_paths)
            LOGGER.error("%s removed or replaced while open: no more messages are accepted", names)
            raise HomeFilesGone(
                f"{names} of {self._store.home.path} removed or replaced while the daemon ran; "
                f"{self._save_stored(gone_paths)}"
            )

    def _save_stored(self, gone_paths: list[Path]) -> str:
        """Save what is stored; what became of it."""
        home, connection = self._store.home, self._store.connection
        if not home.path.is_dir():
            return "the home itself is gone, so nothing was put back"
        try:
            if home.database in gone_paths:
                saved = _put_database_back(home, connection)
            elif any(path in gone_paths for path in self._wal) and not _checkpoint_whole_wal(
                connection
            ):
                saved = _save_into_damaged(home, connection)
            else:
                saved = "everything stored is in houston.db"
            home_files.write_chain_head(home, self._store.journal.seq, self._store.journal.chain)
        except (OSError, sqlite3.Error) as problem:
            return f"what was stored could not be saved ({problem})"
        return saved


def _checkpoint_whole_wal(connection: sqlite3.Connection) -> bool:
    """Copy all of a WAL without a name into the database, which has one."""
    busy, log, copied = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return bool(busy == 0 and log == copied)


def _put_database_back(home: Home, connection: sqlite3.Connection) -> str:
    """The open database under its name again; beside it where somebody put another there."""
    database_copy = home.path / f"{home.database.name}.new"
    _write_database_copy(connection, database_copy)
    try:
        os.link(database_copy, home.database)
    except FileExistsError:
        database_copy.unlink()
        return _save_into_damaged(home, connection)
    database_copy.unlink()
    atomic_file.sync_to_disk(home.path)
    return "everything stored was put back into houston.db"


def _save_into_damaged(home: Home, connection: sqlite3.Connection) -> str:
    folder = home.damaged / durable_copy.make_timestamp()
    folder.mkdir(mode=0o700, parents=True)
    _write_database_copy(connection, folder / home.database.name)
    durable_copy.sync_tree(home.damaged)
    atomic_file.sync_to_disk(home.path)
    return f"everything stored is in {folder / home.database.name}"


def _write_database_copy(connection: sqlite3.Connection, path: Path) -> None:
    """All that the connection sees, WAL and all, as one file on disk with the database's mode."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    target = sqlite3.connect(path, isolation_level=None)
    try:
        connection.backup(target)
    finally:
        target.close()
    atomic_file.sync_to_disk(path)


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:  # missing, or in a folder that is
        return None
    return stat.st_dev, stat.st_ino


HEAD_WRITE_SECONDS = 1.0
BALLAST_CHECK_SECONDS = 10.0


class DiskHousekeeping:
    """Called by the loop after every batch and when nothing happens."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._files = ThreadPoolExecutor(1, "houston-head")
        self._writing: Future[None] | None = None
        self._head_seq = -1
        self._head_due = 0.0
        self._ballast_due = 0.0
        self._troubles: dict[str, str] = {}
        """What could not be done, by its name; tried again until it can."""
        self.checkpoints = WalCheckpoints(store)
        self._home_files = HomeFilesWatch(store)

    @property
    def problem(self) -> str:
        """Why a checkpoint, the head file or the ballast lags; empty when none does."""
        return self.checkpoints.problem or next(filter(None, self._troubles.values()), "")

    def run(self) -> None:
        """Do what is due; raises HomeFilesGone when the home's files are not the open ones."""
        now = time.monotonic()
        self._home_files.check(now)
        seq = self._store.journal.seq
        self.checkpoints.run(now)
        if now >= self._head_due and self._idle_writer() and seq != self._head_seq:
            self._head_due = now + HEAD_WRITE_SECONDS
            self._head_seq = seq
            self._writing = self._files.submit(
                home_files.write_chain_head, self._store.home, seq, self._store.journal.chain
            )
        if now >= self._ballast_due:
            self._ballast_due = now + BALLAST_CHECK_SECONDS
            self._try("ballast", lambda: restore_ballast(self._store.home))

    def close(self) -> None:
        """The last checkpoint and the last head; everything is on disk then."""
        self._files.shutdown(wait=True)
        self.checkpoints.finish()
        seq, chain = self._store.journal.seq, self._store.journal.chain
        self._try("head file", lambda: home_files.write_chain_head(self._store.home, seq, chain))

    def _idle_writer(self) -> bool:
        if self._writing is None:
            return True
        if not self._writing.done():
            return False
        problem = self._writing.exception()
        self._writing = None
        if problem:
            self._head_seq = -1  # again, whether or not there are new events
        self._report("head file", str(problem or ""))
        return True

    def _try(self, task_name: str, act: Callable[[], None]) -> None:
        try:
            act()
        except OSError as problem:
            self._report(task_name, str(problem))
        else:
            self._report(task_name, "")

    def _report(self, task_name: str, problem: str) -> None:
        text = problem and f"{task_name}: {problem}"
        if text and text != self._troubles.get(task_name):
            LOGGER.warning("%s", text)
        self._troubles[task_name] = text
